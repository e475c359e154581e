"""What really happened in a simulation, whatever anybody has seen of it: the checks compare with this."""

from __future__ import annotations

from datetime import datetime

import msgspec

from chaos.cluster.containers import ContainerRun
from chaos.cluster.controllers.base import controller_uid

__all__ = ["HardwareFault", "Truth"]


class HardwareFault(msgspec.Struct, frozen=True):
    at: datetime
    boot_id: str
    cordons: bool


class Truth:
    """`running`: gang uid -> pod uids of which a container runs, on whatever machine."""

    def __init__(self) -> None:
        self.running: dict[str, set[str]] = {}
        self.faults: dict[str, list[HardwareFault]] = {}

    def started(self, run: ContainerRun) -> None:
        self.running.setdefault(controller_uid(run.pod), set()).add(run.uid)

    def ended(self, run: ContainerRun) -> None:
        self.running.get(controller_uid(run.pod), set()).discard(run.uid)

    def broke(self, node: str, fault: HardwareFault) -> None:
        self.faults.setdefault(node, []).append(fault)
