"""Compares the rules of a pod template with nodes: its node selector, its required node affinity, and its
tolerations. Pure. Sources: kube-scheduler's filter plugins NodeAffinity, TaintToleration, NodeUnschedulable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import msgspec

from recover.api import Requirement
from recover.model import Gang, Mark, Node, Taint, Template, World
from recover.model.tolerations import tolerates
from recover.recipes.placement import carries
from recover.workloads.patches import REQUIRED, avoiding, required_terms

__all__ = ["RULES_MAX", "NodeRules", "are_too_long"]

RULES_MAX = 5000
"""Length of a gang's rules about nodes beyond which nobody compares them. Each reconcile compares the rules
with each group of nodes, and one job must not delay the reconciles of all other jobs."""
_TEMPLATE, _REQUIREMENT = 30, 10
"""Lengths of a template and of a requirement of its affinity, in units of the length of one value."""
_PARTS = ("matchExpressions", "matchFields")


class NodeRules(msgspec.Struct, frozen=True):
    """The nodes that the ranks of one template may use by the template itself, without the changes that
    Rekindle made to the template."""

    tolerations: tuple[Mapping[str, object], ...]
    selector: Mapping[str, str]
    terms: tuple[tuple[list[Requirement], list[Requirement]], ...] | None
    """Terms on the labels and fields of a node; one of the terms must match."""
    tolerated: dict[tuple[str, str, str], bool] = {}
    """Results for the taints that were compared so far. Most nodes have the same taints."""

    @classmethod
    def of(
        cls, template: Template, gang: Gang, start: Mark, added: Sequence[Mapping[str, object]]
    ) -> NodeRules:
        """Returns the rules of the template for that start. `added` has the tolerations that the ranks' pods
        have beside those of the template."""
        affinity = avoiding(template.affinity, gang, start).get("nodeAffinity") or {}
        required = affinity.get(REQUIRED)
        terms = tuple(map(_term, required.get("nodeSelectorTerms", ()))) if required else None
        return cls((*template.tolerations, *added), template.node_selector, terms)

    def suited(self, world: World) -> Set[str] | None:
        """Returns the names of all nodes that suit; None if every node suits."""
        if not self.selector and self.terms is None:
            return None
        question = "suits", msgspec.json.encode((self.selector, self.terms), order="sorted")
        return world.grouped(question, self.suits).names(True)

    def tolerates(self, taint: Taint) -> bool:
        parts = (taint.key, taint.value, taint.effect)
        if parts not in self.tolerated:
            self.tolerated[parts] = tolerates(self.tolerations, taint)
        return self.tolerated[parts]

    def suits(self, node: Node) -> bool:
        """Whether the selector and the affinity allow the node."""
        if any(node.labels.get(name) != value for name, value in self.selector.items()):
            return False
        return self.terms is None or any(
            (labels or fields)  # an empty term matches no node
            and carries(node.labels, labels)
            and carries({"metadata.name": node.name}, fields)
            for labels, fields in self.terms
        )


def are_too_long(gang: Gang) -> bool:
    """Whether the required affinity of the gang's templates is longer than `RULES_MAX`. Tolerations and
    selectors do not count: tolerations are compared only with distinct taints, and the comparison of a
    selector reads at most one key more than those that the node has."""
    total = 0
    for template in gang.templates.values():
        total += _TEMPLATE
        for term in required_terms(template.affinity):
            total += _REQUIREMENT
            for part in _PARTS:
                total += sum(_REQUIREMENT + len(one.get("values") or ()) for one in term.get(part) or ())
    return total > RULES_MAX


def _term(term: Mapping[str, object]) -> tuple[list[Requirement], list[Requirement]]:
    return _requirements(term, "matchExpressions"), _requirements(term, "matchFields")


def _requirements(term: Mapping[str, object], part: str) -> list[Requirement]:
    found = term.get(part)
    return [
        Requirement(
            key=str(one["key"]),
            operator=str(one["operator"]),
            values=[str(v) for v in one.get("values") or ()],
        )
        for one in (found if isinstance(found, list) else [])
    ]
