"""The safety invariant of a chosen checkpoint, a part of invariants.py: it is complete, and no newer one
that is complete was passed over, unless it does not load or was tried again and again.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.cluster.kinds import Object
from chaos.simulate.truth import Truth

__all__ = ["ChoiceChecks"]

_ATTEMPTS_MIN = 2
"""One attempt that fails by itself says nothing of its checkpoint, unless the loader does."""


class ChoiceChecks:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def started(self, job: Object, recovery: Object) -> Iterator[str]:
        """What is wrong with the controller's start of this gang. Where nothing was verified the framework
        chooses."""
        life = self._truth.lives.get(job["metadata"]["uid"])
        choice = recovery.get("status", {}).get("checkpoint") or {}
        if life is None or not choice.get("verified"):
            return
        checkpoints, chosen = life.gang.training.checkpoints, choice["step"]
        if not checkpoints.complete.get(chosen):
            yield f"started from step {chosen}, whose checkpoint is not complete"
        newer = [step for step, is_complete in checkpoints.complete.items() if is_complete and step > chosen]
        untried = [step for step in newer if not checkpoints.tried[step]]
        once = [step for step in newer if checkpoints.tried[step] < _ATTEMPTS_MIN * life.gang.job.ranks]
        good = [step for step in once if checkpoints.loads(step)]
        if untried:
            yield f"started from step {chosen}, though that of step {max(untried)} is complete and untried"
        elif good:
            yield f"started from step {chosen}, though that of step {max(good)} loads and was tried only once"
