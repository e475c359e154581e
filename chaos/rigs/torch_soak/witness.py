"""Reads what the ranks themselves print from their log files, and keeps it after the pods are gone.

The controller's figures are compared with this output, so the witness asks neither agents nor controller.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from chaos.scenarios.faults import rank_pod
from chaos.scenarios.stage import Stage

__all__ = ["Instance", "Witness"]

LOOK_S = 0.02
_STEP = re.compile(r"step (\d+)/")
_SAVE_BEGUN = re.compile(r"checkpoint step-(\d+) begun")
_SAVE_FINISHED = re.compile(r"checkpoint step-(\d+) finished after step (\d+)")


@dataclass
class Instance:
    """One pod of the gang: a rank between one start and its end."""

    rank: int
    uid: str
    log: Path
    read_bytes: int = 0
    first_step: int | None = None
    first_step_at: datetime | None = None
    last_step: int = 0
    saving: int | None = None
    """Step of the save that is in progress."""
    saving_since: datetime | None = None
    save_steps: list[int] = field(default_factory=list)
    """Number of steps that were made during each finished save."""
    save_s: list[float] = field(default_factory=list)

    def line(self, at: datetime, text: str) -> None:
        if found := _STEP.match(text):
            self.last_step = int(found[1])
            if self.first_step is None:
                self.first_step, self.first_step_at = self.last_step, at
        elif found := _SAVE_BEGUN.match(text):
            self.saving, self.saving_since = int(found[1]), at
        elif found := _SAVE_FINISHED.match(text):
            assert self.saving_since is not None
            self.save_steps.append(int(found[2]) - int(found[1]))
            self.save_s.append((at - self.saving_since).total_seconds())
            self.saving = self.saving_since = None


class Witness:
    """`instances` are the instances of one job by pod uid, in the order in which they appeared."""

    def __init__(self, stage: Stage, job: str, ranks: int) -> None:
        self.instances: dict[str, Instance] = {}
        self._stage = stage
        self._job = job
        self._ranks = ranks

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        for rank in range(self._ranks):
            pod = rank_pod(self._stage, self._job, rank)
            if pod is None or not pod["spec"].get("nodeName"):
                continue
            uid = pod["metadata"]["uid"]
            if uid not in self.instances:
                folder = self._stage.cluster.hosts[pod["spec"]["nodeName"]].log_folder(pod)
                self.instances[uid] = Instance(rank, uid, folder / "pytorch" / "0.log")
        for instance in self.instances.values():
            _read_on(instance)

    def current(self, rank: int) -> Instance | None:
        """Returns the rank's newest instance. Returns None if there is none."""
        return next((i for i in reversed(self.instances.values()) if i.rank == rank), None)

    def save_steps_max(self) -> int:
        """Returns the maximum number of steps during one finished save."""
        return max((n for i in self.instances.values() for n in i.save_steps), default=0)

    def save_s(self) -> float:
        """Returns the duration of the shortest finished save so far in seconds."""
        return min((s for i in self.instances.values() for s in i.save_s), default=0.0)


def _read_on(instance: Instance) -> None:
    """Reads the new complete lines. The file disappears with its pod."""
    try:
        with instance.log.open("rb") as file:
            file.seek(instance.read_bytes)
            data = file.read()
    except FileNotFoundError:
        return
    whole = data[: data.rfind(b"\n") + 1]
    instance.read_bytes += len(whole)
    for line in whole.decode("utf-8", "replace").splitlines():
        stamp, _, _, text = line.split(" ", 3)
        instance.line(datetime.fromisoformat(stamp[:26] + "+00:00"), text)
