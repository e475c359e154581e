"""Groups the nodes by what a question reads of them, so that an answer needs one look at each group: a large
cluster has few nodes that differ. The controller keeps the groups between its reconciles, and only the
changed nodes are placed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Set
from typing import NamedTuple

from recover.model.nodes import Node

__all__ = ["NAMES_MAX", "QUESTIONS_MAX", "Group", "GroupedNodes", "NodeGroups"]

NAMES_MAX = 300_000
"""Number of names of nodes in the groups of all questions. 10,000 names take about 2 MB."""
QUESTIONS_MAX = 1000
"""Number of questions whose groups are kept."""


class Group(NamedTuple):
    key: Hashable
    names: dict[str, None]
    """Names of the nodes."""


class NodeGroups:
    """The nodes in groups with the same key. The key of a node has all that the question reads of the node
    and of the pods on it. A node with the key None or False is in no group."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Group] = {}
        self._group_of: dict[str, Group] = {}
        self._changed: set[str] | None = None
        """Names of nodes whose key may be outdated. None: all."""

    def __len__(self) -> int:
        """Returns the number of nodes in groups."""
        return len(self._group_of)

    @property
    def groups(self) -> Collection[Group]:
        return self._by_key.values()

    def names(self, key: Hashable) -> Set[str]:
        """Returns the names of the nodes with that key."""
        group = self._by_key.get(key)
        return group.names.keys() if group is not None else frozenset()

    def key(self, name: str) -> Hashable:
        """Returns the key of the node; None if the node is in no group."""
        group = self._group_of.get(name)
        return group.key if group is not None else None

    def touch(self, name: str) -> None:
        if self._changed is not None:
            self._changed.add(name)

    def refresh(self, nodes: Mapping[str, Node], key_of: Callable[[Node], Hashable]) -> None:
        """Places the changed nodes in their groups."""
        if self._changed is None:
            self._by_key.clear()
            self._group_of.clear()
        for name in nodes if self._changed is None else self._changed:
            node = nodes.get(name)
            self._leave(name)
            if node is not None:
                self._enter(name, key_of(node))
        self._changed = set()

    def _enter(self, name: str, key: Hashable) -> None:
        if key is None or key is False:
            return
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = Group(key, {})
        group.names[name] = None
        self._group_of[name] = group

    def _leave(self, name: str) -> None:
        group = self._group_of.pop(name, None)
        if group is None:
            return
        del group.names[name]
        if not group.names:
            del self._by_key[group.key]


class GroupedNodes:
    """The groups of the questions that were asked last."""

    def __init__(self) -> None:
        self._by_question: dict[Hashable, NodeGroups] = {}

    def of(
        self, question: Hashable, nodes: Mapping[str, Node], key_of: Callable[[Node], Hashable]
    ) -> NodeGroups:
        """Returns the groups for the question as the nodes and their pods are now. The question must name all
        that `key_of` reads apart from the node and its pods."""
        known = self._by_question.pop(question, None)
        groups = known if known is not None else NodeGroups()
        self._by_question[question] = groups
        groups.refresh(nodes, key_of)
        if known is None:
            self._make_room()
        return groups

    def _make_room(self) -> None:
        """Forgets the questions that were not asked for the longest time."""
        names = sum(map(len, self._by_question.values()))
        while len(self._by_question) > 1 and (names > NAMES_MAX or len(self._by_question) > QUESTIONS_MAX):
            names -= len(self._by_question.pop(next(iter(self._by_question))))

    def touch(self, name: str) -> None:
        """Records that the node, or a pod on it, has changed."""
        for groups in self._by_question.values():
            groups.touch(name)
