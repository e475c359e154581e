"""Describes in plain words what a recipe changes: for Recoveries, advice, and the recipe's own story.
Pure."""

from __future__ import annotations

from recover.api.recipe_spec import (
    Change,
    Hold,
    LabelRule,
)
from recover.recipes.templates import fill

__all__ = ["changed", "one_of", "rule_words"]


def changed(change: Change, captured: dict[str, str]) -> tuple[str, ...]:
    """Returns what Rekindle does and what it advises, in this order."""
    texts = [f"Rekindle sets {name}={value} in the new containers" for name, value in change.env.items()]
    if change.placement is not None:
        if change.placement.avoid_node:
            texts.append("the job avoids the node where it failed")
        rules = (("runs only", change.placement.require), ("does not run", change.placement.forbid))
        texts += [
            f"the job {word} on nodes where {rule_words(one, captured)}" for word, of in rules for one in of
        ]
    match change.hold:
        case Hold.ALWAYS:
            texts.append("Rekindle does not restart the job until its owner has corrected it")
        case Hold.UNLESS_PLACED:
            texts.append("Rekindle does not start the job if there is no such node")
        case Hold.NEVER:
            pass
    if change.advise:
        texts.append(f"advice to the owner of the job: {fill(change.advise, captured)}")
    return tuple(texts)


def one_of(templates: list[str]) -> str:
    """Returns `'this' or 'that'`."""
    return " or ".join(map(repr, templates))


def rule_words(rule: LabelRule, captured: dict[str, str]) -> str:
    if rule.values:
        return f"label {rule.name} is {' or '.join(rule.values)}"
    if rule.at_least:
        return f"label {rule.name} is at least {fill(rule.at_least, captured)}"
    return f"there is a label {rule.name}"
