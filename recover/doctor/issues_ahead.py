"""Finds known issues that the job will meet, as far as recipes show them from template and nodes alone. Pure.

No recipe is named here: `ahead` takes from each recipe the tests that can be made before anything has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from recover.api import Requirement
from recover.api.recipe_spec import Clause, EnvIs, Hold, Match, Recipe, Test
from recover.doctor.case import Case, Finding, Severity
from recover.model import Node
from recover.model.containers import training
from recover.recipes.gang_evidence import of_container
from recover.recipes.match import Evidence, Matched, match
from recover.recipes.placement import fulfils
from recover.recipes.templates import fill
from recover.stories.words import some
from recover.workloads.patches import asked_by_people

__all__ = ["ahead", "in_template", "on_nodes"]

_AFTERWARDS = frozenset({"gpu.memory.free"})
"""Facts about a process that has ended."""


def ahead(recipe: Recipe) -> Recipe | None:
    """Returns the recipe with only the tests that can be made before a failure; None if these tests say too
    little.

    A clause that is only about logs is left out. The remaining clauses must point at this job: versions that
    do not fit, a variable that is set, or a framework together with a request, variable or label. Many jobs
    have the same request, and only their logs show which of them has the issue.
    """
    clauses = [
        msgspec.structs.replace(clause, any_of=tests) if clause.any_of else clause
        for clause in recipe.match.all_of
        if (tests := [test for test in clause.any_of or [clause] if _is_known_ahead(test)])
    ]
    if not _points_at_job(clauses):
        return None
    return msgspec.structs.replace(recipe, match=Match(all_of=clauses))


def _is_known_ahead(test: Test) -> bool:
    if test.compare is not None:
        return _AFTERWARDS.isdisjoint((test.compare.left, test.compare.right))
    return any((test.request, test.env, test.framework, test.label))


def _points_at_job(clauses: Sequence[Clause]) -> bool:
    tests = [test for clause in clauses for test in clause.any_of or [clause]]
    sets = any(test.env is not None and test.env.is_ in (EnvIs.SET, EnvIs.EQUALS) for test in tests)
    runs = any(test.framework is not None for test in tests)
    asks = any(test.request or test.env or test.label for test in tests)
    return any(test.compare is not None for test in tests) or sets or (runs and asks)


def in_template(case: Case) -> Iterator[Finding]:
    """Reports known issues that the template shows, whatever the node."""
    for recipe in case.recipes.values():
        found = _fitting(case, recipe, None)
        if found is not None:
            yield _finding(case, *found, on="")


def on_nodes(case: Case) -> Iterator[Finding]:
    """Reports known issues on some of the nodes that the job's node selector and affinity allow."""
    asked = [*asked_by_people(case.gang), *_selected(case)]
    nodes = [node for node in case.nodes.values() if fulfils(node, asked)]
    for recipe in case.recipes.values():
        if _fitting(case, recipe, None) is not None:
            continue
        found = {
            node.name: fitting for node in nodes if (fitting := _fitting(case, recipe, node)) is not None
        }
        if found:
            on = f"on {some(sorted(found))}, {len(found)} of the {len(nodes)} nodes on which the job may run"
            yield _finding(case, *found[min(found)], on=on)


def _selected(case: Case) -> list[Requirement]:
    """Returns the requirements that the node selectors of all templates share."""
    selectors = [template.spec.node_selector.items() for _, template in case.templates]
    everywhere = set.intersection(*map(set, selectors)) if selectors else set()
    return [Requirement(key=name, operator="In", values=[value]) for name, value in sorted(everywhere)]


def _fitting(case: Case, recipe: Recipe, node: Node | None) -> tuple[Matched, str] | None:
    """Returns the match, with the field of the first container that matches; None if none matches."""
    known = ahead(recipe)
    if known is None:
        return None
    for role, template in case.gang.templates.items():
        for container in training(template.containers):
            evidence = of_container(
                container, Evidence(), node, kind=case.gang.ref.kind, annotations=case.gang.annotations
            )
            answer = match(known, evidence)
            if isinstance(answer, Matched):
                field = case.spec.template_field(role)
                return answer, f"{field}.spec.containers[{container.get('name', '')}]"
    return None


def _finding(case: Case, fitting: Matched, field: str, *, on: str) -> Finding:
    recipe = fitting.recipe
    return Finding(
        name=recipe.name,
        severity=_severity(recipe),
        what=f"{recipe.title}{f': {on}' if on else ''}",
        where=case.at(field, "; ".join(hit.said for hit in fitting.hits)),
        means=_means(recipe),
        fix=_fix(recipe),
    )


def _severity(recipe: Recipe) -> Severity:
    change = recipe.change
    if change.hold is Hold.ALWAYS:
        return Severity.FAILS
    acts = bool(change.env) or change.placement is not None
    return Severity.RISKS if acts else Severity.ADVICE


def _means(recipe: Recipe) -> str:
    if recipe.change.hold is Hold.ALWAYS:
        return (
            "when the issue appears in a log, Rekindle does not start the job again: only its owner "
            "can correct the job"
        )
    if _severity(recipe) is Severity.RISKS:
        return (
            "the job fails with this issue, and Rekindle then starts the job again with this change, "
            "if the change can reach the ranks"
        )
    return "Rekindle reports the issue, and changes nothing"


def _fix(recipe: Recipe) -> str:
    lines = [
        f"env: [{{name: {name}, value: {msgspec.json.encode(value).decode()}}}]"
        for name, value in recipe.change.env.items()
    ]
    return "; ".join([*lines, *([fill(recipe.change.advise, {})] if recipe.change.advise else [])])
