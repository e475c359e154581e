"""Decides whether a recipe matches what is known of a failure, and why or why not. Pure.

Recipes come from load.py and objects.py; decide.py uses the answer. The input is a Recipe and an Evidence,
the output Matched or NotMatched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from detectors.text.log_template import Template, parse
from detectors.text.sizes import parse_size
from detectors.wire.contract import Fault
from recover.api.recipe_spec import (
    Comparison,
    EnvIs,
    EnvTest,
    Framework,
    LabelRule,
    Recipe,
    Relation,
    RequestIs,
    RequestTest,
    Test,
)
from recover.k8s.quantities import parse_count
from recover.recipes.values import FACTS, facts_of_labels, parse_version

__all__ = ["Evidence", "Hit", "LogLine", "Matched", "NotMatched", "match", "templates_of"]


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    number: int = 0
    """Line number, from 1; 0 if it is not known."""
    file: str = ""
    rank: int | None = None
    outlived: bool = False
    """Whether the gang has continued to train after the line."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts of one failed gang. Requests and env count as complete; the other fields
    may be incomplete."""

    lines: tuple[LogLine, ...] = ()
    exit_codes: frozenset[int] = frozenset()
    faults: frozenset[Fault] = frozenset()
    signals: frozenset[str] = frozenset()
    framework: Framework | None = None
    requests: dict[str, int] = {}
    """Requests of one container, by resource."""
    env: dict[str, str] = {}
    """Variables that the template itself sets; variables from envFrom are not included."""
    labels: dict[str, str] = {}
    """Labels of the node on which the gang failed."""
    facts: dict[str, str] = {}
    """Facts by the names of values.FACTS. These facts take precedence over facts from labels."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One test that is true."""

    said: str
    line: LogLine | None = None
    captured: dict[str, str] = {}


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    recipe: Recipe
    hits: tuple[Hit, ...]
    """Tests that are true, one for each clause."""
    captured: dict[str, str]
    explicit_env: dict[str, str]
    """Variables of the change that the template itself sets. The template's value takes precedence over the
    change."""


class NotMatched(msgspec.Struct, frozen=True, kw_only=True):
    recipe: Recipe
    why: tuple[tuple[str, ...], ...]
    """Reasons, for each clause that is not true, why each of its alternatives is not true."""
    hits: tuple[Hit, ...]
    """Tests that are true, one for each clause that is true."""


def match(recipe: Recipe, evidence: Evidence) -> Matched | NotMatched:
    """Tries all clauses, so that the answer names everything that is missing."""
    known = msgspec.structs.replace(evidence, facts=facts_of_labels(evidence.labels) | evidence.facts)
    hits: list[Hit] = []
    why: list[tuple[str, ...]] = []
    for clause in recipe.match.all_of:
        missed: list[str] = []
        for test in clause.any_of or (clause,):
            answer = _try(test, known)
            if isinstance(answer, Hit):
                hits.append(answer)
                break
            missed.append(answer)
        else:
            why.append(tuple(missed))
    if why:
        return NotMatched(recipe=recipe, why=tuple(why), hits=tuple(hits))
    captured: dict[str, str] = {}
    for hit in hits:
        captured = hit.captured | captured
    explicit = {name: evidence.env[name] for name in recipe.change.env if name in evidence.env}
    return Matched(recipe=recipe, hits=tuple(hits), captured=captured, explicit_env=explicit)


def templates_of(recipe: Recipe) -> Iterator[Template]:
    """Yields all templates that the recipe looks for in logs. A line that matches none of them decides
    nothing."""
    for clause in recipe.match.all_of:
        for test in (clause, *clause.any_of):
            if test.log:
                yield parse(test.log)


# --- one test: a Hit, or why the test is not true ---------------------------------------------------------


def _try(test: Test, evidence: Evidence) -> Hit | str:
    if test.log:
        return _log(test, evidence)
    if test.exit_code is not None:
        return _found(test.exit_code, evidence.exit_codes, "exit code")
    if test.fault is not None:
        return _found(test.fault.value, frozenset(fault.value for fault in evidence.faults), "fault")
    if test.signal:
        return _found(test.signal, evidence.signals, "signal")
    if test.framework is not None:
        known = frozenset([evidence.framework.value] if evidence.framework else [])
        return _found(test.framework.value, known, "framework")
    if test.request is not None:
        return _request(test.request, evidence.requests)
    if test.env is not None:
        return _env(test.env, evidence.env)
    if test.compare is not None:
        holds, said = _compare(test.compare, evidence.facts, {})
        return Hit(said=said) if holds else said
    assert test.label is not None, "check.py lets no test without a kind pass"
    return _label(test.label, evidence.labels)


