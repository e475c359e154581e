"""Where the repair of a node stands: `Incident.status.repair`, and nowhere else. Pure.

recover/repair decides what follows from it; `rekindle why node` and kubectl read it.
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
    """Waiting comes before each reset and each reboot, since either may have to wait for something else."""

    WAITING = "Waiting"
    RESETTING = "Resetting"
    REBOOTING = "Rebooting"
    VALIDATING = "Validating"
    RETURNED = "Returned"
    HANDED_OVER = "HandedOver"


WORKING = frozenset({RepairPhase.RESETTING, RepairPhase.REBOOTING, RepairPhase.VALIDATING})
"""Something is done on the node: these count against `repair.nodes_at_once_max`."""
OVER = frozenset({RepairPhase.RETURNED, RepairPhase.HANDED_OVER})


class StepKind(StrEnum):
    RESET = "reset"
    REBOOT = "reboot"
    VALIDATE = "validate"


class StepOutcome(StrEnum):
    """How a step ended; one without an outcome is under way."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    WITHDRAWN = "withdrawn"
    """Taken back before it was begun, or because a person stepped in."""


class _Wire(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    pass


class RepairPhaseTime(_Wire, frozen=True, kw_only=True):
    phase: RepairPhase
    at: datetime


class RepairStep(_Wire, frozen=True, kw_only=True):
    """One Job, or one request to a machine outside, and how it ended."""

    kind: StepKind
    number: Annotated[int, Meta(description="of this kind, from 1", ge=1)]
    job: Annotated[str, Meta(description="name of its Job, and its id where it is no Job", max_length=63)]
    at: Annotated[datetime, Meta(description="when it was decided")]
    boot_id: Annotated[str, Meta(description="boot of the node at that time", max_length=64)] = ""
    asked_at: Annotated[
        datetime | None, Meta(description="when the machine outside took the request, where it is no Job")
    ] = None
    ended_at: datetime | None = None
    outcome: Annotated[StepOutcome | None, Meta(description="none while it is under way")] = None
    message: Annotated[str, Meta(max_length=512)] = ""


class CheckRecord(_Wire, frozen=True, kw_only=True):
    """One check of the last validation."""

    name: Annotated[str, Meta(max_length=63)]
    outcome: Outcome
    message: Annotated[str, Meta(max_length=256)] = ""


class Repair(_Wire, frozen=True, kw_only=True):
    """What was done to mend a node, and how it ended."""

    phase: Annotated[RepairPhase, Meta(description="where it is; Returned and HandedOver are its ends")] = (
        RepairPhase.WAITING
    )
    rung: Annotated[
        StepKind | None,
        Meta(description="what is tried now, or next: reset or reboot; none is left to a person"),
    ] = None
    devices: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(
            description="UUIDs of the broken devices; empty where they are not known, or all are",
            max_length=64,
        ),
    ] = []
    devices_expected: Annotated[
        int, Meta(description="devices that the node must show; 0 where it is not known", ge=0)
    ] = 0
    reason: Annotated[str, Meta(description="stable, CamelCase", max_length=63)] = ""
    message: Annotated[str, Meta(description="what happens now, in plain words", max_length=1024)] = ""
    deadline: Annotated[datetime | None, Meta(description="of the present phase")] = None
    phases: Annotated[
        list[RepairPhaseTime],
        Meta(description="when each phase began, oldest first", max_length=32, extra=NEWEST),
    ] = []
    steps: Annotated[
        list[RepairStep],
        Meta(description="resets, reboots and validations, oldest first", max_length=16, extra=NEWEST),
    ] = []
    checks: Annotated[
        list[CheckRecord], Meta(description="of the last validation", max_length=CHECKS_MAX)
    ] = []

    @property
    def active(self) -> bool:
        return self.phase not in OVER

    @property
    def step(self) -> RepairStep | None:
        """The one that is under way."""
        return next((step for step in self.steps if step.outcome is None), None)

    @property
    def began_at(self) -> datetime | None:
        return self.phases[0].at if self.phases else None

    @property
    def ended_at(self) -> datetime | None:
        return self.phases[-1].at if self.phases and not self.active else None
