"""The safety invariant of a gang's stop, a part of invariants.py: one that trains is stopped for no cause
that the truth does not know.

It trains where all its ranks run, none hangs, and their last step is not long ago. Then only broken
hardware under one of them is a cause: at once where it is fatal; at a checkpoint, or after the grace, where
it is degraded and there is a better place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from chaos.cluster.kinds import Object
from chaos.cluster.virtual_runtime import CHECKPOINT_STEPS
from chaos.simulate.lines import Harm
from chaos.simulate.reading import OURS
from chaos.simulate.rooms import RoomChecks
from chaos.simulate.truth import HardwareFault, Life, Truth
from recover.settings import Budgets, Settings, Timing

__all__ = ["StopChecks"]

_VIEW_MAX = timedelta(seconds=180)
"""How old the controller's view of a lost rank may be, and how long its decision may take to be written."""
_CHECKPOINT_STEPS_AGO = 3
_EARLY = timedelta(seconds=7)
"""Kubernetes writes whole seconds, and a node's clock may be some seconds behind."""
_DECISION_MAX = timedelta(seconds=90)
"""A stop that was decided before the brake may still be under way."""
_RELEASE_SEEN = timedelta(seconds=15)
"""A stop may be under way while the controller writes that a person has released the node."""


class StopChecks:
    """`has_health`: whether an agent has ever written of that node."""

    def __init__(
        self,
        truth: Truth,
        rooms: RoomChecks,
        now: Callable[[], datetime],
        has_health: Callable[[str], bool],
    ) -> None:
        self._truth = truth
        self._rooms = rooms
        self._now = now
        self._has_health = has_health

    def _may_be_lost(self, life: Life, resumed_at: datetime | None, now: datetime) -> bool:
        """It has lost a rank since our last start, and the controller may not know that it trains again: its
        view is old, or nobody reads the gang's steps."""
        if life.lost_at is None or (resumed_at is not None and life.lost_at <= resumed_at):
            return False
        is_read = any(self._has_health(node) for node, _ in life.running.values())
        return now - life.lost_at < _VIEW_MAX or not is_read

    def stopped(
        self, job: Object, nodes: list[Object], incidents: list[Object], settings: Settings
    ) -> Iterator[str]:
        """What is wrong with the controller's stop of this gang."""
        life, now = self._truth.lives.get(job["metadata"]["uid"]), self._now()
        if life is None or not life.trains(now):
            return
        if self._may_be_lost(life, self._truth.resumed_at.get(job["metadata"]["uid"]), now):
            return
        by_name = {node["metadata"]["name"]: node for node in nodes}
        harms = [
            (name, fault, since)
            for name, since in life.running.values()
            if (node := by_name.get(name)) is not None
            for fault in self._truth.harms(name, node["status"]["nodeInfo"]["bootID"])
            if fault.harm in (Harm.FATAL, Harm.DEGRADED) and not _is_answered(fault, node, now)
            if fault.told_at >= self._truth.acting_since
        ]
        name = job["metadata"]["name"]
        if any(_brakes(incident, settings.budgets, now) for incident in incidents):
            yield f"{name} was training when it was stopped, although a brake was in force"
        if not harms:
            yield f"{name} was training on sound nodes when it was stopped"
        elif not any(_is_due(fault, since, life, now, settings.timing) for _, fault, since in harms):
            yield f"{name} was stopped for a degraded node, neither at a checkpoint nor after the grace"
        elif all(
            fault.harm is Harm.DEGRADED and self._rooms.places(job, now, without={node}) < life.gang.job.ranks
            for node, fault, _ in harms
        ):
            yield f"{name} was stopped for a degraded node, and there is no better place"


def _brakes(incident: Object, limits: Budgets, now: datetime) -> bool:
    """A brake is in force, and has been for so long that no decision of before it is still under way."""
    spec, status, meta = incident["spec"], incident.get("status", {}), incident["metadata"]
    if (
        spec.get("node")
        or not meta["name"].startswith("fleet-brake")
        or status.get("phase", "Open") != "Open"
    ):
        return False
    ends_at = datetime.fromisoformat(spec["detectedAt"]) + timedelta(seconds=limits.brake_window_s)
    return datetime.fromisoformat(meta["creationTimestamp"]) <= now - _DECISION_MAX and now < ends_at


def _is_answered(fault: HardwareFault, node: Object, now: datetime) -> bool:
    """A person has released the node since, and the controller can know it."""
    released = node["metadata"].get("annotations", {}).get(OURS + "released-at")
    return bool(released) and fault.at <= datetime.fromisoformat(released) <= now - _RELEASE_SEEN


def _is_due(fault: HardwareFault, since: datetime, life: Life, now: datetime, timing: Timing) -> bool:
    if fault.harm is Harm.FATAL:
        return True
    waited_since = max(fault.at, since)
    is_late = now >= waited_since + timedelta(seconds=timing.checkpoint_grace_s) - _EARLY
    training = life.gang.training
    return is_late or training.step % CHECKPOINT_STEPS <= _CHECKPOINT_STEPS_AGO
