"""Checks that a spare takes pods only in place of a node that is out of service."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

import msgspec

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.reading import SPARE, SPARE_FOR, SPARE_KEPT, VIEW_MAX, is_closed, is_ready, spare_taint
from recover.k8s.kinds import NODEHEALTHS, NODES

__all__ = ["SparesStandIn", "not_given_back"]


class SparesStandIn(Check):
    """A spare that the controller uses was kept free before, is not broken itself, and replaces one node that
    is out of service, as the only spare.

    Harm if missed: the reserve is used up while nothing is broken, or a gang is moved to a broken spare.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._out: dict[str, datetime | None] = {}
        """Nodes that are or were out of service: quarantined so that they take no pods, not ready, or gone.
        The value is None while the node is out of service, and afterwards the time at which that ended."""
        self._broken: dict[str, datetime | None] = {}
        """Nodes whose agents show a fault that keeps gangs off them, with the same values."""

    def violations(self, write: Write) -> Iterator[str]:
        if write.resource == NODES:
            self._saw_node(write)
        elif write.resource == NODEHEALTHS and write.new is not None:
            node = write.audit.name
            self._saw_health(node, write.at, is_broken=self.facts.reports.is_broken(node))
        if write.by_controller and write.resource == NODES and write.old and write.new:
            yield from self._let_in(write.old, write.new, write.at)

    def _saw_node(self, write: Write) -> None:
        for node, until in ((write.old, write.at), (write.new, None)):
            if node is not None and (is_closed(node) or not is_ready(node)):
                self._out[node["metadata"]["name"]] = until
        if write.new is None and write.old is not None:
            self._out[write.old["metadata"]["name"]] = None

    def _saw_health(self, node: str, at: datetime, *, is_broken: bool) -> None:
        if is_broken or self._broken.get(node, at) is None:
            self._broken[node] = None if is_broken else at

    def _let_in(self, old: Object, new: Object, at: datetime) -> Iterator[str]:
        if not _notes(new).get(SPARE_FOR) or _notes(old).get(SPARE_FOR) == _notes(new)[SPARE_FOR]:
            return
        name, instead_of = new["metadata"]["name"], _instead_of(new)
        if not _is_spare(new) or spare_taint(old) is None or spare_taint(new) is not None:
            yield f"the spare {name} was used although it was not kept free"
        if is_closed(new):
            yield f"the spare {name} was used although it is quarantined"
        for code in self.facts.reports.known(new, self.facts.incidents(), at):
            yield f"the spare {name} was used although it has shown {code}"
        if not self._may_seem_out(instead_of, at):
            yield f"the spare {name} was used in place of {instead_of}, which is in service"
        for other in self.facts.nodes():
            its_name = other["metadata"]["name"]
            serves = SPARE_FOR in _notes(other) and spare_taint(other) is None and _is_spare(other)
            if (
                serves
                and _instead_of(other) == instead_of
                and its_name != name
                and not self._may_seem_out(its_name, at)
            ):
                yield f"the spares {name} and {its_name} both replace {instead_of}"

    def _may_seem_out(self, node: str, at: datetime) -> bool:
        never = datetime.min.replace(tzinfo=at.tzinfo)
        ends = (times.get(node, never) for times in (self._out, self._broken))
        return any(until is None or at - until <= VIEW_MAX for until in ends)


def not_given_back(nodes: list[Object], avoided: Collection[str]) -> list[str]:
    """Returns the spares that are still in use, and the nodes that were spares once and still show it. The
    caller has made sure that no node is out of service any more. `avoided` are the nodes that a recovery
    still keeps its gang off."""
    return [
        node["metadata"]["name"]
        for node in nodes
        if (SPARE_FOR in _notes(node) and _instead_of(node) not in avoided)
        or (not _is_spare(node) and SPARE_KEPT in _notes(node))
    ]


def _is_spare(node: Object) -> bool:
    return bool(node["metadata"].get("labels", {}).get(SPARE, "false") != "false")


def _notes(node: Object) -> dict[str, Any]:
    notes: dict[str, Any] = node["metadata"].get("annotations", {})
    return notes


def _instead_of(node: Object) -> str:
    return str(msgspec.json.decode(_notes(node).get(SPARE_KEPT, "{}")).get("node", ""))
