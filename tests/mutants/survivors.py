"""Mutants that neither scripts nor tests notice, and the reason why that is acceptable."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SURVIVORS"]

SURVIVORS: Mapping[str, str] = {}
"""Explanations by the mutant's name."""
