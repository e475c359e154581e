"""Decides which known issues a failed gang shows, and what is changed for its next start. Pure.

The input comes from gang_evidence.py; recovery/known_issues.py records the answer in the Recovery. A change
by an earlier recovery of the gang stays until its recipe gives up: otherwise the issue would occur again at
the next restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from detectors.text.log_template import parse
from detectors.wire.fitting import fitted, limit
from detectors.wire.training import PodProgress
from recover.api import RecipeOutcome, RecipeUse, RecoveryStatus, Requirement
from recover.api.recipe_spec import Change, Hold, Recipe
from recover.model import Node
from recover.recipes.gang_evidence import lines_of
from recover.recipes.match import Evidence, Hit, Matched, match, templates_of
from recover.recipes.placement import fulfils, placed_by, words
from recover.recipes.templates import fill
from recover.recipes.wording import changed, one_of

__all__ = ["Proof", "bounded", "decide", "environment", "proof", "requirements"]

_USES_MAX = limit(RecoveryStatus, "recipes")


def decide(
    recipes: Mapping[str, Recipe],
    known: Sequence[Evidence],
    earlier: Sequence[RecipeUse],
    nodes: Iterable[Node],
    attempt: int,
    failed_on: str = "",
) -> list[RecipeUse]:
    """Returns one use for each recipe that matches, sorted by name. `earlier` are the uses in the gang's
    history, oldest first. `failed_on` is the node on which the gang failed."""
    places = list(nodes)
    found = []
    for name in sorted(recipes):
        answers = (match(recipes[name], evidence) for evidence in known)
        fitting = next((answer for answer in answers if isinstance(answer, Matched)), None)
        if fitting is not None:
            tried = sum(1 for use in earlier if (use.name, use.outcome) == (name, RecipeOutcome.APPLIED))
            there = environment(use for use in earlier if use.name != name)
            avoids = (
                fitting.recipe.change.placement is not None and fitting.recipe.change.placement.avoid_node
            )
            others = [node for node in places if not avoids or node.name != failed_on]
            found.append(_use(fitting, tried, there, others, attempt))
    return bounded(found)


def bounded(uses: Sequence[RecipeUse]) -> list[RecipeUse]:
    """Returns as many uses, oldest first, as a Recovery has room for. Advice gives way to changes, which
    apply at every later start and whose tries count."""
    over = max(0, len(uses) - _USES_MAX)
    advice = [number for number, use in enumerate(uses) if use.outcome is RecipeOutcome.ADVISED]
    crowded_out = set(advice[:over])
    return [use for number, use in enumerate(uses) if number not in crowded_out][-_USES_MAX:]


def environment(uses: Iterable[RecipeUse]) -> dict[str, str | None]:
    """Returns the variables that are set after these uses, oldest first: the latest change of each recipe.
    The value is None for a variable that must be removed, and that no other recipe sets."""
    standing: dict[str, RecipeUse] = {}
    variables: dict[str, str | None] = {}
    for use in uses:
        if use.outcome in (RecipeOutcome.APPLIED, RecipeOutcome.GAVE_UP):
            variables |= dict.fromkeys(use.env)
            standing.pop(use.name, None)
        if use.outcome is RecipeOutcome.APPLIED:
            standing[use.name] = use
    for use in standing.values():
        variables |= use.env
    return variables


def requirements(uses: Iterable[RecipeUse]) -> tuple[Requirement, ...]:
    """Returns the requirements on the gang's nodes after these uses, oldest first: the latest use of each
    recipe counts."""
    latest = {use.name: use for use in uses}
    standing = [use.placed for use in latest.values() if use.outcome is RecipeOutcome.APPLIED]
    found: list[Requirement] = []
    found += (one for placed in standing for one in placed if one not in found)
    return tuple(found)


# --- one recipe that matches ------------------------------------------------------------------------------


def _use(
    fitting: Matched, tried: int, there: Mapping[str, str | None], nodes: Sequence[Node], attempt: int
) -> RecipeUse:
    """Returns the use of a recipe that matches. `there` are the variables that other recipes have set."""
    recipe, captured = fitting.recipe, fitting.captured
    placed = placed_by(recipe.change.placement, captured)
    outcome, message = _outcome(fitting, tried, there, placed, nodes)
    return fitted(
        RecipeUse,
        name=recipe.name,
        attempt=attempt,
        outcome=outcome,
        seen="; ".join(_seen(hit) for hit in fitting.hits),
        env=dict(recipe.change.env) if outcome in (RecipeOutcome.APPLIED, RecipeOutcome.GAVE_UP) else {},
        placed=placed if outcome is RecipeOutcome.APPLIED else [],
        message=f"{recipe.title}: {message}",
        advice=fill(recipe.change.advise, captured),
    )


def _outcome(
    fitting: Matched,
    tried: int,
    there: Mapping[str, str | None],
    placed: list[Requirement],
    nodes: Sequence[Node],
) -> tuple[RecipeOutcome, str]:
    """Returns the outcome and its reason, in words that follow the recipe's title."""
    change = fitting.recipe.change
    if change.hold is not Hold.NEVER and _is_outlived(fitting):
        return (
            RecipeOutcome.ADVISED,
            "Rekindle changes nothing, because the job has made training steps after the line of the issue",
        )
    if change.hold is Hold.ALWAYS:
        return (
            RecipeOutcome.HELD,
            "Rekindle does not start the job again, because only the owner of the job can correct the issue",
        )
    if change.hold is Hold.UNLESS_PLACED and not any(fulfils(node, placed) for node in nodes):
        wanted = " and ".join(words(one) for one in placed) or "accelerators"
        other = "other " if _leaves_node(change) else ""
        return (
            RecipeOutcome.HELD,
            f"Rekindle does not start the job again, because no {other}node has the required properties "
            f"({wanted})",
        )
    if not change.env and change.placement is None:
        return RecipeOutcome.ADVISED, "Rekindle changes nothing: the owner of the job must correct the issue"
    explicit = fitting.explicit_env
    if change.env and change.env.keys() <= explicit.keys() and change.placement is None:
        names = ", ".join(sorted(explicit))
        return (
            RecipeOutcome.ADVISED,
            f"Rekindle changes nothing, because the template sets {names} and takes precedence",
        )
    if not tried and change.env and change.env.items() <= there.items() and change.placement is None:
        names = ", ".join(sorted(change.env))
        return (
            RecipeOutcome.ADVISED,
            f"Rekindle changes nothing, because another recipe has already set {names}",
        )
    if tried >= fitting.recipe.attempts:
        again = f"the issue occurred again after {tried} change{'s' if tried != 1 else ''}"
        return (
            RecipeOutcome.GAVE_UP,
            f"{again}, so Rekindle does not try the change again, and has reverted it",
        )
    return RecipeOutcome.APPLIED, "; ".join(_done(fitting))


