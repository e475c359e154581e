"""Taints as they are written: one list, always whole, so other people's go back as they came. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from recover.model import Taint

__all__ = ["as_written"]


def as_written(taints: Iterable[Taint]) -> list[dict[str, str]] | None:
    """For `spec.taints` of a merge patch; None, which takes the field away, where there are none."""
    return [_fields(taint) for taint in taints] or None


def _fields(taint: Taint) -> dict[str, str]:
    found = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in found.items() if value}
