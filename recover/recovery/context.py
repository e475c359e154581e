"""Defines what every phase of a recovery gets (Context), and what it returns (Step). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from detectors.wire.fitting import fitted, limit, refitted
from detectors.wire.resource import Resource
from recover.api import (
    Cause,
    Condition,
    Phase,
    PhaseTime,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    Requirement,
)
from recover.api.marks import CONTROLLER_NAME
from recover.api.reasons import EventReason, Reason
from recover.diagnose.ranks import losses
from recover.diagnose.starts import leftover, nodes_without_devices, ranks
from recover.diagnose.witnesses import witnesses
from recover.k8s.bodies import builtins, merge_diff, regarding
from recover.k8s.kinds import RECOVERIES
from recover.model import REFUSED_AGAIN_S, Gang, Mark, Node, Pod, PodPhase, Refusal, World
from recover.model.actions import Action, ConfirmGone, Emit, Patch
from recover.policy.settings import Settings, Timing
from recover.recovery import scan_pod
from recover.recovery.loading import may_be_the_checkpoint
from recover.workloads import workload_of

__all__ = [
    "CAUSES_MAX",
    "REFUSED_AGAIN_S",
    "Context",
    "Step",
    "all_ran",
    "allowed_s",
    "bounded",
    "condition",
    "moved",
    "next_attempt",
    "remove_scans",
    "status_patch",
    "taken",
]

CAUSES_MAX = limit(RecoveryStatus, "causes")
GRACE_MARGIN_S = 60.0
"""Margin after a pod's grace period, in which its kubelet kills the pod and reports that."""
ALLOWED_S_MAX = 30 * 86_400.0
"""Longest time that is allowed. A job may claim any grace period and any number of ranks; the sum with the
present time must remain a date."""
_WITHOUT_MARK = {
    "stopped": {(True, Phase.STOPPING), (True, Phase.FENCING), (True, Phase.BLOCKED)},
    "resumed": {(False, Phase.RESUMING), (False, Phase.BLOCKED), (False, Phase.VERIFYING)},
}
"""For each act, the states of a job without a mark after which this attempt has done the act, if the
controller was the last writer of the job's suspend field: whether the job is suspended, and the phase."""
REFUSAL_CHARS_MAX = 360
"""Length of a refusal for which a message has room, whatever the job's name."""


