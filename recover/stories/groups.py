"""Groups messages that many nodes send in nearly the same words, so that a thousand messages become a few
lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from recover.stories.words import some

__all__ = ["Group", "grouped", "largest"]

GROUPS_MAX = 5

_OWN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-f]+|\d+")
"""Parts of a reason that differ from node to node although the reason is the same: ids, addresses,
numbers."""


class Group(msgspec.Struct, frozen=True):
    why: str
    """The reason in the words of the first member."""
    names: tuple[str, ...]

    @property
    def who(self) -> str:
        return some(self.names, 4)


def grouped(said: Iterable[tuple[str, str]]) -> list[Group]:
    """Groups pairs of a reason and a name by reason, the largest group first. The name itself may occur in
    the reason."""
    found: dict[str, tuple[str, list[str]]] = {}
    for why, name in said:
        shape = _OWN.sub("#", why.replace(name, "@"))
        found.setdefault(shape, (why, []))[1].append(name)
    groups = [Group(why, tuple(sorted(names))) for why, names in found.values()]
    return sorted(groups, key=lambda group: (-len(group.names), group.why))


def largest(said: Iterable[tuple[str, str]]) -> list[Group]:
    """Groups the pairs, and puts the small groups beyond GROUPS_MAX into one group."""
    groups = grouped(said)
    rest = groups[GROUPS_MAX:]
    if not rest:
        return groups
    names = sorted(name for group in rest for name in group.names)
    return [*groups[:GROUPS_MAX], Group(f"{len(rest)} further reasons", tuple(names))]
