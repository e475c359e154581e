"""The safety invariant of a crash loop, a part of invariants.py: a job is given up only after its program has
failed as often as the limit allows, and a program that cannot start is given up.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.cluster.kinds import Object
from chaos.simulate.reading import gang_uid
from chaos.simulate.truth import Truth
from recover.settings import Budgets

__all__ = ["LoopChecks"]

_NOT_OF_THE_PROGRAM = ("deleted", "made-way")
_UNCOUNTED = 2
"""Starts in which not all ranks ran before one failed."""


class LoopChecks:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._in_vain: dict[str, list[int]] = {}
        """Uid of a job -> the furthest steps at its starts in a row, while its program could not start."""

    def given_up(self, recovery: Object, limits: Budgets) -> Iterator[str]:
        """What is wrong with this end as a crash loop."""
        life, causes = self._truth.lives.get(gang_uid(recovery)), recovery["status"].get("causes", [])
        if life is None or not causes:
            return
        is_of_program = not causes[-1].get("node") and causes[-1].get("error") not in _NOT_OF_THE_PROGRAM
        if is_of_program and life.gang.failures_from_one_checkpoint <= limits.attempts_per_cause_max:
            yield (
                f"given up after {life.gang.failures_from_one_checkpoint} failures of the program, "
                f"the limit is {limits.attempts_per_cause_max} restarts"
            )

    def started(self, job: Object, limits: Budgets) -> Iterator[str]:
        """What is wrong with the controller's start of this gang."""
        uid = job["metadata"]["uid"]
        life = self._truth.lives.get(uid)
        if life is None or not life.gang.crashes_at_start:
            self._in_vain.pop(uid, None)
            return
        before = [at for at in self._in_vain.get(uid, []) if at == life.gang.training.furthest]
        self._in_vain[uid] = [*before, life.gang.training.furthest]
        if len(before) > limits.attempts_per_cause_max + _UNCOUNTED:
            yield f"started once more, although {len(before)} starts in a row were in vain"