class Context(msgspec.Struct, frozen=True):
    """One recovery and the world around it."""

    recovery: Recovery
    gang: Gang
    world: World
    settings: Settings
    now: datetime

    @property
    def spec(self) -> RecoverySpec:
        return self.recovery.spec

    @property
    def status(self) -> RecoveryStatus:
        return self.recovery.status

    @property
    def timing(self) -> Timing:
        return self.settings.timing

    def has(self, did: str) -> bool:
        """Whether this attempt has stopped, or resumed, the gang. The mark on the job says so. If somebody
        has removed the mark, the last writer of the job's suspend field says so, in the phases in which the
        gang was in the other state before."""
        mark = self.gang.mark
        if mark is None:
            is_ours = self.gang.suspend_writer == CONTROLLER_NAME
            return is_ours and (self.gang.suspended, self.status.phase) in _WITHOUT_MARK[did]
        now = (self.recovery.metadata.name, self.status.attempt, did)
        return (mark.recovery, mark.attempt, mark.did) == now

    def mark(
        self,
        did: str,
        avoided: tuple[str, ...],
        placed: tuple[Requirement, ...] = (),
        suspected: tuple[str, ...] = (),
    ) -> Mark:
        name, attempt = self.recovery.metadata.name, self.status.attempt
        return Mark(
            recovery=name, attempt=attempt, did=did, avoided=avoided, placed=placed, suspected=suspected
        )

    def living(self) -> list[Pod]:
        """Returns the pods of the gang that still run, or may run."""
        pods = self.world.pods(self.gang.ref.uid)
        return sorted((p for p in pods if not p.ended), key=lambda p: p.name)

    def remaining(self) -> list[Pod]:
        """Returns the old pods that must be gone before the gang may start. If new pods take the names of old
        ones, ended pods count besides the living ones: a framework's controller counts an ended pod of that
        name as the new rank's own failure."""
        if not workload_of(self.gang).reuses_names or self.gang.terminal is not None:
            return self.living()
        return sorted(self.world.pods(self.gang.ref.uid), key=lambda p: p.name)

    def leftovers(self) -> list[str]:
        """Returns the ended pods that the job may keep. Their end does not concern the next start."""
        pods = self.world.pods(self.gang.ref.uid)
        return sorted(leftover(pod) for pod in pods if pod.ended)

    def node_of(self, pod: Pod) -> Node | None:
        return self.world.nodes.get(pod.node)

    def is_lost(self, pod: Pod) -> bool:
        """Whether nobody on the pod's node can end the pod: the node is gone or no longer reports."""
        node = self.node_of(pod)
        is_silent = node is not None and not node.ready
        return bool(pod.node) and (is_silent or self.world.has_no_node(pod.node))

    def somebody(self) -> str:
        """Returns the other writer of the job's suspend field."""
        writer = self.gang.suspend_writer
        return f"a person ({writer})" if writer.startswith("kubectl") else writer or "somebody else"

    def undone(self) -> Reason:
        """Returns why a recovery ends whose stop or start somebody undid. After a person's change Rekindle
        may act at the next fault; a controller would undo the action again."""
        is_person = self.gang.suspend_writer.startswith("kubectl")
        return Reason.HELD if is_person else Reason.FOREIGN_OWNER

    def allowed_s(self, deadline_s: float) -> float:
        return allowed_s(self.gang, self.timing, deadline_s)

    def stop_s(self) -> float:
        """Returns how long the pods may take to end, in seconds: as long as their own specs allow, if that is
        longer."""
        longest = max((pod.grace_s for pod in self.world.pods(self.gang.ref.uid)), default=0)
        margin_s = min(GRACE_MARGIN_S, self.timing.stop_deadline_s)
        return max(self.allowed_s(self.timing.stop_deadline_s), min(longest, ALLOWED_S_MAX) + margin_s)

    def expired(self) -> bool:
        deadline = self.status.deadline
        return deadline is not None and self.now >= deadline

    def left_s(self) -> float | None:
        """Returns the seconds until the phase's deadline, when the next reconcile is due; None if it has no
        deadline."""
        deadline = self.status.deadline
        return None if deadline is None else max(0.01, (deadline - self.now).total_seconds())

    def refusal_of_job(self) -> Refusal | None:
        return self.refusal((self.gang.resource, self.gang.ref.name))

    def refusal(self, *objects: tuple[Resource, str]) -> Refusal | None:
        """Returns the API server's last refusal, since this phase began, of our writes to these objects of
        the gang's namespace."""
        entered = self.status.phases[-1].at
        found = [self.world.refusal(kind, name, self.gang.ref.namespace) for kind, name in objects]
        said = [refusal for refusal in found if refusal is not None and refusal.at >= entered]
        return max(said, key=lambda refusal: refusal.at, default=None)

    def is_reported(self, refusal: Refusal | None) -> bool:
        """Whether there is no refusal, or the status reports it already."""
        return refusal is None or self.words_of(refusal) in self.status.message

    def words_of(self, refusal: Refusal) -> str:
        return refusal.words[:REFUSAL_CHARS_MAX]

    def pause_s(self, refusal: Refusal | None) -> float:
        """Returns the seconds until the refused write is tried again."""
        return refusal.left_s(self.now) if refusal is not None else 0.0

    def about_gang(self) -> dict[str, str]:
        ref = self.gang.ref
        return regarding(ref.api_version, ref.kind, ref.name, ref.uid, ref.namespace)

    def event(self, reason: EventReason, message: str, *, warning: bool = False, key: str = "") -> Emit:
        """Returns an Event on the job, once for each attempt, and for each key if one is given."""
        return Emit(
            reason=reason,
            message=f"{message}. Recovery {self.recovery.metadata.name}, attempt {self.status.attempt}",
            regarding=self.about_gang(),
            warning=warning,
            key=f"{self.recovery.metadata.name}-{self.status.attempt}-{reason}{key}",
        )


class Step(msgspec.Struct, frozen=True):
    """The result of one reconcile of a recovery: a new status, or writes to other objects. If a Step has
    both, the writes are Events and removals of scan pods, and are sent after the status. All other writes of
    a phase are issued only in a later reconcile, after the phase itself has been written. The exception is
    the first stop (`stop`): the Recovery, which exists in the phase Planned before the stop is sent, already
    announces it."""

    status: RecoveryStatus | None = None
    writes: tuple[Action, ...] = ()
    stop: tuple[Action, ...] = ()
    """The first stop. It is sent at the same time as the status and does not wait for the status."""
    requeue_after_s: float | None = None
    reads: tuple[ConfirmGone, ...] = ()
    """Live reads that must agree before anything is written."""


def allowed_s(gang: Gang, timing: Timing, deadline_s: float) -> float:
    """Returns the deadline in seconds, or a longer time if a framework needs longer for a gang of this
    size."""
    return max(deadline_s, min(gang.size * timing.per_rank_s, ALLOWED_S_MAX))


