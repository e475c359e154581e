"""Checks the life of a Recovery: each gang has at most one active Recovery, no Recovery continues after its
end, and none ends well with a rank on a node that was quarantined before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import (
    gang_uid,
    is_active,
    is_closed,
    is_cordoned,
    lives,
    node_of,
    note,
    owner,
    phase,
    tolerates_all,
)
from recover.k8s.kinds import PODS, RECOVERIES

__all__ = ["EndsOffClosedNodes", "OneRecoveryAtATime"]

_AGAIN_MAX = 5
"""Number of uncounted starts after which the gang may stay where it is."""
_BOUND = timedelta(seconds=15)
"""Least age of a rank that the controller must have seen on its node."""


class OneRecoveryAtATime(Check):
    """Harm if missed: two recoveries stop and start one gang against each other."""

    def violations(self, write: Write) -> Iterator[str]:
        if write.resource != RECOVERIES:
            return
        recoveries = self.facts.store.objects(RECOVERIES)
        active = Counter(gang_uid(recovery) for recovery in recoveries if is_active(recovery))
        if any(count > 1 for count in active.values()):
            yield "two active recoveries of one gang"
        old, new = write.old, write.new
        if old is not None and new is not None and not is_active(old) and phase(new) != phase(old):
            yield f"a recovery that had ended as {phase(old)} became {phase(new)}"


class EndsOffClosedNodes(Check):
    """A recovery does not succeed while a rank is on a node that was quarantined before the rank was created,
    and whose fault is known and open, unless the gang has been placed again several times.

    Harm if missed: the scheduler, whose view of the nodes is late, puts a rank on the dead GPU that the gang
    has just left, and the recovery is reported as a success.
    """

    def violations(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if write.resource != RECOVERIES or old is None or new is None or phase(new) != "Succeeded":
            return
        status = new["status"]
        is_over = status.get("reason") == "JobCompleted" or len(status.get("uncounted", ())) >= _AGAIN_MAX
        if not is_active(old) or is_over:
            return
        for pod in self.facts.store.objects(PODS):
            if owner(pod) == gang_uid(new) and lives(pod) and not tolerates_all({"spec": {"template": pod}}):
                yield from self._on_closed_node(pod, write.at)

    def _on_closed_node(self, pod: Object, at: datetime) -> Iterator[str]:
        node = self.facts.node(node_of(pod))
        created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        if node is None or not (is_closed(node) and is_cordoned(node)) or created > at - _BOUND:
            return
        taken = note(node)
        if not taken.get("cordoned") or created < datetime.fromisoformat(taken["at"]):
            return
        for code in self.facts.reports.known(node, self.facts.incidents(), at):
            name = pod["metadata"]["name"]
            yield f"a recovery succeeded with {name} on {node_of(pod)}, already quarantined for {code}"
