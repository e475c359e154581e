"""Checks that the controller gives up a job after as many failures of its program as the limit allows,
neither earlier nor later."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.reading import gang_uid, is_active
from recover.api.reasons import Reason
from recover.k8s.kinds import RECOVERIES

__all__ = ["CrashLoopsEnd", "GivenUpAtTheLimit"]

_NOT_OF_THE_PROGRAM = ("deleted", "made-way")
_UNCOUNTED = 2
"""Tolerance: number of starts that the controller may leave uncounted, because a rank failed before all ranks
ran."""


class GivenUpAtTheLimit(Check):
    """A recovery ends as a crash loop only once the program itself has failed more often than the limit.

    Harm if missed: a job that would train again is left dead.
    """

    def violations(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if write.resource != RECOVERIES or old is None or new is None or not is_active(old):
            return
        if new.get("status", {}).get("reason") != Reason.CRASH_LOOP:
            return
        life, causes = self.facts.truth.lives.get(gang_uid(new)), new["status"].get("causes", [])
        if life is None or not causes:
            return
        limit, failures = (
            self.facts.settings.budgets.attempts_per_cause_max,
            life.gang.failures_from_one_checkpoint,
        )
        is_of_program = not causes[-1].get("node") and causes[-1].get("error") not in _NOT_OF_THE_PROGRAM
        if is_of_program and failures <= limit:
            yield (
                f"the recovery was given up after {failures} failures of the program; the limit is "
                f"{limit} restarts"
            )
        yield from self._of_nodes(causes, limit)

    def _of_nodes(self, causes: list[Object], limit: int) -> Iterator[str]:
        """Checks broken nodes: each broken node is a separate cause. A restart counts if it shares one of its
        causes with the last, so the number of restarts is at most the sum over the nodes."""
        last = [cause for cause in causes if cause["attempt"] == causes[-1]["attempt"]]
        nodes = {cause.get("node", "") if cause.get("blame") == "node" else "" for cause in last}
        broke = {node: len(self.facts.truth.faults.get(node, [])) for node in sorted(nodes)}
        if all(broke.values()) and sum(broke.values()) <= limit:
            yield (
                f"given up for {', '.join(broke)}, which broke {sum(broke.values())} time(s) together; the "
                f"limit is {limit} restarts"
            )


class CrashLoopsEnd(Check):
    """A gang whose program cannot start is not started without end. A new step resets the count of its
    restarts.

    Harm if missed: a broken program uses its GPUs without end.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._in_vain: dict[str, dict[int, int]] = {}
        """Starts in a row since the program cannot start: uid of a job -> number of crashes before the start
        -> furthest step at that time. A start that ended by another cause does not count, because the number
        of crashes is then the same at the next start."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.starts_gang:
            return
        uid = write.body["metadata"]["uid"]
        life = self.facts.truth.lives.get(uid)
        if life is None or not life.gang.crashes_at_start:
            self._in_vain.pop(uid, None)
            return
        furthest, crashed = life.gang.training.furthest, life.gang.crashed
        known = self._in_vain.get(uid, {})
        before = {number: step for number, step in known.items() if step == furthest and number < crashed}
        self._in_vain[uid] = {**before, crashed: furthest}
        if len(before) > self.facts.settings.budgets.attempts_per_cause_max + _UNCOUNTED:
            yield f"the gang was started once more, although {len(before)} starts in a row had failed"
