"""Whether the lines that tell of a training's steps are held back on their way to us. Pure; folds/pods.py
holds one for each container.

A progress bar stands in a line that goes on, of which a container runtime tells when it ends, or has 16 KiB:
many steps at once, after a silence that was none of the training's. Only figures that the training prints as
lines of their own, one at a time, show that the silence is its own.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["HeldBack", "figures", "part", "whole"]

_TOGETHER_S = 0.05
"""What comes within that came out of one buffer, also on a busy machine."""
_FIGURES_MIN = 2


class HeldBack(msgspec.Struct, frozen=True):
    in_parts: bool = False
    """The last sign of the training came in such a line."""
    figures: int = 0
    """Figures that came one at a time since the last such line."""
    figures_at: datetime | None = None


def part(held: HeldBack) -> HeldBack:
    """A line has told of several steps, or goes on."""
    return msgspec.structs.replace(held, in_parts=held.figures < _FIGURES_MIN, figures=0)


def whole(held: HeldBack) -> HeldBack:
    """A line has told of one step."""
    return msgspec.structs.replace(held, in_parts=False) if held.in_parts else held


def figures(held: HeldBack, at: datetime) -> HeldBack:
    """A line of figures has come. Several at once were held back as well: by the program's own buffer."""
    last_at = held.figures_at
    together = last_at is not None and (at - last_at).total_seconds() < _TOGETHER_S
    count = 0 if together else held.figures + 1
    return HeldBack(held.in_parts and count < _FIGURES_MIN, count, at)
