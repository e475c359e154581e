"""Defines what every phase of a repair gets (Context), and what it returns (Reconciled). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from detectors.wire.contract import Finding, NodeHealth
from detectors.wire.fitting import fitted, refitted
from recover.api import ActionRecord, Incident
from recover.api.reasons import EventReason, Reason
from recover.api.repair_state import (
    Repair,
    RepairPhase,
    RepairPhaseTime,
    RepairStep,
    StepKind,
    StepOutcome,
)
from recover.diagnose.answered import answers
from recover.diagnose.awaited import Awaiting
from recover.diagnose.what_counts import open_findings
from recover.k8s.bodies import regarding
from recover.model import Gang, Node, World
from recover.model.actions import Action, Emit
from recover.model.modes import InForce
from recover.policy.settings import Repairs, Settings
from recover.repair import outside, step_jobs
from recover.repair.limits import Limits
from recover.repair.outside import Means
from recover.triage.guard import Guard

__all__ = [
    "HELD_REQUEUE_S",
    "PHASE_OF",
    "Context",
    "Reconciled",
    "begun",
    "ended",
    "handed_over",
    "moved",
    "waiting",
]

HELD_REQUEUE_S = 60.0
"""Time until the next reconcile during a hold or a pause, or while a budget or limit is used up. A hold may
end by time alone; the end of a hold by a person is seen at once."""

PHASE_OF = {
    StepKind.RESET: RepairPhase.RESETTING,
    StepKind.REBOOT: RepairPhase.REBOOTING,
    StepKind.VALIDATE: RepairPhase.VALIDATING,
}


class Context(msgspec.Struct, frozen=True):
    """One repair and the world around it."""

    incident: Incident
    repair: Repair
    node: Node
    mode: InForce
    world: World
    settings: Settings
    means: Means
    limits: Limits
    guard: Guard
    saves: Awaiting
    now: datetime

    @property
    def rules(self) -> Repairs:
        return self.settings.repair

    @property
    def health(self) -> NodeHealth | None:
        return self.world.health.get(self.node.name)

    @property
    def paused(self) -> str:
        """Words about a pause of Rekindle; empty if there is none. A step that runs already continues."""
        pause = self.world.modes.paused
        return pause.words() if pause is not None else ""

    @property
    def found(self) -> list[Finding]:
        """Open findings of the node's present boot that the end of its last quarantine has not answered."""
        return open_findings(self.node, self.health, answers(self.node), self.now)

    @property
    def reboots_from_outside(self) -> bool:
        """Whether a system outside the cluster reboots nodes. A node that no longer answers can then be
        rebooted, too."""
        return outside.is_set(self.rules, self.means)

    def allowed_s(self, kind: StepKind) -> float:
        """Returns the time limit of a step of this kind, in seconds from its beginning to its end."""
        return {
            StepKind.RESET: self.rules.reset_deadline_s,
            StepKind.REBOOT: self.rules.reboot_deadline_s,
            StepKind.VALIDATE: self.rules.validate_deadline_s,
        }[kind]

    def expired(self) -> bool:
        deadline = self.repair.deadline
        return deadline is not None and self.now >= deadline

    def left_s(self) -> float | None:
        deadline = self.repair.deadline
        return None if deadline is None else max(0.01, (deadline - self.now).total_seconds())

    def event(self, reason: EventReason, message: str, *, warning: bool = False) -> Emit:
        """Returns an Event on the node, once for each reason and step."""
        return Emit(
            reason=reason,
            message=f"{message}. Incident {self.incident.metadata.name}",
            regarding=regarding("v1", "Node", self.node.name, self.node.uid),
            warning=warning,
            key=f"{self.incident.metadata.name}-{reason}-{len(self.repair.steps)}",
        )


