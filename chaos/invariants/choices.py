"""A gang starts from a complete checkpoint, and from an older one only where the newer one does not load."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.invariants.base import Check
from chaos.invariants.write import Write

__all__ = ["NewestCheckpointThatLoads"]

_ATTEMPTS_MIN = 2
"""One failed attempt does not prove that a checkpoint does not load, unless the loader says so."""

_IN_VAIN = 3
"""Starts from one checkpoint by which anybody knows that it does not load."""


class NewestCheckpointThatLoads(Check):
    """A gang does not start again and again from a checkpoint that does not load.
    A complete newer checkpoint is passed over only once it was tried: again and again, or once where it
    does not load. Where the controller has verified no checkpoint, the framework chooses.

    Harm if missed: a gang that cannot load its checkpoint never trains again, or hours of training are lost.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.starts_gang:
            return
        choice = self.facts.recovery_of(write.body).get("status", {}).get("checkpoint") or {}
        life = self.facts.truth.lives.get(write.body["metadata"]["uid"])
        if life is None or not choice.get("verified"):
            return
        checkpoints, chosen = life.gang.training.checkpoints, choice["step"]
        if not checkpoints.complete.get(chosen):
            yield f"started from step {chosen}, whose checkpoint is not complete"
        elif not checkpoints.loads(chosen) and checkpoints.tried[chosen] >= _IN_VAIN * life.gang.job.ranks:
            yield f"started from step {chosen} again and again, whose checkpoint does not load"
        newer = [step for step, is_complete in checkpoints.complete.items() if is_complete and step > chosen]
        untried = [step for step in newer if not checkpoints.tried[step]]
        once = [step for step in newer if checkpoints.tried[step] < _ATTEMPTS_MIN * life.gang.job.ranks]
        good = [step for step in once if checkpoints.loads(step)]
        if untried:
            yield f"started from step {chosen}, though that of step {max(untried)} is complete and untried"
        elif good:
            yield f"started from step {chosen}, though that of step {max(good)} loads and was tried only once"