def _found(wanted: object, known: frozenset[int] | frozenset[str], what: str) -> Hit | str:
    if wanted in known:
        return Hit(said=f"{what} {wanted}")
    seen = ", ".join(sorted(map(str, known)))
    return f"{what} {wanted}: {f'only {seen} was seen' if seen else f'no {what} is known'}"


def _log(test: Test, evidence: Evidence) -> Hit | str:
    template = parse(test.log)
    failed = ""
    for line in evidence.lines:
        captured = template.match(line.text)
        if captured is None:
            continue
        answers = [_compare(comparison, evidence.facts, captured) for comparison in test.where]
        if all(holds for holds, _ in answers):
            return Hit(said="; ".join(said for _, said in answers), line=line, captured=captured)
        failed = failed or next(f"{_place(line)}, but {said}" for holds, said in answers if not holds)
    return f"log {test.log!r}: {failed or 'in no line'}"


def _place(line: LogLine) -> str:
    return f"line {line.number}" if line.number else "in a line"


def _request(test: RequestTest, requests: dict[str, int]) -> Hit | str:
    count = requests.get(test.name, 0)
    said = f"{test.name}: {count} requested" if count else f"{test.name}: not requested"
    multiple = count > 0 and test.value > 0 and count % test.value == 0
    match test.is_:
        case RequestIs.REQUESTED:
            return Hit(said=said) if count else said
        case RequestIs.NOT_REQUESTED:
            return said if count else Hit(said=said)
        case RequestIs.MULTIPLE_OF:
            said += f", not a multiple of {test.value}" if count and not multiple else ""
            return Hit(said=f"{said}, a multiple of {test.value}") if multiple else said
        case RequestIs.NOT_MULTIPLE_OF:
            said += f", a multiple of {test.value}" if multiple else ""
            fits = count > 0 and not multiple
            return Hit(said=f"{said}, not a multiple of {test.value}") if fits else said
        case _:
            assert_never(test.is_)


def _env(test: EnvTest, env: dict[str, str]) -> Hit | str:
    value = env.get(test.name)
    said = f"{test.name} is not set" if value is None else f"{test.name} is {value!r}"
    match test.is_:
        case EnvIs.SET:
            holds = value is not None
        case EnvIs.UNSET:
            holds = value is None
        case EnvIs.EQUALS:
            holds = value == test.value
        case EnvIs.NOT_EQUALS:
            holds = value != test.value
        case _:
            assert_never(test.is_)
    return Hit(said=said) if holds else said


def _label(rule: LabelRule, labels: dict[str, str]) -> Hit | str:
    value = labels.get(rule.name)
    if value is None:
        return f"label {rule.name}: the node has none"
    if rule.values:
        holds = value in rule.values
    elif rule.at_least:
        number = parse_count(value)
        holds = number is not None and number >= int(rule.at_least)
    else:
        holds = True
    said = f"label {rule.name} is {value!r}"
    return Hit(said=said) if holds else said


# --- comparisons --------------------------------------------------------------------------------------------


def _compare(comparison: Comparison, facts: dict[str, str], captured: dict[str, str]) -> tuple[bool, str]:
    """Returns whether the comparison is true, and what was compared."""
    sides = {}
    for side in (comparison.left, comparison.right):
        name = side.strip("{}")
        text = captured.get(name) if side.startswith("{") else facts.get(side, "" if side in FACTS else side)
        if not text:
            return False, f"{name} is not known"
        sides[side] = text
    left, right = sides[comparison.left], sides[comparison.right]
    said = f"{_shown(comparison.left, left)}, {_shown(comparison.right, right)}"
    version_left, version_right = parse_version(left), parse_version(right)
    if version_left is not None and version_right is not None:
        return _versions(comparison, version_left, version_right), said
    size_left, size_right = parse_size(left), parse_size(right)
    if size_left is None or size_right is None:
        return False, f"{said}: cannot be compared"
    at_least = comparison.is_ is Relation.AT_LEAST
    return (size_left >= size_right if at_least else size_left <= size_right), said


def _shown(side: str, value: str) -> str:
    return value if side == value else f"{side.strip('{}')} is {value}"


def _versions(comparison: Comparison, left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    below = right[0] - left[0]
    match comparison.is_:
        case Relation.AT_LEAST:
            return left >= right
        case Relation.AT_MOST:
            return left <= right
        case Relation.NEWER_THAN:
            return left > right
        case Relation.OLDER_THAN:
            return left < right
        case Relation.SAME_MAJOR:
            return below == 0
        case Relation.OTHER_MAJOR:
            return below != 0
        case Relation.MAJORS_BELOW:
            return below == comparison.by
        case Relation.NOT_MAJORS_BELOW:
            return below != comparison.by
        case Relation.MORE_MAJORS_BELOW:
            return below > comparison.by
        case _:
            assert_never(comparison.is_)
