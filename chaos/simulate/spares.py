"""The safety invariants of spare nodes: a part of invariants.py, which shows every write on a node."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from chaos.cluster.kinds import Object
from chaos.simulate.reading import OURS, is_closed, is_ready, spare_taint

__all__ = ["KEPT", "SPARE", "SPARE_FOR", "SpareChecks", "not_given_back"]

SPARE, SPARE_FOR, KEPT = OURS + "spare", OURS + "spare-for", OURS + "spare-kept"
_VIEW_MAX = timedelta(seconds=90)
"""How old the controller's view of another node may be: a partition, slow answers, and watches that lag."""


class SpareChecks:
    def __init__(self) -> None:
        self._out: dict[str, datetime | None] = {}
        """Nodes that are out, quarantined so that they take no pods, not ready or gone; or until when they
        were."""
        self._broken: dict[str, datetime | None] = {}
        """Nodes whose agents show a fault that keeps gangs off them; or until when they did."""

    def saw(self, old: Object | None, new: Object | None, at: datetime) -> None:
        """A write on a node, by anybody."""
        for node, until in ((old, at), (new, None)):
            if node is not None and (is_closed(node) or not is_ready(node)):
                self._out[node["metadata"]["name"]] = until
        if new is None and old is not None:
            self._out[old["metadata"]["name"]] = None

    def shows(self, node: str, at: datetime, *, is_broken: bool) -> None:
        """A write on a NodeHealth."""
        if is_broken or self._broken.get(node, at) is None:
            self._broken[node] = None if is_broken else at

    def lifted(
        self, old: Object, new: Object, nodes: list[Object], shown: Iterator[str], at: datetime
    ) -> Iterator[str]:
        """What is wrong with the controller's write on this node, if it lets a spare in. `shown` are the
        fatal faults that the controller knows the node to have."""
        if not _notes(new).get(SPARE_FOR) or _notes(old).get(SPARE_FOR) == _notes(new)[SPARE_FOR]:
            return
        name, instead_of = new["metadata"]["name"], _instead_of(new)
        if not _is_spare(new) or spare_taint(old) is None or spare_taint(new) is not None:
            yield f"{name} was let in without having been a spare in reserve"
        if is_closed(new):
            yield f"{name} was let in although it is quarantined"
        for code in shown:
            yield f"{name} was let in although it has shown {code}"
        if not self._may_seem_out(instead_of, at):
            yield f"{name} was let in for {instead_of}, which is not out"
        for other in nodes:
            its_name = other["metadata"]["name"]
            serves = SPARE_FOR in _notes(other) and spare_taint(other) is None and _is_spare(other)
            if (
                serves
                and _instead_of(other) == instead_of
                and its_name != name
                and not self._may_seem_out(its_name, at)
            ):
                yield f"{name} and {its_name} both stand in for {instead_of}"

    def _may_seem_out(self, node: str, at: datetime) -> bool:
        never = datetime.min.replace(tzinfo=at.tzinfo)
        ends = (told.get(node, never) for told in (self._out, self._broken))
        return any(until is None or at - until <= _VIEW_MAX for until in ends)


def not_given_back(nodes: list[Object], avoided: Collection[str]) -> list[str]:
    """Spares that take pods, and nodes that were spares once and show it, when no node is out any more.
    `avoided` are those that a recovery still keeps its gang off."""
    return [
        node["metadata"]["name"]
        for node in nodes
        if (SPARE_FOR in _notes(node) and _instead_of(node) not in avoided)
        or (not _is_spare(node) and KEPT in _notes(node))
    ]


def _is_spare(node: Object) -> bool:
    return bool(node["metadata"].get("labels", {}).get(SPARE, "false") != "false")


def _notes(node: Object) -> dict[str, Any]:
    notes: dict[str, Any] = node["metadata"].get("annotations", {})
    return notes


def _instead_of(node: Object) -> str:
    return str(msgspec.json.decode(_notes(node).get(KEPT, "{}")).get("node", ""))
