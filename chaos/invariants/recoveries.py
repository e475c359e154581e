"""Checks the life of a Recovery: each gang has at most one active Recovery, and no Recovery continues after
its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import gang_uid, is_active, phase
from recover.k8s.kinds import RECOVERIES

__all__ = ["OneRecoveryAtATime"]


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
