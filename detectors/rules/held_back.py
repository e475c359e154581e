"""Detects whether lines with a training's steps are held back on their way to the agent. Pure; folds/pods.py
keeps one for each container.

A progress bar is a line that does not end for long. The container runtime writes such a line when it ends, or
when it has 16 KiB: many steps at once, after a silence that was not the training's. Only numbers that the
training prints as separate lines, one at a time, show that a silence is the training's own.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["HeldBack", "figures", "part", "whole"]

_TOGETHER_S = 0.05
"""Time in seconds. Lines that are closer together came out of one buffer, also on a busy machine."""
_FIGURES_MIN = 2


class HeldBack(msgspec.Struct, frozen=True):
    in_parts: bool = False
    """Whether the last sign of the training came in a line that was held back."""
    figures: int = 0
    """Number of lines of figures that came one at a time since the last such line."""
    figures_at: datetime | None = None


def part(held: HeldBack) -> HeldBack:
    """Records a line that contained several steps, or does not end."""
    return msgspec.structs.replace(held, in_parts=held.figures < _FIGURES_MIN, figures=0)


def whole(held: HeldBack) -> HeldBack:
    """Records a line that contained one step."""
    return msgspec.structs.replace(held, in_parts=False) if held.in_parts else held


def figures(held: HeldBack, at: datetime) -> HeldBack:
    """Records a line of figures. Several lines at once were held back as well, by the program's own
    buffer."""
    last_at = held.figures_at
    together = last_at is not None and (at - last_at).total_seconds() < _TOGETHER_S
    count = 0 if together else held.figures + 1
    return HeldBack(held.in_parts and count < _FIGURES_MIN, count, at)
