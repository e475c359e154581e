"""Checks the tracker file beside `iter_0000040/`, which both formats of Megatron-LM have.

Megatron writes `latest_checkpointed_iteration.txt` when all ranks have saved, and loads the iteration in it.
So a newer iteration counts as never finished, even if all its files are complete. The tracker also identifies
an iteration that is being written over an older one with the same number.
Source: megatron/training/checkpointing.py, core 0.16.
"""

from __future__ import annotations

import re

from recover.checkpoints.folder import DamagedError, Folder

__all__ = ["check_tracker"]

TRACKER = "latest_checkpointed_iteration.txt"
TRACKER_BYTES_MAX = 1024


def check_tracker(folder: Folder, step: int) -> None:
    """Raises DamagedError if the tracker does not say that this iteration, or a later one, was finished."""
    text = folder.read_beside(TRACKER, limit_bytes=TRACKER_BYTES_MAX)
    if text is None:
        raise DamagedError(f"no {TRACKER} in the folder of the checkpoints, so the save never finished")
    match = re.fullmatch(rb"\s*(\d{1,15})\s*", text)
    if match is None:
        raise DamagedError(f"{TRACKER} contains {text[:40]!r}, which is not an iteration")
    if int(match[1]) < step:
        raise DamagedError(f"{TRACKER} says {int(match[1])}: {step} was never finished")
