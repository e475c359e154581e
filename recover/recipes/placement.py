"""Turns the rules of a recipe about labels into requirements on the gang's nodes, and tells which nodes meet
them. Pure; for decide.py and triage/capacity.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recover.api import Requirement
from recover.api.recipe_spec import LabelRule, Placement
from recover.k8s.quantities import parse_count
from recover.model import Node
from recover.recipes.templates import fill

__all__ = ["carries", "fulfils", "placed_by", "words"]


def placed_by(placement: Placement | None, captured: dict[str, str]) -> list[Requirement]:
    """Returns the requirements on the nodes; `captured` has the values from the log for the placeholders of a
    rule."""
    if placement is None:
        return []
    required = (_requirement(rule, captured, wanted=True) for rule in placement.require)
    forbidden = (_requirement(rule, captured, wanted=False) for rule in placement.forbid)
    return [one for one in (*required, *forbidden) if one is not None]


def _requirement(rule: LabelRule, captured: dict[str, str], *, wanted: bool) -> Requirement | None:
    """Returns the requirement of one rule; None if the captured value is no whole number."""
    if rule.values:
        return Requirement(key=rule.name, operator="In" if wanted else "NotIn", values=list(rule.values))
    if not rule.at_least:
        return Requirement(key=rule.name, operator="Exists" if wanted else "DoesNotExist")
    least = parse_count(fill(rule.at_least, captured))
    if least is None:
        return None
    if wanted and least == 0:
        return Requirement(key=rule.name, operator="Exists")  # -1 is not allowed as the value of a label
    # Gt and Lt are strict, and both require that the label exists.
    operator, limit = ("Gt", least - 1) if wanted else ("Lt", least)
    return Requirement(key=rule.name, operator=operator, values=[str(limit)])


def fulfils(node: Node, placed: Sequence[Requirement]) -> bool:
    """Whether the node offers accelerators and meets the requirements. It does not matter whether the node
    takes pods now: a cordon or a silent kubelet ends, and until then the gang waits for a place."""
    return node.is_accelerated and carries(node.labels, placed)


def carries(labels: Mapping[str, str], asked: Sequence[Requirement]) -> bool:
    return all(_has(labels.get(one.key), one) for one in asked)


def _has(value: str | None, required: Requirement) -> bool:
    match required.operator:
        case "In":
            return value in required.values
        case "NotIn":
            return value not in required.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, limit = parse_count(value or ""), _limit(required.values)
    if number is None or limit is None:
        return False
    return number > limit if required.operator == "Gt" else number < limit


def _limit(values: Sequence[str]) -> int | None:
    """Returns the number; None for a value that the scheduler does not accept as a number either, because
    people write affinity, too."""
    text = values[0] if len(values) == 1 else ""
    return int(text) if text.removeprefix("-").isdecimal() else None


def words(required: Requirement) -> str:
    """Returns the requirement as `kubectl describe` shows it."""
    return " ".join([required.key, required.operator, ", ".join(required.values)]).strip()
