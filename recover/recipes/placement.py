"""Where a gang may run after a recipe: rules about labels as node affinity. Pure; for decide.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recover.api import Requirement
from recover.api.recipe_spec import LabelRule, Placement
from recover.k8s.quantities import parse_count
from recover.model import Node
from recover.recipes.templates import fill

__all__ = ["carries", "fulfils", "placed_by", "words"]


def placed_by(placement: Placement | None, captured: dict[str, str]) -> list[Requirement]:
    """What the nodes must have; `captured` is what the log gave for the placeholders of a rule."""
    if placement is None:
        return []
    required = (_requirement(rule, captured, wanted=True) for rule in placement.require)
    forbidden = (_requirement(rule, captured, wanted=False) for rule in placement.forbid)
    return [one for one in (*required, *forbidden) if one is not None]


def _requirement(rule: LabelRule, captured: dict[str, str], *, wanted: bool) -> Requirement | None:
    """None for a size that the log gave and that is no whole number."""
    if rule.values:
        return Requirement(key=rule.name, operator="In" if wanted else "NotIn", values=list(rule.values))
    if not rule.at_least:
        return Requirement(key=rule.name, operator="Exists" if wanted else "DoesNotExist")
    least = parse_count(fill(rule.at_least, captured))
    if least is None:
        return None
    if wanted and least == 0:
        return Requirement(key=rule.name, operator="Exists")  # -1 is no value that a label may have
    # Gt and Lt are strict, and both want the label to be there.
    operator, limit = ("Gt", least - 1) if wanted else ("Lt", least)
    return Requirement(key=rule.name, operator=operator, values=[str(limit)])


def fulfils(node: Node, placed: Sequence[Requirement]) -> bool:
    """A node that offers accelerators and has what is required. Whether it takes pods now does not matter: a
    cordon or a silent kubelet ends, and until then the gang waits for a place."""
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
    """None for what no scheduler takes for a number either: people write affinity, too."""
    text = values[0] if len(values) == 1 else ""
    return int(text) if text.removeprefix("-").isdecimal() else None


def words(required: Requirement) -> str:
    """As `kubectl describe` shows an affinity."""
    return " ".join([required.key, required.operator, ", ".join(required.values)]).strip()
