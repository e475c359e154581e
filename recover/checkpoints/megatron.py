"""What the two formats of Megatron-LM share: the tracker file beside `iter_0000040/`.

`latest_checkpointed_iteration.txt` is written when all ranks have saved. Megatron loads what it says, so a
newer iteration counts as never finished, even where all its files are whole. The tracker also
tells an iteration apart that is being written over an older one of the same number.
Source: megatron/training/checkpointing.py, core 0.16.
"""

from __future__ import annotations

import re

from recover.checkpoints.folder import DamagedError, Folder

__all__ = ["check_tracker"]

TRACKER = "latest_checkpointed_iteration.txt"
TRACKER_BYTES_MAX = 1024


def check_tracker(folder: Folder, step: int) -> None:
    """Raises DamagedError when the tracker does not say that this iteration, or a later one, was finished."""
    text = folder.read_beside(TRACKER, limit_bytes=TRACKER_BYTES_MAX)
    if text is None:
        raise DamagedError(f"no {TRACKER} in the folder of the checkpoints, so the save never finished")
    match = re.fullmatch(rb"\s*(\d{1,15})\s*", text)
    if match is None:
        raise DamagedError(f"{TRACKER} contains {text[:40]!r}, which is not an iteration")
    if int(match[1]) < step:
        raise DamagedError(f"{TRACKER} says {int(match[1])}: {step} was never finished")
