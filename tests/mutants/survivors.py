"""Mutants that nobody notices, and why that is right as it is."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SURVIVORS"]

SURVIVORS: Mapping[str, str] = {}
"""By name."""
