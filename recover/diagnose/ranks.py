"""Reads the state of a gang from its pods: lost ranks, a hang, training that continues. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import zip_longest

from detectors.wire.training import Edge, LogError, PodProgress
from recover.api import Phase, Recovery
from recover.diagnose.diagnosis import JOB_FAILED, Loss
from recover.diagnose.first_loss import follows, in_order
from recover.diagnose.goes_on import CLOCKS_APART
from recover.diagnose.out_of_memory import OOM_KILLED, pod_ran_out
from recover.model import Container, Gang, Pod, PodPhase, World
from recover.policy.settings import Timing

__all__ = [
    "is_dead",
    "is_down",
    "last_stop_or_start",
    "lingers",
    "losses",
    "makes_steps",
    "resumed_at",
    "stalled_at",
    "started_at",
    "without_surplus",
]

_SIGTERM = 143
"""Exit code of an orderly stop."""
_MISSED_SETTLE_S = 30.0
"""Time until a missed deletion counts. After a broken watch the lists of pods and of jobs come in any order,
several tries of a reflector apart: the job may have ended, or its people may have stopped it."""
_BY_KUBELET = {
    "Evicted": "evicted",
    "Preempting": "made-way",
    "Terminated": "made-way",
    "NodeShutdown": "made-way",
    "Shutdown": "made-way",
    "UnexpectedAdmissionError": "not-admitted",
    "TopologyAffinityError": "not-admitted",
    "NodeAffinity": "not-admitted",
    "NodePorts": "not-admitted",
    "DeadlineExceeded": "pod-deadline",
}
"""Codes of a loss, by the reason that a kubelet writes into the pod: it ended the pod under pressure, to make
room for a critical pod, at the machine's shutdown, or at the pod's own deadline; or it refused the pod at its
start, for example because the device plugin has no healthy device. The reason `OutOf` is followed by the name
of a resource."""


def last_stop_or_start(history: list[Recovery]) -> datetime | None:
    """Returns the time of the last stop or resume that Rekindle made. Earlier events belong to an earlier
    attempt."""
    return max((at for r in history for at in _turns(r)), default=None)


def _turns(recovery: Recovery) -> Iterator[datetime]:
    """Yields the times of the recovery's stops and resumes. A stop that was called off stopped nothing."""
    phases = recovery.status.phases
    for entered, following in zip_longest(phases, phases[1:]):
        called_off = following is not None and following.phase is Phase.FAILED
        if entered.phase is Phase.RESUMING or (entered.phase is Phase.STOPPING and not called_off):
            yield entered.at


def resumed_at(recovery: Recovery) -> datetime | None:
    """Returns when the recovery last started its gang, or None if the gang is stopped or was left stopped."""
    turns = [p for p in recovery.status.phases if p.phase in (Phase.STOPPING, Phase.RESUMING)]
    return turns[-1].at if turns and turns[-1].phase is Phase.RESUMING else None


def started_at(world: World, recovery: Recovery, attempt: int) -> datetime | None:
    """Returns the time of the start that this attempt ends, or None if no recovery has made that start."""
    earlier = [r for r in world.history(recovery.spec.gang.uid) if r.spec.number < recovery.spec.number]
    phases = recovery.status.phases
    own = [p.at for p in phases if p.phase is Phase.RESUMING and p.attempt < attempt]
    return max(own, default=None) or last_stop_or_start(earlier)


def is_down(recovery: Recovery, gang: Gang) -> bool:
    """Whether the recovery stops the gang, or has stopped it and has not started it again. The mark on the
    job would show that the recovery has started the gang."""
    mark, attempt = gang.mark, (recovery.metadata.name, recovery.status.attempt, "resumed")
    return recovery.active and (mark is None or (mark.recovery, mark.attempt, mark.did) != attempt)


def without_surplus(there: list[Pod], pods: list[Pod], gang: Gang) -> list[Pod]:
    """Returns `there` without the pods that were told to end while as many of `pods` stay as the gang should
    have ranks, all of them created before that: people have scaled the gang down."""
    staying = (pod.created for pod in pods if pod.deleting_since is None and not pod.ended)
    born = sorted(at for at in staying if at is not None)
    return [pod for pod in there if not _is_surplus(pod, born, gang)]


def _is_surplus(pod: Pod, born: list[datetime], gang: Gang) -> bool:
    at = pod.was_rank_until
    return pod.deleting_since is not None and at is not None and bisect_left(born, at) >= gang.size


def losses(world: World, pods: list[Pod], now: datetime) -> list[Loss]:
    """Returns the ranks that are gone or failed, first loss first. Ranks that ended well are not lost."""
    found = [loss for pod in pods if (loss := _loss(world, pod, now)) is not None]
    return in_order(found)


def _loss(world: World, pod: Pod, now: datetime) -> Loss | None:
    failed = [c for c in pod.containers if c.exit_code not in (None, 0)]
    ended = min(failed, key=lambda c: c.beside) if failed else None

    def lost(code: str, at: datetime | None, *, in_place: bool = False) -> Loss:
        error = _first_error(world, pod)
        return Loss(
            pod=pod.name,
            pod_uid=pod.uid,
            node=pod.node,
            at=min(at or now, now),
            reported_at=at,
            code=code,
            restarts=ended.restarts if ended else 0,
            in_place=in_place,
            propagated=error is not None and follows(code, error.code),
            error=error.code if error is not None else "",
            error_at=error.at if error is not None else None,
            created=pod.created,
            not_before=pod.was_rank_until if pod.is_missed else None,
        )

    if _was_told_to_end(pod):
        return lost("deleted", pod.deleting_since)
    if pod.phase is PodPhase.SUCCEEDED:
        return None
    if pod.phase is PodPhase.FAILED:
        return lost(_by_kubelet(pod) or _code(world, pod, ended), ended.finished_at if ended else None)
    if pod.node and world.has_no_node(pod.node):
        return lost("node-gone", None)
    if ended is not None and not ended.beside:
        return lost(_code(world, pod, ended), ended.finished_at, in_place=True)
    return None


