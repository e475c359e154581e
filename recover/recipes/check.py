"""Checks what the types of a recipe cannot express: templates, names, and parts that contradict each other.
Pure.

convert.py calls this module with a recipe whose fields have the right types. Each problem names the field,
the value and what was expected; all problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from detectors.text.log_template import BadTemplateError, Kind, parse
from detectors.wire.fitting import limit
from detectors.wire.training import Signature
from recover.api.recipe_spec import Change, Hold, LabelRule, Placement, Recipe
from recover.recipes.check_match import (
    VARIABLE,
    Problem,
    certain_captures,
    is_name,
    is_variable,
    of_label,
    of_match,
)
from recover.recipes.templates import names_in

__all__ = ["problems"]

_OUR_PREFIX = "REKINDLE_"
_NAME_CHARS_MAX = limit(Signature, "name")
_TEMPLATES_MAX = limit(Signature, "match")
"""Number of log templates that one signature in a NodeHealth may have."""


def problems(recipe: Recipe) -> tuple[Problem, ...]:
    """Returns all problems that keep the recipe from being used; empty for a valid recipe."""
    return tuple(_of_recipe(recipe))


def _of_recipe(recipe: Recipe) -> Iterator[Problem]:
    if not is_name(recipe.name) or len(recipe.name) > _NAME_CHARS_MAX:
        expected = f"expected small letters, digits and -, beginning with a letter, at most {_NAME_CHARS_MAX}"
        yield Problem("name", repr(recipe.name), expected)
    if len(recipe.match.logs) > _TEMPLATES_MAX:
        expected = f"expected at most {_TEMPLATES_MAX} different ones, for which agents look"
        yield Problem("match", f"{len(recipe.match.logs)} log templates", expected)
    of_the_match = [*of_match(recipe.match)]
    yield from of_the_match
    if not of_the_match:  # otherwise the advice would seem to name placeholders that do not exist
        yield from _of_change(recipe.change, certain_captures(recipe.match))
    yield from _of_verify(recipe)


def _of_change(change: Change, certain: dict[str, Kind]) -> Iterator[Problem]:
    acts = bool(change.env) or change.placement is not None
    if not acts and change.hold is Hold.NEVER and not change.advise:
        yield Problem("change", "(none)", "expected at least one of env, placement, hold, advise")
    for name, value in change.env.items():
        if not is_variable(name):
            yield Problem("change.env", repr(name), VARIABLE)
        elif name.startswith(_OUR_PREFIX):
            yield Problem(
                "change.env", repr(name), f"expected another name, {_OUR_PREFIX}* is Rekindle's own"
            )
        elif not value.isprintable():
            yield Problem(f"change.env.{name}", repr(value), "expected one line of printable text")
    if change.placement is not None:
        yield from _of_placement(change.placement, certain)
    if change.hold is Hold.ALWAYS and acts:
        yield Problem(
            "change.hold", "'always'", "expected no env and no placement together with it: nothing would run"
        )
    if change.hold is Hold.UNLESS_PLACED and change.placement is None:
        yield Problem("change.hold", "'unless-placed'", "expected a placement in the same change")
    if change.hold is not Hold.NEVER and not change.advise:
        yield Problem("change.advise", "''", "expected what the owner must change, since the job is held")
    try:
        unknown = [name for name in names_in(change.advise) if name not in certain]
    except BadTemplateError as error:
        yield Problem("change.advise", repr(change.advise), str(error))
    else:
        for name in unknown:
            known = ", ".join(f"{{{one}}}" for one in sorted(certain)) or "none"
            expected = f"unknown placeholder; every match captures these: {known}"
            yield Problem("change.advise", f"{{{name}}}", expected)


def _of_placement(placement: Placement, certain: dict[str, Kind]) -> Iterator[Problem]:
    if not (placement.avoid_node or placement.require or placement.forbid):
        yield Problem("change.placement", "(none)", "expected at least one of avoidNode, require, forbid")
    for field, rules in (("require", placement.require), ("forbid", placement.forbid)):
        for index, rule in enumerate(rules):
            yield from of_label(rule, f"change.placement.{field}[{index}]", certain)
    for index, forbidden in enumerate(placement.forbid):
        for required in placement.require:
            if forbidden.name == required.name and _leaves_nothing(required, forbidden):
                expected = "expected that no node is both required and forbidden"
                yield Problem(f"change.placement.forbid[{index}]", repr(forbidden.name), expected)


def _leaves_nothing(required: LabelRule, forbidden: LabelRule) -> bool:
    if not forbidden.values and not forbidden.at_least:
        return True
    if required.values:
        return set(required.values) <= set(forbidden.values)
    if required.at_least.isdecimal() and forbidden.at_least.isdecimal():
        return int(forbidden.at_least) <= int(required.at_least)
    return False


def _of_verify(recipe: Recipe) -> Iterator[Problem]:
    verify, change = recipe.verify, recipe.change
    acts = bool(change.env) or change.placement is not None
    if verify is None:
        if acts:
            yield Problem("verify", "(none)", "expected log or steps, since the change restarts the job")
        return
    if not acts:
        yield Problem(
            "verify", "given", "expected none: advice and hold change nothing that could be verified"
        )
    if not verify.log and not verify.steps:
        yield Problem("verify", "(none)", "expected log or steps")
    if verify.absent and not verify.log:
        yield Problem("verify.absent", repr(verify.absent), "expected only together with log")
    for index, written in enumerate(verify.log):
        try:
            parse(written)
        except BadTemplateError as error:
            yield Problem(f"verify.log[{index}]", repr(written), str(error))
