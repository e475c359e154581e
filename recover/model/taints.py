"""Writes taints: one list, always as a whole, so that the taints of others stay as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from recover.model import Taint

__all__ = ["as_written"]


def as_written(taints: Iterable[Taint]) -> list[dict[str, str]] | None:
    """Returns the value of `spec.taints` in a merge patch. If there are no taints, returns None, which
    removes the field."""
    return [_fields(taint) for taint in taints] or None


def _fields(taint: Taint) -> dict[str, str]:
    found = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in found.items() if value}
