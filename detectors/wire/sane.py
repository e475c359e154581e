"""What a NodeHealth may not hold although its schema lets it pass. Pure.

The token of one node's agent writes the status. A time of the year 1 or 9999 makes arithmetic with times
raise an error, and a line break in a name forges a line where the name is told. So the object is refused, and
its node is one whose agent says nothing: the harm ends there.
"""

from __future__ import annotations

import functools
import typing
from datetime import UTC, datetime

import msgspec

__all__ = ["NotSaneError", "demand_sane", "sane"]

_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
"""A clock that was never set shows 1970, and what the kernel wrote before is dated a little earlier: that is
honest, and may tell of a dead GPU."""
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_FREE_TEXT = frozenset({"evidence", "text", "tail", "why", "cleared_by", "model", "catalogue_problems"})
"""What logs, drivers and errors say, as they say it. Whoever tells it makes it printable."""


_NUMBERS = (int, float, bool, int | None, float | None)


class NotSaneError(msgspec.ValidationError):
    """Names the field and what was expected. Whoever reads objects leaves this one out as any other that is
    not what it should be."""


def sane(at: datetime | None) -> datetime | None:
    """The time; None for one with which nobody can calculate, as if it were not told."""
    return at if at is not None and at.tzinfo is not None and _EARLIEST <= at < _LATEST else None


def demand_sane(told: msgspec.Struct, at: str = "$") -> None:
    """Raises NotSaneError for the first time outside of the years 1900 to 2199, and the first name with a
    character that is not printable."""
    for name, wire, is_free in _fields(type(told)):
        _demand(getattr(told, name), f"{at}.{wire}", is_free)


def _demand(value: object, at: str, is_free: bool) -> None:
    if isinstance(value, str):
        if not is_free and not value.isprintable():
            raise NotSaneError(f"Expected one line of printable text - at `{at}`")
    elif isinstance(value, datetime):
        if sane(value) is None:
            raise NotSaneError(f"Expected a time of the years 1900 to 2199 - at `{at}`")
    elif isinstance(value, msgspec.Struct):
        demand_sane(value, at)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _demand(item, f"{at}[{number}]", is_free)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Of the fields that can hold something to be refused: name, name on the wire, is it free text."""
    hints = typing.get_type_hints(kind)
    pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return tuple(
        (name, wire, name in _FREE_TEXT)
        for name, wire in pairs
        if hints[name] not in _NUMBERS and not _is_enum(hints[name])
    )


def _is_enum(hint: object) -> bool:
    return isinstance(hint, type) and hasattr(hint, "__members__")
