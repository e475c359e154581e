"""Shares too few places among groups: the groups take turns, so that no group takes the places of the others.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

__all__ = ["in_turn"]

_T = TypeVar("_T")


def in_turn(items: Iterable[_T], group: Callable[[_T], Hashable]) -> list[_T]:
    """Returns the first item of each group, then the second of each, and so on; otherwise the order stays.
    The head of this list has an equal share of each group, and shares that a group does not use go to the
    others."""
    before: Counter[Hashable] = Counter()
    rounds = []
    for item in items:
        name = group(item)
        rounds.append((before[name], item))
        before[name] += 1
    return [item for _, item in sorted(rounds, key=_round)]


def _round(numbered: tuple[int, _T]) -> int:
    return numbered[0]
