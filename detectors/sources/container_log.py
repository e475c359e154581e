"""Holds one container instance and its open log, and defines the sink that takes what pod_logs.py reads."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Protocol

from detectors.rules.facts import PodRef
from detectors.service.settings import Logs
from detectors.sources.cri import HEAD_BYTES_MAX, Joiner
from detectors.sources.growing_file import GrowingFile

__all__ = ["Container", "PodLogSink"]


class PodLogSink(Protocol):
    def log_line(self, pod: PodRef, text: str, at: datetime) -> None: ...

    def pod_ended(self, pod: PodRef, at: datetime) -> None: ...

    def pod_removed(self, pod: PodRef) -> None: ...

    def pod_left(self, pod: PodRef) -> None:
        """Records that the container is no longer followed, although it runs: others need the room."""

    def is_silent(self, pod: PodRef) -> bool:
        """Whether nothing was published of this container."""

    def is_open(self, pod: PodRef) -> bool:
        """Whether an earlier run of the agent published this container as not ended."""

    def scanned(self, left_out: frozenset[PodRef]) -> None:
        """Records that all logs of the node have been found; the logs in `left_out` are not followed."""

    def pods_changed(self) -> None:
        """Records that the log folder of a pod has come or gone, also in an excluded namespace."""

    def covered(self, why: str, left_out: frozenset[str] = frozenset()) -> None:
        """Records that all logs are read, or all but some of the pods with these uids: `why` gives the
        reason."""

    def blind(self, why: str) -> None: ...


class Container:
    def __init__(self, ref: PodRef, folder: Path, settings: Logs) -> None:
        self.ref = ref
        self.folder = folder
        line_bytes_max = settings.line_bytes_max + HEAD_BYTES_MAX
        self.file = GrowingFile(folder / f"{ref.instance}.log", line_bytes_max=line_bytes_max)
        self.joiner = Joiner(settings.line_bytes_max)
        self.cgroup: Path | None = None
        self.looked = 0
        """Number of times that the end was checked by timer."""
        self.ended = False
        self.timer: asyncio.TimerHandle | None = None
        self.waits = False
        """Whether the container waits for its turn."""
        self.read_at_s = 0.0
        self.line_at: datetime | None = None
        """Time of the last line that was read, as the runtime dated it."""
        self.unreadable = ""
        """Reason why its log cannot be read; empty if it can."""

    def close(self) -> None:
        self.file.close()
        if self.timer is not None:
            self.timer.cancel()
