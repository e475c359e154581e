"""Names the parts of the controller with which each loop works: it reads a World, executes a plan, and counts
what happens."""

from __future__ import annotations

import msgspec

from recover.kube.clock import Clock
from recover.model import World
from recover.runtime.execute import Executor
from recover.runtime.mode_keeper import ModeKeeper
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics

__all__ = ["LoopParts"]


class LoopParts(msgspec.Struct, frozen=True):
    observer: Observer
    executor: Executor
    modes: ModeKeeper
    metrics: Metrics
    clock: Clock

    def world(self) -> World:
        """Returns the World of this moment. The quarantines and starts that are being written count in it."""
        executor = self.executor
        return self.observer.world(self.modes.now(), executor.being_quarantined, executor.being_started)
