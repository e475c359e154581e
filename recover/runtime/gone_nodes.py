"""Remembers the Nodes that do not exist, as live reads (confirm.py) have shown. For changes.py."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["GoneNodes"]

GONE_NODES_MAX = 20_000
"""Maximum number of remembered Nodes that do not exist: twice the nodes of the largest cluster. A forgotten
name is read again if it still matters."""


class GoneNodes:
    def __init__(self) -> None:
        self._asked: set[str] = set()
        """Nodes that are being read live because they are not in the cache."""
        self._gone: dict[str, None] = {}

    @property
    def names(self) -> Collection[str]:
        return self._gone.keys()

    def ask(self, node: str) -> None:
        """Notes that the node is about to be read live."""
        self._asked.add(node)

    def is_asked(self, node: str) -> bool:
        """Whether no object has named the node since the live read began."""
        return node in self._asked

    def add(self, node: str) -> bool:
        """Takes the answer that the node does not exist. Returns True if the answer contains something
        new."""
        self._asked.discard(node)
        if node in self._gone:
            return False
        self._gone[node] = None
        if len(self._gone) > GONE_NODES_MAX:
            del self._gone[next(iter(self._gone))]
        return True

    def may_exist(self, node: str) -> None:
        """Forgets the result of a live read of a node once a newer object names the node."""
        self._asked.discard(node)
        self._gone.pop(node, None)
