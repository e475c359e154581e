"""What a NodeHealth may not hold although its schema lets it pass. Pure.

The token of one node's agent writes the status. A time of the year 1 or 9999 makes arithmetic with times
raise an error, and so does a number of seconds of 1e300. Sums of numbers near 2^63 leave what the API server
takes. A blank or a line break in a name forges words where the name is told. So the object is refused, and
its node is one whose agent says nothing: the harm ends there.
"""

from __future__ import annotations

import functools
import typing
from datetime import UTC, datetime

import msgspec

__all__ = ["NotSaneError", "demand_sane", "sane", "total"]

_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
"""A clock that was never set shows 1970, and what the kernel wrote before is dated a little earlier: that is
honest, and may tell of a dead GPU."""
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_FREE_TEXT = frozenset({"evidence", "text", "tail", "why", "cleared_by", "model", "catalogue_problems"})
"""What logs, drivers and errors say, as they say it. Whoever tells it makes it printable."""
_ECHOES = frozenset({"served", "served_request", "hands_off"})
"""Ids of the controller's own, which an agent says back. They may list several things."""


_INTEGER_MAX = 2**53
"""Beyond it numbers of JSON are no longer exact for everybody; no step, count or sequence comes near."""
_SECONDS_MAX = 1e9
"""Thirty years."""


class NotSaneError(msgspec.ValidationError):
    """Names the field and what was expected. Whoever reads objects leaves this one out as any other that is
    not what it should be."""


def sane(at: datetime | None) -> datetime | None:
    """The time; None for one with which nobody can calculate, as if it were not told."""
    return at if at is not None and at.tzinfo is not None and _EARLIEST <= at < _LATEST else None


def total(*counts: int) -> int:
    """Their sum, as far as a NodeHealth may hold it. An agent goes on from counts that its node's token may
    have written: without a limit the agent's next status would be the one that is refused."""
    return min(sum(counts), _INTEGER_MAX)


def demand_sane(told: msgspec.Struct, at: str = "$") -> None:
    """Raises NotSaneError for the first time outside of the years 1900 to 2199, the first number with which
    nobody can calculate, and the first name with a character that is not printable, or a blank."""
    for name, wire in _fields(type(told)):
        _demand(getattr(told, name), f"{at}.{wire}", name)


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
        if not 0 <= value <= _SECONDS_MAX:  # nor is that what is no number
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
    """Of the fields that can hold something to be refused: name, name on the wire."""
    hints = typing.get_type_hints(kind)
    pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return tuple((name, wire) for name, wire in pairs if not _is_enum(hints[name]))


def _is_enum(hint: object) -> bool:
    return isinstance(hint, type) and hasattr(hint, "__members__")
