"""Rejects values in a NodeHealth that its schema allows and that harm a reader. Pure.

The token of one node's agent writes the status. A time in the year 1 or 9999 makes arithmetic with times
raise an error, and so does a number of seconds of 1e300. Sums of numbers near 2^63 exceed what the API server
accepts. A blank or a line break in a name forges text where the name is printed. So the object is rejected,
and its node counts as one whose agent does not report: the harm ends there.
"""

from __future__ import annotations

import functools
import typing
from datetime import UTC, datetime

import msgspec

__all__ = ["NotSaneError", "demand_sane", "sane", "total"]

_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
"""Earliest accepted time. A clock that was never set shows 1970, and lines that the kernel wrote earlier are
dated a little earlier: these times are honest, and may be evidence of a dead GPU."""
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_FREE_TEXT = frozenset({"evidence", "text", "tail", "why", "cleared_by", "model", "catalogue_problems"})
"""Fields with the unchanged text of logs, drivers and errors. The code that prints these fields makes them
printable."""
_ECHOES = frozenset({"served", "served_request", "hands_off"})
"""Fields with ids of the controller that an agent returns. Such an id may contain blanks, because it may list
several things."""


_INTEGER_MAX = 2**53
"""Greatest accepted number. Beyond it numbers of JSON are no longer exact for all readers; no step, count or
sequence comes near."""
_SECONDS_MAX = 1e9
"""Greatest accepted number of seconds: thirty years."""


class NotSaneError(msgspec.ValidationError):
    """Names the field and what was expected. A reader of objects skips this object like any other invalid
    object."""


def sane(at: datetime | None) -> datetime | None:
    """Returns the time; None for a time that breaks arithmetic, as if it were missing."""
    return at if at is not None and at.tzinfo is not None and _EARLIEST <= at < _LATEST else None


def total(*counts: int) -> int:
    """Returns the sum, limited to what a NodeHealth may contain. An agent continues from counts that its
    node's token may have written: without the limit the agent's next status would be rejected."""
    return min(sum(counts), _INTEGER_MAX)


def demand_sane(struct: msgspec.Struct, at: str = "$") -> None:
    """Raises NotSaneError for the first value that is not accepted: a time outside of the years 1900 to 2199,
    a number that breaks arithmetic, or a name that is not printable ASCII text without blanks."""
    for name, wire in _fields(type(struct)):
        _demand(getattr(struct, name), f"{at}.{wire}", name)


def _demand(value: object, at: str, field: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        is_name = value.isascii() and " " not in value  # other letters may be drawn as blanks
        if field not in _FREE_TEXT and not (value.isprintable() and (is_name or field in _ECHOES)):
            raise NotSaneError(f"Expected printable ASCII text without blanks - at `{at}`")
    elif isinstance(value, int):
        if abs(value) > _INTEGER_MAX:
            raise NotSaneError(f"Expected a number of at most 2^53 - at `{at}`")
    elif isinstance(value, float):
        if not 0 <= value <= _SECONDS_MAX:  # NaN is not in this range either
            raise NotSaneError(f"Expected a number of seconds from 0 to 1e9 - at `{at}`")
    elif isinstance(value, datetime):
        if sane(value) is None:
            raise NotSaneError(f"Expected a time of the years 1900 to 2199 - at `{at}`")
    elif isinstance(value, msgspec.Struct):
        demand_sane(value, at)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _demand(item, f"{at}[{number}]", field)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Returns the fields that can contain a value to reject: name, name on the wire."""
    hints = typing.get_type_hints(kind)
    pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return tuple((name, wire) for name, wire in pairs if not _is_enum(hints[name]))


def _is_enum(hint: object) -> bool:
    return isinstance(hint, type) and hasattr(hint, "__members__")
