"""Recognises gangs that train on although ranks were lost, because their framework has replaced the ranks or
does without them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from recover.diagnose.diagnosis import Loss
from recover.diagnose.first_step import is_read
from recover.diagnose.ranks import lingers, makes_steps
from recover.model import Gang, Pod, PodPhase, World
from recover.policy.settings import Timing

__all__ = ["trains_on", "trains_without"]


def trains_on(world: World, gang: Gang, pods: list[Pod], lost: list[Loss], timing: Timing) -> bool:
    """Whether all lost ranks are back and have made steps since: the framework has repaired the gang by
    itself, which may happen if nobody has enabled automatic recovery. Only ranks that restarted in place or
    were created again can be back."""
    if not lost:
        return False
    present = {pod.uid: pod for pod in pods if not pod.ended and not lingers(world, pod)}
    gone = [loss for loss in lost if not loss.in_place]
    if any(loss.pod_uid in present for loss in gone):
        return False
    back = _made_for(gone, present.values())
    done = sum(1 for pod in pods if pod.phase is PodPhase.SUCCEEDED)
    if len(back) < _places(gone) or (gone and len(present) + done < gang.size):
        return False
    by_uid = {pod.uid: pod for pod in pods}
    told = [(p, 0) for p in back] + [(by_uid[o.pod_uid], o.restarts) for o in lost if o.in_place]
    read = [(p, restarts) for pod, restarts in told if (p := world.progress(pod)) is not None]
    # The log of an earlier instance that has shown no step proves nothing about the instance that runs now.
    read = [(p, restarts) for p, restarts in read if p.instance >= restarts or p.first_step is not None]
    if not all(makes_steps(progress) and progress.instance >= restarts for progress, restarts in read):
        return False
    after = max(_lost_after(loss) for loss in lost) + timedelta(seconds=timing.in_place_grace_s)
    return any((progress.first_step_at or progress.at) > after for progress, _ in read)


def trains_without(world: World, gang: Gang, pods: list[Pod], lost: list[Loss], now: datetime) -> bool:
    """Whether an elastic gang has lost no more ranks than it may lack, and another rank makes steps: its
    framework continues with the other ranks, and creates the lost ranks again. This counts only if an agent
    reads those steps: the agent then sees the stall if the others wait for the lost ranks in vain."""
    if not lost or _places(lost) > gang.may_lack:
        return False
    uids = {loss.pod_uid for loss in lost}
    running = [pod for pod in pods if pod.phase is PodPhase.RUNNING and not lingers(world, pod)]
    others = [pod for pod in running if pod.uid not in uids]
    if len(others) < gang.size - gang.may_lack:
        return False
    read = [world.progress(pod) for pod in others if is_read(world, pod, now)]
    return any(progress is not None and makes_steps(progress) for progress in read)


def _made_for(gone: list[Loss], present: Iterable[Pod]) -> list[Pod]:
    """Returns the pods that replaced the lost pods: created after the first loss, and younger than all lost
    pods, because the clock that dates a loss may be behind."""
    if not gone:
        return []
    lost_at = min(_lost_after(loss) for loss in gone)
    born_at = max((loss.created for loss in gone if loss.created is not None), default=None)
    made = ((pod, pod.created) for pod in present)
    return [p for p, at in made if at is not None and at >= lost_at and (born_at is None or at > born_at)]


def _lost_after(loss: Loss) -> datetime:
    """Returns when the rank was lost, or the earliest possible time if nobody knows."""
    return loss.not_before or loss.at


def _places(gone: list[Loss]) -> int:
    """Returns how many different ranks the lost pods stand for. A pod that was created after the loss of
    another pod replaced that pod, so both are the same rank."""
    first = min((loss.at for loss in gone), default=None)
    return sum(1 for loss in gone if loss.created is None or first is None or loss.created < first)
