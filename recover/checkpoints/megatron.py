"""Checks the tracker file beside `iter_0000040/`, which all formats of Megatron-LM have.

Megatron writes `latest_checkpointed_iteration.txt` when all ranks have saved, and loads the iteration in it.
So a newer iteration counts as never finished, even if all its files are complete. The tracker also identifies
an iteration that is being written over an older one with the same number. An empty tracker is the trace of a
kill between the open and the write of the file: no iteration is unfinished then, but Megatron exits at its
start.
Source: megatron/training/checkpointing.py, core 0.16.
"""

from __future__ import annotations

import re

from recover.checkpoints.folder import DamagedError, Folder

__all__ = ["TRACKER", "check_tracker", "check_tracker_if_any", "is_iteration"]

TRACKER = "latest_checkpointed_iteration.txt"
TRACKER_BYTES_MAX = 1024

_ITERATION = re.compile(r"iter_\d{7,}", re.ASCII)


def is_iteration(name: str) -> bool:
    """Whether a directory has the name that Megatron gives to an iteration."""
    return _ITERATION.fullmatch(name) is not None


def check_tracker_if_any(folder: Folder, step: int) -> None:
    """Does the same as `check_tracker` for a directory that need not be Megatron's."""
    if (
        is_iteration(folder.path.name)
        and folder.read_beside(TRACKER, limit_bytes=TRACKER_BYTES_MAX) is not None
    ):
        check_tracker(folder, step)


def check_tracker(folder: Folder, step: int) -> None:
    """Raises DamagedError if the tracker does not say that this iteration, or a later one, was finished."""
    text = folder.read_beside(TRACKER, limit_bytes=TRACKER_BYTES_MAX)
    if text is None:
        raise DamagedError(f"no {TRACKER} in the folder of the checkpoints, so the save never finished")
    if not text.strip():
        return
    match = re.fullmatch(rb"\s*(\d{1,15})\s*", text)
    if match is None:
        raise DamagedError(f"{TRACKER} contains {text[:40]!r}, which is not an iteration")
    if int(match[1]) < step:
        raise DamagedError(f"{TRACKER} says {int(match[1])}: {step} was never finished")