def _first_error(world: World, pod: Pod) -> LogError | None:
    """Returns the first error of the training's container, or otherwise the first error of any container: if
    a container fails before its first step, its agent reports the error before it has seen the end."""
    progress = world.progress(pod)
    if progress is not None:
        return progress.first_error
    told = [c.first_error for c in world.containers(pod) if c.first_error is not None]
    return min(told, key=lambda error: error.at, default=None)


def _was_told_to_end(pod: Pod) -> bool:
    """Whether the pod was deleted before it ended: then its exit code shows only how it ended after the
    deletion. A framework's controller may delete a pod that has failed by itself, in the same second; 0 and
    143 are the codes of an orderly end."""
    if pod.deleting_since is None:
        return False
    ends = [(c.finished_at, c.exit_code) for c in pod.containers if c.finished_at is not None]
    if not pod.ended or not ends:
        return True
    at, exit_code = max(ends, key=lambda end: end[0])
    return at > pod.deleting_since or (at == pod.deleting_since and exit_code in (0, _SIGTERM))


def _by_kubelet(pod: Pod) -> str:
    """Returns how the kubelet has ended the pod as a whole, or an empty string if the pod's containers ended
    by themselves."""
    reason = pod.failure.partition(":")[0]
    return _BY_KUBELET.get(reason, "not-admitted" if reason.startswith("OutOf") else "")


def _code(world: World, pod: Pod, container: Container | None) -> str:
    if container is None or container.exit_code is None:
        return "failed"
    is_out_of_memory = container.reason == "OOMKilled" or pod_ran_out(world, pod, container.finished_at)
    return OOM_KILLED if is_out_of_memory else f"exit-{container.exit_code}"


def is_dead(world: World, pods: list[Pod], lost: list[Loss], timing: Timing, now: datetime) -> bool:
    """Whether the gang is dead. A gang with a lost rank is dead, with two exceptions. A loss that may be the
    end of a training that succeeded does not count for a short time (`_unsettled`). A single container that
    restarted in place may be elastic training: its rank is lost once `in_place_grace_s` has passed without
    steps from the new instance."""
    has_succeeded = any(pod.phase is PodPhase.SUCCEEDED for pod in pods)
    lost = [loss for loss in lost if not _unsettled(loss, timing, now, has_succeeded=has_succeeded)]
    if not lost:
        return False
    if len(lost) > 1 or not lost[0].in_place:
        return True
    (only,) = lost
    pod = next(p for p in pods if p.uid == only.pod_uid)
    progress = world.progress(pod)
    goes_on = progress is not None and progress.instance >= only.restarts and makes_steps(progress)
    return not goes_on and not _is_fresh(only, timing.in_place_grace_s, now)


def makes_steps(progress: PodProgress) -> bool:
    return progress.edge in (Edge.STEPPING, Edge.RESUMED)


def lingers(world: World, pod: Pod) -> bool:
    """Whether the pod was told to end, but nobody on its silent node can end it: its rank may be back
    elsewhere."""
    node = world.nodes.get(pod.node)
    return pod.deleting_since is not None and node is not None and not node.ready


def _unsettled(loss: Loss, timing: Timing, now: datetime, *, has_succeeded: bool) -> bool:
    """Whether the loss may be the end of a training that succeeded: the framework deletes the other ranks,
    and ranks that lose a master that has ended well fail by themselves, a moment before the job's status
    shows the end. A missed deletion waits longer, because the job's own change may be missed as well."""
    if loss.code == JOB_FAILED:  # pods may show more soon: they have another watch than the job
        return _is_fresh(loss, timing.in_place_grace_s, now)
    if loss.is_missed:
        return _is_fresh(loss, _MISSED_SETTLE_S, now)
    if loss.code == "deleted":
        return _is_fresh(loss, timing.deleted_settle_s, now)
    return has_succeeded and _is_fresh(loss, timing.in_place_grace_s, now)


def _is_fresh(loss: Loss, within_s: float, now: datetime) -> bool:
    """Whether the loss was less than `within_s` ago. If the time of the loss is unknown, or only a wrong
    clock can have given it, the answer is no: otherwise the wait would never end, or would take hours."""
    if loss.reported_at is None:
        return False
    return -CLOCKS_APART < now - loss.reported_at < timedelta(seconds=within_s)


def stalled_at(world: World, pods: list[Pod]) -> datetime | None:
    """Returns when the last readable rank stalled, if all of them have. Returns None if any rank continues or
    none is readable.

    The agent of a dead node reports nothing any more: its last report does not show that its rank continues.
    """
    latest: datetime | None = None
    for pod in pods:
        node = world.nodes.get(pod.node)
        if node is not None and not node.ready:
            continue
        progress = world.progress(pod)
        if progress is None or progress.first_step is None:
            continue
        if progress.edge is not Edge.STALLED:
            return None
        latest = progress.at if latest is None else max(latest, progress.at)
    return latest