class Reconciled(msgspec.Struct, frozen=True):
    """The result of one reconcile of a repair. `writes` go out first, then the Incident, and Events last."""

    repair: Repair | None = None
    writes: tuple[Action, ...] = ()
    independent: tuple[tuple[Action, ...], ...] = ()
    """Chains of writes that neither the Incident nor one another waits for."""
    records: tuple[ActionRecord, ...] = ()
    takes_out: bool = False
    """Whether the node leaves service by these writes, which uses the budgets of quarantines."""
    begins: StepKind | None = None
    """Step that begins and uses the limits of repairs."""
    closes: bool = False
    """Whether the Incident is over."""
    restarts: tuple[Gang, ...] = ()
    """Gangs for which Recoveries are opened."""
    requeue_after_s: float | None = None


def moved(
    ctx: Context,
    phase: RepairPhase,
    message: str,
    *,
    reason: Reason | str = "",
    within_s: float | None = None,
    **changes: Any,
) -> Repair:
    """Returns the repair in its next phase, with the time of the change and the new phase's deadline."""
    return refitted(
        ctx.repair,
        phase=phase,
        reason=str(reason),
        message=message,
        deadline=ctx.now + timedelta(seconds=within_s) if within_s is not None else None,
        phases=[*ctx.repair.phases, RepairPhaseTime(phase=phase, at=ctx.now)],
        **changes,
    )


def waiting(ctx: Context, reason: Reason, message: str, requeue_after_s: float | None = None) -> Reconciled:
    """Returns a result that leaves the repair in its phase. The reason is written if it has changed."""
    said = refitted(ctx.repair, reason=str(reason), message=message)
    return Reconciled(repair=said, requeue_after_s=requeue_after_s)


def begun(ctx: Context, kind: StepKind, message: str) -> Repair:
    """Returns the repair with a new step. The phase of the step is written before its action."""
    number = 1 + max((s.number for s in ctx.repair.steps if s.kind is kind), default=0)
    step = fitted(
        RepairStep,
        kind=kind,
        number=number,
        job=step_jobs.name_of(ctx.incident, kind, number),
        at=ctx.now,
        boot_id=ctx.node.boot_id,
    )
    within_s = ctx.allowed_s(kind) + (ctx.rules.hands_off_s if kind is StepKind.RESET else 0.0)
    return moved(ctx, PHASE_OF[kind], message, within_s=within_s, steps=[*_kept(ctx.repair.steps), step])


def _kept(steps: Sequence[RepairStep]) -> list[RepairStep]:
    """Returns the steps without the validations that were begun in vain, except the last. The list is
    bounded, and the last reset or reboot must stay in it."""
    in_vain = [s for s in steps if s.kind is StepKind.VALIDATE and s.outcome is StepOutcome.WITHDRAWN]
    return [step for step in steps if step not in in_vain[:-1]]


def ended(
    ctx: Context,
    outcome: StepOutcome,
    message: str,
    *,
    pod_ended_at: datetime | None = None,
    **changes: Any,
) -> Repair:
    """Returns the repair with the end of the step that was under way. The next reconcile decides what
    follows."""
    end = partial(refitted, ended_at=ctx.now, outcome=outcome, message=message, pod_ended_at=pod_ended_at)
    steps = [end(step) if step.outcome is None else step for step in ctx.repair.steps]
    return refitted(ctx.repair, steps=steps, **changes)


def handed_over(ctx: Context, reason: Reason, why: str, what_to_do: str) -> Reconciled:
    """Hands the repair over to a person, who decides from here on. A step that was under way is withdrawn; a
    node in quarantine stays in quarantine."""
    message = f"{why}. {what_to_do}"
    withdrawn = ended(ctx, StepOutcome.WITHDRAWN, why)
    repair = moved(ctx, RepairPhase.HANDED_OVER, message, reason=reason, steps=withdrawn.steps)
    event = ctx.event(EventReason.NODE_HANDED_OVER, message.rstrip("."), warning=True)
    return Reconciled(repair=repair, writes=(event,))
