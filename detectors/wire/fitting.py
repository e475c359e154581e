"""Creates structs whose texts and lists fit the limits in their annotations. Pure.

The limits in the annotations become those of the CRDs, and the API server rejects the whole object for one
field that is too long. So code that fills such a struct writes `fitted(Struct, field=...)` instead of
`Struct(field=...)`, and `refitted(...)` instead of `msgspec.structs.replace(...)`. A value that fits stays as
it is, byte for byte; of a longer value the beginning stays. tests/recover/api/test_fitting.py finds other
code that cuts.

A `__post_init__` of the base class would need no such call, but would run in Python for each struct of each
object that is decoded. If values were cut only where objects are written, each reconcile would see a
difference between the text that it wants and the stored text, and would write again.
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
"""Mark for a list in the order of time, `Meta(extra=NEWEST)`: the end of the list stays, and its beginning is
cut."""
UTF8: Final[dict[str, Any]] = {"unit": "bytes"}
"""Mark for a text, `Meta(extra=UTF8)`: the limit counts bytes of UTF-8. A text has at least as many bytes as
characters."""
WHOLE: Final[dict[str, Any]] = {"cut": False}
"""Mark for a value that is never cut, `Meta(extra=WHOLE)`: a part of the value would be worthless or mean
something else."""

_P = ParamSpec("_P")
_S = TypeVar("_S", bound=msgspec.Struct)
_T = TypeVar("_T")


class _Limit(msgspec.Struct, frozen=True, dict=True):
    most: int | None = None
    counts_bytes: bool = False
    keeps_newest: bool = False
    is_cut: bool = True
    item: _Limit | None = None
    """Limit of each text of a list. The structs of a list are fitted where they are created."""

    @property
    def cuts(self) -> bool:
        return self.is_cut and (self.most is not None or self.item is not None)

    @functools.cached_property
    def most_at_once(self) -> int:
        """Length of a text or list that always fits, no matter what it contains."""
        is_plain = self.most is not None and self.item is None and not self.counts_bytes
        return self.most if is_plain and self.most is not None else 0

    def of(self, value: Any) -> Any:
        """Returns the value itself if it fits, otherwise a shorter one."""
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
    """Returns the struct of these fields, each cut to its limit: `fitted(Cause, summary=words, ...)`."""
    made = make(*args, **fields)
    return _cut(made, _cutting(type(made)))


def refitted(whole: _S, /, **changes: Any) -> _S:
    """Returns the struct with these fields changed, each of them cut to its limit. The others stay as they
    are."""
    cutting = _cutting(type(whole))
    changed = {name: cutting[name] for name in changes if name in cutting}
    return _cut(msgspec.structs.replace(whole, **changes), changed)


def fit(struct: type[msgspec.Struct], field: str, value: _T) -> _T:
    """Returns the value as this field accepts it. Use this for values that are compared with the value of
    such a field."""
    fitting: _T = _limits(struct)[field].of(value)
    return fitting


def limit(struct: type[msgspec.Struct], field: str) -> int:
    """Returns the number of characters, bytes or items that the field accepts. Use this in code that chooses
    what to leave out."""
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
    """Returns the limits by field; fields whose values are never cut are left out."""
    return {name: one for name, one in _limits(struct).items() if one.cuts}


@functools.cache
def _limits(struct: type[msgspec.Struct]) -> Mapping[str, _Limit]:
    """Returns the limits by field; fields without a limit are left out."""
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
