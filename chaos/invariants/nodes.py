"""Checks the controller's writes to Nodes: the controller changes only its own taints, labels and
annotations, and cordons only together with its taint."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import is_cordoned, note, others_taints, our_taint
from recover.k8s.kinds import NODES

__all__ = ["NodesOfOthers"]


class NodesOfOthers(Check):
    """Harm if missed: a node that people have cordoned takes pods, or nobody can undo a cordon exactly."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.by_controller or write.resource != NODES:
            return
        old, new = write.old, write.new
        if old is None or new is None:
            yield "the controller neither creates nor deletes nodes"
            return
        yield from write.foreign_changes()
        if others_taints(old) != others_taints(new):
            yield f"the controller changed taints of others: {others_taints(old)} -> {others_taints(new)}"
        if is_cordoned(old) and not is_cordoned(new) and not note(old).get("cordoned"):
            yield "the controller removed a cordon of others"
        if is_cordoned(new) and not is_cordoned(old) and our_taint(new) is None:
            yield "the controller cordoned a node without the taint of Rekindle"
