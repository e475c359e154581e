"""Checks what the types of a match cannot express, and the names in the match. Pure; check.py calls this
module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from detectors.text.log_template import BadTemplateError, Kind, Template, parse
from detectors.text.sizes import parse_size
from recover.api.recipe_spec import (
    KINDS,
    Comparison,
    EnvIs,
    EnvTest,
    LabelRule,
    Match,
    Relation,
    RequestIs,
    RequestTest,
    Test,
)
from recover.k8s.limits import KEY_NAME_CHARS_MAX
from recover.recipes.values import FACTS, Measure, parse_version

__all__ = [
    "VARIABLE",
    "Problem",
    "certain_captures",
    "is_name",
    "is_variable",
    "listed",
    "of_label",
    "of_match",
]

_VARIABLE_CHARS_MAX = 253
VARIABLE = f"expected letters, digits and _, not beginning with a digit, at most {_VARIABLE_CHARS_MAX}"
_BY = frozenset({Relation.MAJORS_BELOW, Relation.NOT_MAJORS_BELOW, Relation.MORE_MAJORS_BELOW})
_FOR_SIZES = frozenset({Relation.AT_LEAST, Relation.AT_MOST})
_CAPTURED = {Kind.INTEGER: Measure.VERSION, Kind.NUMBER: Measure.VERSION, Kind.SIZE: Measure.SIZE}


class Problem(msgspec.Struct, frozen=True):
    field: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"field {self.field or '(all)'}: value {self.value}: {self.expected}"


def of_match(match: Match) -> Iterator[Problem]:
    for number, clause in enumerate(match.all_of):
        at = f"match.allOf[{number}]"
        if not clause.any_of:
            yield from _of_test(clause, at)
            continue
        if given := [*_given(clause), *(["where"] if clause.where else [])]:
            yield Problem(at, f"anyOf and {', '.join(given)}", "expected anyOf alone; its tests go inside")
        for index, test in enumerate(clause.any_of):
            yield from _of_test(test, f"{at}.anyOf[{index}]")


def _of_test(test: Test, at: str) -> Iterator[Problem]:
    given = _given(test)
    if len(given) != 1:
        yield Problem(at, ", ".join(given) or "(none)", f"expected exactly one of {', '.join(KINDS)}")
    template = None
    if test.log:
        try:
            template = parse(test.log)
        except BadTemplateError as error:
            yield Problem(f"{at}.log", repr(test.log), str(error))
            return  # otherwise its comparisons would seem to name unknown placeholders
    elif test.where:
        yield Problem(f"{at}.where", f"{len(test.where)} comparisons", "expected only together with log")
    for index, comparison in enumerate(test.where):
        yield from _of_comparison(comparison, f"{at}.where[{index}]", template)
    if test.compare is not None:
        yield from _of_comparison(test.compare, f"{at}.compare", None)
    if test.signal and not is_name(test.signal):
        yield Problem(f"{at}.signal", repr(test.signal), "expected a code such as xid-31 or log-cuda-oom")
    if test.request is not None:
        yield from _of_request(test.request, f"{at}.request")
    if test.env is not None:
        yield from _of_env_test(test.env, f"{at}.env")
    if test.label is not None:
        yield from of_label(test.label, f"{at}.label", {})


def _given(test: Test) -> list[str]:
    return [kind for kind, name in KINDS.items() if getattr(test, name) not in (None, "")]


def _of_request(test: RequestTest, at: str) -> Iterator[Problem]:
    if not _is_qualified(test.name):
        yield Problem(f"{at}.name", repr(test.name), "expected a resource such as nvidia.com/gpu")
    takes_value = test.is_ in (RequestIs.MULTIPLE_OF, RequestIs.NOT_MULTIPLE_OF)
    if takes_value != bool(test.value):
        expected = "expected at least 1" if takes_value else "expected none"
        yield Problem(f"{at}.value", str(test.value), f"{expected} with is = {test.is_.value!r}")


def _of_env_test(test: EnvTest, at: str) -> Iterator[Problem]:
    if not is_variable(test.name):
        yield Problem(f"{at}.name", repr(test.name), VARIABLE)
    if test.value and test.is_ in (EnvIs.SET, EnvIs.UNSET):
        yield Problem(f"{at}.value", repr(test.value), f"expected none with is = {test.is_.value!r}")


def _of_comparison(comparison: Comparison, at: str, template: Template | None) -> Iterator[Problem]:
    measures = []
    for side, text in (("left", comparison.left), ("right", comparison.right)):
        measure = _measure(text, template)
        if isinstance(measure, str):
            yield Problem(f"{at}.{side}", repr(text), measure)
            return
        measures.append(measure)
    both = f"{comparison.left!r} and {comparison.right!r}"
    if measures[0] is not measures[1]:
        yield Problem(
            at, both, f"expected two of one kind, these are {measures[0].value} and {measures[1].value}"
        )
    elif measures[0] is Measure.SIZE and comparison.is_ not in _FOR_SIZES:
        yield Problem(
            f"{at}.is", repr(comparison.is_.value), "expected at-least or at-most for amounts of memory"
        )
    if not any(side.startswith("{") or side in FACTS for side in (comparison.left, comparison.right)):
        yield Problem(at, both, "expected at least one fact or placeholder, else it is always the same")
    if (comparison.is_ in _BY) != bool(comparison.by):
        expected = "expected at least 1" if comparison.is_ in _BY else "expected none"
        yield Problem(f"{at}.by", str(comparison.by), f"{expected} with is = {comparison.is_.value!r}")


def _measure(text: str, template: Template | None) -> Measure | str:
    """Returns what one side of a comparison is; a string says what was expected."""
    if text.startswith("{"):
        kinds = template.kinds if template is not None else {}
        kind = kinds.get(text.strip("{}"))
        if kind is None:
            return f"expected a placeholder of the log in the same test ({listed(kinds) or 'it has none'})"
        return _CAPTURED.get(kind, "expected a placeholder that is an integer, a number or a size")
    if text in FACTS:
        return FACTS[text].measure
    if parse_version(text) is not None:
        return Measure.VERSION
    if parse_size(text) is not None:
        return Measure.SIZE
    return f"expected a fact ({listed(FACTS)}), a {{placeholder}}, or a value such as 12.4 or 16GiB"


def of_label(rule: LabelRule, at: str, certain: dict[str, Kind]) -> Iterator[Problem]:
    if not _is_qualified(rule.name):
        yield Problem(f"{at}.name", repr(rule.name), "expected a label such as nvidia.com/gpu.compute.major")
    for index, value in enumerate(rule.values):
        if not _is_label_value(value):
            expected = "expected a label's value: letters, digits, -, _ and ., a letter or digit at both ends"
            yield Problem(f"{at}.values[{index}]", repr(value), expected)
    if rule.values and rule.at_least:
        yield Problem(at, "values and atLeast", "expected either values or atLeast")
    if rule.at_least and not rule.at_least.isdecimal():
        name = rule.at_least.removeprefix("{").removesuffix("}")
        if certain.get(name) is not Kind.INTEGER or rule.at_least != f"{{{name}}}":
            whole = [one for one, kind in certain.items() if kind is Kind.INTEGER]
            captured = listed(whole) or "there is none"
            expected = f"expected a whole number, or an integer that every match captures ({captured})"
            yield Problem(f"{at}.atLeast", repr(rule.at_least), expected)


def certain_captures(match: Match) -> dict[str, Kind]:
    """Returns the values that are captured in every case in which the recipe matches: in each alternative of
    some clause."""
    certain: dict[str, Kind] = {}
    for clause in match.all_of:
        captured = [_captured(test) for test in (clause.any_of or (clause,))]
        first = captured[0].items()
        certain |= {name: kind for name, kind in first if all(one.get(name) is kind for one in captured)}
    return certain


def _captured(test: Test) -> dict[str, Kind]:
    try:
        return parse(test.log).kinds if test.log else {}
    except BadTemplateError:
        return {}  # the check of the template reports this error


# --- names ------------------------------------------------------------------------------------------


def is_name(text: str) -> bool:
    parts = text.split("-")
    return text.isascii() and text.islower() and text[0].isalpha() and all(part.isalnum() for part in parts)


def is_variable(text: str) -> bool:
    """Whether the text can be the name of a variable, which is also a key of a ConfigMap."""
    return text.isascii() and text.isidentifier() and len(text) <= _VARIABLE_CHARS_MAX


def _is_qualified(text: str) -> bool:
    """Whether the text is `prefix/name` or `name` by the rules of Kubernetes. A name that breaks these rules
    would be written into a job's affinity, and then no pod of the job could be created."""
    prefix, slash, name = text.rpartition("/")
    is_domain = prefix == prefix.lower() and all(map(_is_plain, prefix.split("."))) and "_" not in prefix
    return _is_plain(name) and len(name) <= KEY_NAME_CHARS_MAX and (is_domain or not slash)


def _is_label_value(text: str) -> bool:
    return not text or _is_plain(text)


def _is_plain(part: str) -> bool:
    """Whether the text has only letters, digits, `-`, `_` and `.`, with a letter or digit at both ends."""
    ends = part[:1].isalnum() and part[-1:].isalnum()
    return part.isascii() and ends and all(char.isalnum() or char in "-_." for char in part)


def listed(names: Iterable[str]) -> str:
    return ", ".join(names)
