"""State of the repair of a node. It is stored only in `Incident.status.repair`. Pure.

recover/repair decides what follows from the state; `rekindle why node` and kubectl show it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.wire.fitting import NEWEST
from detectors.wire.step_report import CHECKS_MAX, Outcome

__all__ = [
    "OVER",
    "WORKING",
    "CheckRecord",
    "Repair",
    "RepairPhase",
    "RepairPhaseTime",
    "RepairStep",
    "StepKind",
    "StepOutcome",
]


class RepairPhase(StrEnum):
    """Phase of a repair. Waiting precedes each reset and each reboot, since either may have to wait."""

    WAITING = "Waiting"
    RESETTING = "Resetting"
    REBOOTING = "Rebooting"
    VALIDATING = "Validating"
    RETURNED = "Returned"
    HANDED_OVER = "HandedOver"


WORKING = frozenset({RepairPhase.RESETTING, RepairPhase.REBOOTING, RepairPhase.VALIDATING})
"""Phases in which something is done on the node. These repairs count against `repair.nodes_at_once_max`."""
OVER = frozenset({RepairPhase.RETURNED, RepairPhase.HANDED_OVER})


class StepKind(StrEnum):
    RESET = "reset"
    REBOOT = "reboot"
    VALIDATE = "validate"


class StepOutcome(StrEnum):
    """Result of a step; a step without a result is under way."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    WITHDRAWN = "withdrawn"
    """Withdrawn before the step began, or because a person took over."""


class _Wire(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    pass


class RepairPhaseTime(_Wire, frozen=True, kw_only=True):
    """Time at which one phase of the repair began."""

    phase: RepairPhase
    """The phase that began."""
    at: datetime
    """Time at which the phase began."""


class RepairStep(_Wire, frozen=True, kw_only=True):
    """One Job, or one request to another system, and its result."""

    kind: StepKind
    """Kind of the step: reset, reboot or validate."""
    number: Annotated[int, Meta(description="Number of the step among those of its kind, from 1.", ge=1)]
    job: Annotated[
        str,
        Meta(
            description="Name of the Kubernetes Job that runs this step of the repair, or id of the request "
            "that this step has sent to another system.",
            max_length=63,
        ),
    ]
    at: Annotated[datetime, Meta(description="Time at which the step was decided.")]
    boot_id: Annotated[str, Meta(description="Id of the node's boot at that time.", max_length=64)] = ""
    asked_at: Annotated[
        datetime | None,
        Meta(
            description="Time at which the Job was created, or the other system accepted the request; absent "
            "until then."
        ),
    ] = None
    ended_at: datetime | None = None
    """Time at which the step ended."""
    pod_ended_at: Annotated[
        datetime | None,
        Meta(
            description="Time at which the pod of a successful reset ended, by the node's clock. The node's "
            "agent dates its findings by the same clock."
        ),
    ] = None
    outcome: Annotated[
        StepOutcome | None, Meta(description="How the step ended; absent while the step is under way.")
    ] = None
    message: Annotated[str, Meta(max_length=512)] = ""
    """Explanation in plain words."""


class CheckRecord(_Wire, frozen=True, kw_only=True):
    """Result of one check of the last validation."""

    name: Annotated[str, Meta(max_length=63)]
    """Name of the check."""
    outcome: Outcome
    """Result of the check."""
    message: Annotated[str, Meta(max_length=256)] = ""
    """Result of the check, or the reason why it could not run."""


class Repair(_Wire, frozen=True, kw_only=True):
    """Steps that repair a node, and their results."""

    phase: Annotated[
        RepairPhase, Meta(description="Phase of the repair. Returned and HandedOver are final.")
    ] = RepairPhase.WAITING
    rung: Annotated[
        StepKind | None,
        Meta(
            description="The step that is tried now or next: reset or reboot. Absent if only a person can "
            "repair the node."
        ),
    ] = None
    devices: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(
            description="UUIDs of the broken devices. Empty if they are not known, or if all devices are "
            "broken.",
            max_length=64,
        ),
    ] = []
    devices_expected: Annotated[
        int,
        Meta(description="Number of devices that the node must show; 0 if the number is not known.", ge=0),
    ] = 0
    reason: Annotated[
        str,
        Meta(
            description="Stable reason in CamelCase; docs/reference/reasons.md explains each one.",
            max_length=63,
        ),
    ] = ""
    message: Annotated[str, Meta(description="The present state, in plain words.", max_length=1024)] = ""
    deadline: Annotated[
        datetime | None, Meta(description="End of the time that the present phase may take.")
    ] = None
    phases: Annotated[
        list[RepairPhaseTime],
        Meta(description="Time at which each phase began, oldest first.", max_length=32, extra=NEWEST),
    ] = []
    steps: Annotated[
        list[RepairStep],
        Meta(description="Resets, reboots and validations, oldest first.", max_length=16, extra=NEWEST),
    ] = []
    checks: Annotated[
        list[CheckRecord], Meta(description="Checks of the last validation.", max_length=CHECKS_MAX)
    ] = []

    @property
    def active(self) -> bool:
        return self.phase not in OVER

    @property
    def step(self) -> RepairStep | None:
        """The step that is under way; None if there is none."""
        return next((step for step in self.steps if step.outcome is None), None)

    @property
    def began_at(self) -> datetime | None:
        return self.phases[0].at if self.phases else None

    @property
    def ended_at(self) -> datetime | None:
        return self.phases[-1].at if self.phases and not self.active else None

    @property
    def returned_at(self) -> datetime | None:
        """Time at which this repair returned the node to service. None for a repair without any step: the
        node became Ready again by itself."""
        return self.ended_at if self.phase is RepairPhase.RETURNED and self.steps else None
