"""Structs whose texts and lists fit the limits that their annotations promise. Pure.

The limits in the annotations become those of the CRDs, and the API server refuses the whole object for one
field that is too long. So code that fills such a struct writes `fitted(Struct, field=...)` instead of
`Struct(field=...)`, and `refitted(...)` instead of `msgspec.structs.replace(...)`. A value that fits stays as
it is, byte for byte; of a longer one the head stays. tests/recover/api/test_fitting.py finds who else cuts.

A `__post_init__` of the base class would need no such call, but would run in Python for each struct of each
object that is decoded. Cutting only where objects are written would make each sample see a difference between
the words that it wants and those that stand there, and write again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from msgspec import inspect

from detectors.text.cutting import cut

__all__ = ["NEWEST", "UTF8", "WHOLE", "fit", "fitted", "limit", "refitted"]

NEWEST: Final[dict[str, Any]] = {"keeps": "newest"}
"""`Meta(extra=NEWEST)`: of a list in the order of time its end stays, and its beginning goes."""
UTF8: Final[dict[str, Any]] = {"unit": "bytes"}
"""`Meta(extra=UTF8)`: the limit counts bytes of UTF-8, of which a text has at least as many as characters."""
WHOLE: Final[dict[str, Any]] = {"cut": False}
"""`Meta(extra=WHOLE)`: a part of it would be worth nothing or mean something else, so it is never cut."""

_P = ParamSpec("_P")
_S = TypeVar("_S", bound=msgspec.Struct)
_T = TypeVar("_T")


class _Limit(msgspec.Struct, frozen=True, dict=True):
    most: int | None = None
    counts_bytes: bool = False
    keeps_newest: bool = False
    is_cut: bool = True
    item: _Limit | None = None
    """Of each text of a list. The structs of a list are fitted where they are made."""

    @property
    def cuts(self) -> bool:
        return self.is_cut and (self.most is not None or self.item is not None)

    @functools.cached_property
    def most_at_once(self) -> int:
        """A text or list of this length fits, whatever it holds."""
        is_plain = self.most is not None and self.item is None and not self.counts_bytes
        return self.most if is_plain and self.most is not None else 0

    def of(self, value: Any) -> Any:
        """The value itself where it fits."""
        match value:
            case str():
                return self._text(value)
            case list() | tuple():
                return self._sequence(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        if self.most is None:
            return text
        if self.counts_bytes:
            fitting = cut(text, self.most)
            return text if fitting == text else fitting
        return text if len(text) <= self.most else text[: self.most]

    def _sequence(self, values: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
        if self.most is not None and len(values) > self.most:
            values = values[-self.most :] if self.keeps_newest else values[: self.most]
        if self.item is None:
            return values
        items = [self.item.of(value) for value in values]
        return values if all(map(_is, items, values)) else type(values)(items)


def fitted(make: Callable[_P, _S], /, *args: _P.args, **fields: _P.kwargs) -> _S:
    """The struct of these fields, each cut to its limit. `fitted(Cause, summary=words, ...)`."""
    made = make(*args, **fields)
    return _cut(made, _cutting(type(made)))


def refitted(whole: _S, /, **changes: Any) -> _S:
    """The struct with these fields changed, each of them cut to its limit. The others stay as they are."""
    cutting = _cutting(type(whole))
    changed = {name: cutting[name] for name in changes if name in cutting}
    return _cut(msgspec.structs.replace(whole, **changes), changed)


def fit(struct: type[msgspec.Struct], field: str, value: _T) -> _T:
    """The value as this field takes it. For values that are compared with what stands in such a field."""
    fitting: _T = _limits(struct)[field].of(value)
    return fitting


def limit(struct: type[msgspec.Struct], field: str) -> int:
    """How many characters, bytes or items the field takes. For code that chooses what to leave out."""
    most = _limits(struct)[field].most
    assert most is not None, f"{struct.__name__}.{field} has no limit"
    return most


def _cut(whole: _S, limits: Mapping[str, _Limit]) -> _S:
    changes: dict[str, Any] = {}
    for name, one in limits.items():
        value = getattr(whole, name)
        if value and len(value) > one.most_at_once and (fitting := one.of(value)) is not value:
            changes[name] = fitting
    return msgspec.structs.replace(whole, **changes) if changes else whole


@functools.cache
def _cutting(struct: type[msgspec.Struct]) -> Mapping[str, _Limit]:
    """By field; those whose values are never cut are left out."""
    return {name: one for name, one in _limits(struct).items() if one.cuts}


@functools.cache
def _limits(struct: type[msgspec.Struct]) -> Mapping[str, _Limit]:
    """By field; those without a limit are left out."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    found = {field.name: _limit(field.type) for field in info.fields}
    return {name: one for name, one in found.items() if one is not None}


def _limit(kind: inspect.Type, extra: Mapping[str, Any] | None = None) -> _Limit | None:
    said = extra or {}
    match kind:
        case inspect.Metadata(type=inner, extra=of_meta):
            return _limit(inner, of_meta)
        case inspect.UnionType(types=members):  # `X | None`
            return next((one for one in map(_limit, members) if one is not None), None)
        case inspect.StrType(max_length=int(most)):
            return _Limit(most, counts_bytes=said.get("unit") == "bytes", is_cut=said.get("cut", True))
        case (
            inspect.ListType(item_type=item, max_length=most)
            | inspect.VarTupleType(item_type=item, max_length=most)
        ):
            of_item = _limit(item)
            if most is None and of_item is None:
                return None
            return _Limit(
                most,
                keeps_newest=said.get("keeps") == "newest",
                is_cut=said.get("cut", True),
                item=of_item if isinstance(_bare(item), inspect.StrType) else None,
            )
    return None


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _is(one: object, other: object) -> bool:
    return one is other
