"""Checks that a gang starts from a complete checkpoint, and from an older one only if the newer one does not
load."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.jobs import Gang

__all__ = ["NewestCheckpointThatLoads"]

_ATTEMPTS_MIN = 2
"""Number of failed attempts that prove that a checkpoint does not load. One attempt proves it only if the
loader says so."""


class NewestCheckpointThatLoads(Check):
    """A newer complete checkpoint is passed over only after it was tried: repeatedly, or once if it does not
    load. A checkpoint that does not load is not tried without end. If the controller has verified no
    checkpoint, the framework chooses.

    Harm if missed: a gang that cannot load its checkpoint never trains again, or hours of training are lost.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._tried: dict[tuple[str, int], list[int]] = {}
        """For each start of a job from a step: how many ranks had begun from that checkpoint before, since
        the gang last made a new step. The keys are the uid of the job and the step."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.starts_gang:
            return
        choice = self.facts.recovery_of(write.body).get("status", {}).get("checkpoint") or {}
        life = self.facts.truth.lives.get(write.body["metadata"]["uid"])
        if life is None or not choice.get("verified"):
            return
        checkpoints, chosen = life.gang.training.checkpoints, choice["step"]
        if not checkpoints.complete.get(chosen):
            yield f"a gang was started from step {chosen}, although this checkpoint is not complete"
        elif self._in_vain(write.body["metadata"]["uid"], chosen, life.gang) >= _ATTEMPTS_MIN:
            yield f"a gang was started repeatedly from step {chosen}, although this checkpoint does not load"
        newer = [step for step, is_complete in checkpoints.complete.items() if is_complete and step > chosen]
        untried = [step for step in newer if not checkpoints.tried[step]]
        once = [step for step in newer if checkpoints.tried[step] < _ATTEMPTS_MIN * life.gang.job.ranks]
        good = [step for step in once if checkpoints.loads(step)]
        if untried:
            yield (
                f"a gang was started from step {chosen}, although the checkpoint of step "
                f"{max(untried)} is complete and untried"
            )
        elif good:
            yield (
                f"a gang was started from step {chosen}, although the checkpoint of step {max(good)} "
                "loads and was tried only once"
            )

    def _in_vain(self, uid: str, step: int, gang: Gang) -> int:
        """Returns the number of earlier starts from that step that failed, each with all ranks."""
        checkpoints, tried = gang.training.checkpoints, self._tried.setdefault((uid, step), [])
        if checkpoints.loads(step) or checkpoints.tried[step] < (tried or [0])[-1]:
            tried.clear()
        tried.append(checkpoints.tried[step])
        return sum(after - before >= gang.job.ranks for before, after in pairwise(tried))
