"""The ranks of one simulated gang: they step together, save checkpoints, and load one when they start. A rank
fails if its checkpoint does not load, and hangs if a story says so.

Checkpoints are kept in memory, and laid out as files when a scan reads them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chaos.cluster.containers import ContainerRun, Exit
from chaos.cluster.virtual_runtime import CHECKPOINT_STEPS, Collective

__all__ = ["MARKER", "SAVED", "Checkpoints", "Training"]

MARKER = "DONE"
"""Name of the file that marks a complete checkpoint, as the job's annotation says."""
SAVED = "successfully saved checkpoint from iteration"
"""Beginning of the line that a rank prints once a checkpoint is complete."""
KEPT = 6
"""Number of checkpoints that the trainer keeps. It removes older ones."""
NOT_LOADED = "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"


class Checkpoints:
    """The truth about the gang's volume. A damaged checkpoint looks complete and does not load."""

    def __init__(self) -> None:
        self.complete: dict[int, bool] = {}
        self.damaged: set[int] = set()
        self.tried: Counter[int] = Counter()
        """Number of ranks that began from each checkpoint since the gang last made a new step."""

    @property
    def newest(self) -> int:
        """Step of the newest complete checkpoint; 0 if there is none."""
        return max((step for step, is_complete in self.complete.items() if is_complete), default=0)

    def begin(self, step: int) -> None:
        self.complete[step] = False
        self.damaged.discard(step)
        for old in sorted(self.complete)[:-KEPT]:
            del self.complete[old]

    def finish(self, step: int) -> None:
        if step in self.complete:
            self.complete[step] = True

    def loads(self, step: int) -> bool:
        return step == 0 or (self.complete.get(step, False) and step not in self.damaged)

    def lay_out(self, folder: Path) -> None:
        """Creates the files that a scan of the volume finds."""
        for step, is_complete in self.complete.items():
            (folder / f"step-{step}").mkdir(parents=True)
            if is_complete:
                (folder / f"step-{step}" / MARKER).write_bytes(b"1")


class Training:
    """One gang. It starts at REKINDLE_RESUME_STEP if that is set, and otherwise at its newest complete
    checkpoint. A checkpoint is complete once all ranks have made its step. With `tells_saves` the ranks' logs
    report each complete checkpoint. With `rendezvous_s` ranks give up if they wait longer than that for their
    peers to start."""

    def __init__(
        self,
        ranks: int,
        *,
        steps: int,
        step_s: float,
        start_s: float,
        rendezvous_s: float,
        tells_saves: bool = False,
    ) -> None:
        self.checkpoints = Checkpoints()
        self.step = 0
        self.furthest = 0
        self.hanging: set[str] = set()
        self._steps = steps
        self._step_s = step_s
        self._start_s = start_s
        self._rendezvous_s = rendezvous_s or None
        self._tells_saves = tells_saves
        self._collective = Collective(ranks)
        self._gave_up: set[str] = set()

    def gave_up(self, uid: str) -> bool:
        """Whether that rank ended because its peers did not come, which is no failure of its own."""
        return uid in self._gave_up

    def begins_at(self, run: ContainerRun) -> int:
        """Returns the step at which a rank that starts now begins."""
        asked = run.environment.get("REKINDLE_RESUME_STEP", "")
        step = int(asked) if asked else self.checkpoints.newest
        self.checkpoints.tried[step] += 1
        return step

    async def run(self, run: ContainerRun, step: int, say: Callable[[str], None]) -> Exit:
        await asyncio.sleep(self._start_s)
        if not self.checkpoints.loads(step):
            say(NOT_LOADED)
            return Exit(1)
        say(f"starting at step {step}")
        try:
            async with asyncio.timeout(self._rendezvous_s):
                await self._collective.all_at(step, run.uid)
        except TimeoutError:
            self._gave_up.add(run.uid)
            say("torch.distributed.DistStoreError: Timed out waiting for clients")
            return Exit(1)
        return await self._steps_from(step, run.uid, say)

    async def _steps_from(self, step: int, uid: str, say: Callable[[str], None]) -> Exit:
        while step < self._steps:
            await asyncio.sleep(self._step_s)
            step += 1
            say(f"step {step}")
            self._stepped(step)
            if uid in self.hanging:
                await asyncio.Event().wait()
            await self._collective.all_at(step, uid)
            if step % CHECKPOINT_STEPS == 0:
                self.checkpoints.finish(step)
                if self._tells_saves:
                    say(f"{SAVED} {step} to /checkpoints")
        return Exit(0)

    def _stepped(self, step: int) -> None:
        self.step = step
        if step > self.furthest:
            self.furthest = step
            self.checkpoints.tried.clear()
        if step % CHECKPOINT_STEPS == 0 and not self.checkpoints.loads(step):
            self.checkpoints.begin(step)
