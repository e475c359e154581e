"""Checks that a gang that trains is stopped only for broken hardware under one of its ranks: at once if the
fault is fatal; at a checkpoint or after the grace if the node is degraded and a better place is free.

A gang trains if all its ranks run, none hangs, and their last step is recent.

Harm if missed: a healthy job is stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.lines import Harm
from chaos.simulated.reading import released_at
from chaos.simulated.truth import HardwareFault, Life
from recover.policy.settings import Budgets, Timing

__all__ = ["StoppedAgainForItsOwn", "StopsForACause"]

_LOSS_SEEN = timedelta(seconds=180)
"""Maximum age of the controller's view of a lost rank, plus the time until its decision is written."""
_EARLY = timedelta(seconds=7)
"""Tolerance of a wait: Kubernetes writes whole seconds, and a node's clock may be some seconds behind."""
_DECISION_MAX = timedelta(seconds=90)
"""Maximum time of a decision. A stop that was decided before the brake may still be in progress."""
_RELEASE_SEEN = timedelta(seconds=15)
"""Maximum time of a stop that is still in progress while the controller writes that a person has released the
node."""


class StopsForACause(Check):
    def violations(self, write: Write) -> Iterator[str]:
        if not write.stops_gang:
            return
        job, now, facts = write.body, self.facts.store.now(), self.facts
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        life = facts.truth.lives.get(uid)
        if life is None or not life.trains(now):
            return
        if self._may_be_lost(life, facts.truth.resumed_at.get(uid), now):
            return
        harms = list(self._harms(life, now))
        if any(_brakes(incident, facts.settings.budgets, now) for incident in facts.incidents()):
            yield f"{name} was training when it was stopped, although a brake was in force"
        if not harms:
            yield f"{name} was training on sound nodes when it was stopped"
        elif not any(_is_due(fault, since, life, now, facts.settings.timing) for _, fault, since in harms):
            yield (
                f"{name} was stopped for a degraded node, before a checkpoint and before the end of "
                "the grace period"
            )
        elif all(
            fault.harm is Harm.DEGRADED and facts.places.count(job, now, without={node}) < life.gang.job.ranks
            for node, fault, _ in harms
        ):
            yield f"{name} was stopped for a degraded node, although no better place was free"

    def _may_be_lost(self, life: Life, resumed_at: datetime | None, now: datetime) -> bool:
        """Whether the gang has lost a rank since the controller last started it, and the controller may not
        know that the gang trains again: its view is old, or no agent reads the gang's steps."""
        if life.lost_at is None or (resumed_at is not None and life.lost_at <= resumed_at):
            return False
        is_read = any(self.facts.has_agent_written(node) for node, _ in life.running.values())
        return now - life.lost_at < _LOSS_SEEN or not is_read

    def _harms(self, life: Life, now: datetime) -> Iterator[tuple[str, HardwareFault, datetime]]:
        """Yields each fault that may be a cause to stop: the node, the fault, and since when the rank has run
        there."""
        truth, by_name = self.facts.truth, {node["metadata"]["name"]: node for node in self.facts.nodes()}
        for name, since in life.running.values():
            node = by_name.get(name)
            if node is None:
                continue
            for fault in truth.harms(name, node["status"]["nodeInfo"]["bootID"]):
                may_stop = fault.harm in (Harm.FATAL, Harm.DEGRADED) and fault.told_at >= truth.acting_since
                if may_stop and not _is_answered(fault, node, now):
                    yield name, fault, since


class StoppedAgainForItsOwn(Check):
    """A gang that a recovery has started, and of which all ranks run, is not stopped once more for a node on
    which no rank of the gang runs.

    Harm if missed: a gang that has just left a broken node is stopped because that node is broken.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.stops_gang:
            return
        job, uid = write.body, write.body["metadata"]["uid"]
        life, started_at = self.facts.truth.lives.get(uid), self.facts.truth.resumed_at.get(uid)
        if life is None or started_at is None or len(life.running) < life.gang.job.ranks:
            return
        if life.lost_at is not None and life.lost_at > started_at:
            return
        status = self.facts.recovery_of(job).get("status", {})
        attempt, used = status.get("attempt", 1), {node for node, _ in life.running.values()}
        causes = [cause for cause in status.get("causes", []) if cause["attempt"] == attempt > 1]
        elsewhere = [cause["node"] for cause in causes if cause.get("blame") == "node"]
        if causes and len(elsewhere) == len(causes) and not used & set(elsewhere):
            nodes = ", ".join(sorted(set(elsewhere)))
            yield (
                f"{job['metadata']['name']} was stopped again for {nodes}, although none of its ranks "
                "runs there"
            )


def _brakes(incident: Object, limits: Budgets, now: datetime) -> bool:
    """Whether a brake is engaged, and has been for so long that no decision from before it is still in
    progress."""
    spec, status, meta = incident["spec"], incident.get("status", {}), incident["metadata"]
    if (
        spec.get("node")
        or meta["name"].rpartition("-")[0] != f"fleet-brake-{spec['fault']}"
        or status.get("phase", "Open") != "Open"
    ):
        return False
    ends_at = datetime.fromisoformat(spec["detectedAt"]) + timedelta(seconds=limits.brake_window_s)
    return datetime.fromisoformat(meta["creationTimestamp"]) <= now - _DECISION_MAX and now < ends_at


def _is_answered(fault: HardwareFault, node: Object, now: datetime) -> bool:
    """Whether a quarantine of the node has ended since the fault, and the controller can know it."""
    released = released_at(node)
    return released is not None and fault.at <= released <= now - _RELEASE_SEEN


def _is_due(fault: HardwareFault, since: datetime, life: Life, now: datetime, timing: Timing) -> bool:
    """Whether the fault justifies a stop now. A fatal fault does at once; a degraded node at a checkpoint or
    after the grace."""
    if fault.harm is Harm.FATAL:
        return True
    waited_since = max(fault.at, since)
    is_late = now >= waited_since + timedelta(seconds=timing.checkpoint_grace_s) - _EARLY
    return is_late or (life.saved_at is not None and life.saved_at >= waited_since)