def moved(
    ctx: Context,
    phase: Phase,
    message: str,
    *,
    reason: Reason | str = "",
    within_s: float | None = None,
    status: RecoveryStatus | None = None,
) -> RecoveryStatus:
    """Returns the status in its next phase, with the time of the change and the new phase's deadline."""
    base = status or ctx.status
    begins = base.checkpoint.step if phase is Phase.RESUMING and base.checkpoint is not None else None
    entered = PhaseTime(phase=phase, attempt=base.attempt, at=ctx.now, step=begins)
    return refitted(
        base,
        phase=phase,
        reason=str(reason),
        message=message,
        deadline=ctx.now + timedelta(seconds=within_s) if within_s is not None else None,
        phases=[*base.phases, entered],
    )


def taken(ctx: Context, message: str, *, within_s: float) -> RecoveryStatus:
    """Returns the status after a refused stop or start was accepted: its ranks have the whole time from
    now."""
    return refitted(
        ctx.status,
        reason="",
        message=message,
        deadline=ctx.now + timedelta(seconds=ctx.allowed_s(within_s)),
    )


def next_attempt(ctx: Context, causes: Iterable[Cause], message: str, *, counts: bool) -> RecoveryStatus:
    """Returns the status that goes back to the stop, for a new cause or for better places. `counts` is False
    if the ranks of the attempt that ends here never all ran; that attempt then does not count."""
    attempt = ctx.status.attempt + 1
    added = [msgspec.structs.replace(cause, attempt=attempt) for cause in causes]
    pods = ranks(ctx.world, ctx.gang)
    lost = [loss.pod for loss in losses(ctx.world, pods, ctx.now)]
    status = refitted(
        ctx.status,
        attempt=attempt,
        causes=bounded([*ctx.status.causes, *added]),
        nodes=sorted({pod.node for pod in pods if pod.node}),
        nodes_without_devices=nodes_without_devices(ctx.world, pods),
        witnesses=witnesses(ctx.world, ctx.gang, lost, [cause.node for cause in added]),
        fruitless=[*ctx.status.fruitless, *(_suspected(ctx, added) if counts else ())],
        uncounted=[*ctx.status.uncounted, *(() if counts else (ctx.status.attempt,))],
        resumed_step=None,
    )
    return moved(ctx, Phase.STOPPING, message, within_s=ctx.stop_s(), status=status)


def all_ran(ctx: Context) -> bool:
    """Whether all ranks of this attempt ran at one time."""
    if any(p.phase is Phase.VERIFYING and p.attempt == ctx.status.attempt for p in ctx.status.phases):
        return True
    pods = ranks(ctx.world, ctx.gang)
    return sum(1 for pod in pods if pod.phase is not PodPhase.PENDING) >= ctx.gang.size


def _suspected(ctx: Context, causes: Iterable[Cause]) -> list[int]:
    """Returns the step from which this attempt began, if all ranks ran and the checkpoint may be why the
    attempt ended."""
    step = ctx.status.checkpoint.step if ctx.status.checkpoint else None
    return [step] if step is not None and all_ran(ctx) and any(map(may_be_the_checkpoint, causes)) else []


def bounded(causes: list[Cause]) -> list[Cause]:
    """Returns as many causes as a recovery keeps. Later causes of nodes are dropped before all others. If the
    others alone are too many, the oldest are dropped, even the first: triage drops these from the spec, too,
    and a cause that only the spec has would stop the gang again."""
    surplus = len(causes) - CAUSES_MAX
    of_nodes = [cause for cause in causes[1:] if cause.node][: max(0, surplus)]
    return [cause for cause in causes if cause not in of_nodes][-CAUSES_MAX:]


def condition(
    ctx: Context,
    type_: str,
    *,
    good: bool,
    reason: str,
    message: str,
    among: list[Condition] | None = None,
) -> list[Condition]:
    """Returns the status' conditions, or the given conditions, with this one set."""
    before = ctx.status.conditions if among is None else among
    others = [c for c in before if c.type != type_]
    return [
        *others,
        fitted(
            Condition,
            type=type_,
            status="True" if good else "False",
            reason=reason,
            message=message,
            last_transition_time=ctx.now,
        ),
    ]


def remove_scans(ctx: Context) -> tuple[Action, ...]:
    """Returns the deletions of the scan pods of this attempt, once their answer is written."""
    return tuple(
        scan_pod.remove(scan)
        for scan in scan_pod.of_attempt(ctx.world, ctx.recovery)
        if scan.deleting_since is None
    )


def status_patch(recovery: Recovery, status: RecoveryStatus) -> Patch | None:
    """Returns the write of a new status, on exactly the recovery that was seen; None if nothing differs."""
    change = merge_diff(builtins(recovery.status), builtins(status))
    if not change:
        return None
    return Patch(
        what=f"recovery-{status.phase.lower()}",
        resource=RECOVERIES,
        name=recovery.metadata.name,
        namespace=recovery.metadata.namespace,
        uid=recovery.metadata.uid,
        version=recovery.metadata.resource_version,
        subresource="status",
        body={"status": change},
    )
