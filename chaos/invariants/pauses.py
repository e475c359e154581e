"""Checks that Rekindle begins nothing while people have paused it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import SPARE_FOR, our_taint, spare_taint
from recover.api import Phase
from recover.k8s.kinds import JOBS, NODES, RECOVERIES

__all__ = ["NothingBeginsWhilePaused"]

_PAUSE_SEEN = timedelta(seconds=15)
"""Maximum delay after which the controller sees the pause if its watches lag."""
_STOPPED = frozenset({Phase.FENCING, Phase.CHOOSING, Phase.RESUMING, Phase.BLOCKED})


class NothingBeginsWhilePaused(Check):
    """No recovery begins, no gang that trains is stopped, no node gets Rekindle's taint or a cordon, no step
    of a repair begins, and no spare is changed. A spare may be used for a gang that a recovery has already
    stopped, because that gang must run again.

    Harm if missed: people pause Rekindle and work on the cluster, and Rekindle cordons or stops what they
    work on.
    """

    def violations(self, write: Write) -> Iterator[str]:
        since, until = self.facts.truth.paused_since, self.facts.truth.paused_until
        if not write.by_controller or since is None or write.at < since + _PAUSE_SEEN:
            return
        if until is not None and write.at >= until:
            return
        name = write.body["metadata"]["name"]
        if write.begins_recovery:
            yield f"a recovery of {name} was begun in a pause"
        if write.stops_gang:
            life = self.facts.truth.lives.get(write.body["metadata"]["uid"])
            if life is not None and life.trains(write.at):
                yield f"{name} was stopped in a pause"
        if write.of_repair and write.resource == JOBS and write.old is None:
            yield f"step {name} of a repair was begun in a pause"
        if write.resource == NODES and write.old is not None and write.new is not None:
            yield from self._of_node(name, write.old, write.new)

    def _of_node(self, name: str, old: Object, new: Object) -> Iterator[str]:
        if our_taint(new) not in (None, our_taint(old)):
            yield f"{name} was tainted in a pause"
        if new["spec"].get("unschedulable") and not old["spec"].get("unschedulable"):
            yield f"{name} was cordoned in a pause"
        is_let_in = SPARE_FOR in new["metadata"].get("annotations", {})
        if spare_taint(old) != spare_taint(new) and not (is_let_in and self._has_stopped_gang()):
            yield f"the controller changed the spare {name} in a pause"

    def _has_stopped_gang(self) -> bool:
        recoveries = self.facts.store.objects(RECOVERIES)
        return any(recovery.get("status", {}).get("phase") in _STOPPED for recovery in recoveries)