def _leaves_node(change: Change) -> bool:
    return change.placement is not None and change.placement.avoid_node


def _is_outlived(fitting: Matched) -> bool:
    """Whether the gang has continued to train after all lines that show the issue. Such an issue does not
    keep the gang from training, for example if the program handles the error."""
    lines = [hit.line for hit in fitting.hits if hit.line is not None]
    return bool(lines) and all(line.outlived for line in lines)


def _done(fitting: Matched) -> list[str]:
    """Returns the change in the words of wording.py, without the advice, which has its own field, and without
    variables that the template sets itself."""
    change, explicit = fitting.recipe.change, fitting.explicit_env
    env = {name: value for name, value in change.env.items() if name not in explicit}
    made = msgspec.structs.replace(change, env=env, advise="", hold=Hold.NEVER)
    kept = [f"the template sets {', '.join(sorted(explicit))} and takes precedence"] if explicit else []
    return [*changed(made, fitting.captured), *kept]


def _seen(hit: Hit) -> str:
    return f"{hit.line.file}: {hit.line.text.strip()}" if hit.line is not None else hit.said


# --- whether it helped --------------------------------------------------------------------------------------


class Proof(msgspec.Struct, frozen=True):
    """The proof that a change helped. `by` is `log` or `steps`, or empty if there is no proof."""

    by: str
    words: str


def proof(
    recipe: Recipe, running: Sequence[PodProgress], *, stepped: bool, deaf: Sequence[str] = ()
) -> Proof:
    """Returns what the new containers show: the recipe's line, or steps without the lines that matched
    before. `deaf` are ranks that do not receive variables."""
    verify = recipe.verify
    lines = list(lines_of(running))
    wanted = [parse(written) for written in verify.log] if verify is not None else []
    line = next((line for line in lines if any(t.match(line.text) is not None for t in wanted)), None)
    if line is not None:
        return Proof("log", f"{recipe.name}: {line.file} says: {line.text.strip()}")
    again = [line for line in lines if any(t.match(line.text) is not None for t in templates_of(recipe))]
    if again:
        return Proof("", f"{recipe.name}: {again[0].file} says again: {again[0].text.strip()}")
    if recipe.change.env and deaf:
        return Proof(
            "",
            f"{recipe.name}: the change did not reach {len(deaf)} ranks ({deaf[0]}), because they do not "
            "read the ConfigMap with the variables",
        )
    absent = f"; the line {one_of(verify.log)} did not appear: {verify.absent}" if wanted and verify else ""
    if stepped and verify is not None and verify.steps:
        return Proof(
            "steps",
            f"{recipe.name}: the job makes steps, and the line of the issue did not appear again{absent}",
        )
    return Proof("", f"{recipe.name}: nothing proves that the change helped{absent}")
