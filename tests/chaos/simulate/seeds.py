"""Chooses the random scripts that the simulations play."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["asked_or"]


def asked_or(usual: Sequence[int]) -> Sequence[int]:
    """Returns the seeds of `REKINDLE_SEEDS=1000-2000` (without the end) if it is set, otherwise the usual
    seeds."""
    first, _, last = os.environ.get("REKINDLE_SEEDS", "").partition("-")
    return range(int(first), int(last)) if last else usual
