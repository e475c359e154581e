"""Label and field selectors, as lists and watches of the simulated API server take them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from chaos.apiserver import refusals

__all__ = ["Matcher", "matcher"]

Matcher = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s=!()]+)")
_COMMA = re.compile(r",(?![^(]*\))")  # except commas in a value list


def matcher(labels: str = "", fields: str = "") -> Matcher:
    """Returns a function that tells whether an object meets all requirements. Raises ApiError 400 for an
    invalid selector."""
    on_labels = [_requirement(part.strip()) for part in _COMMA.split(labels) if part.strip()]
    on_fields = [_field(part.strip()) for part in fields.split(",") if part.strip()]

    def matches(body: Mapping[str, Any]) -> bool:
        found = body["metadata"].get("labels") or {}
        return all(meets(found) for meets in on_labels) and all(meets(body) for meets in on_fields)

    return matches


def _requirement(text: str) -> Callable[[Mapping[str, str]], bool]:
    if fields := _SET.fullmatch(text):
        key, values = fields["key"], {value.strip() for value in fields["values"].split(",")}
        if fields["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if fields := _EQUAL.fullmatch(text):
        key, value = fields["key"], fields["value"]
        if fields["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if fields := _EXISTS.fullmatch(text):
        key, wanted = fields["key"], not fields["not"]
        return lambda labels: (key in labels) == wanted
    raise refusals.bad_request(f'unable to parse requirement: label selector "{text}"')


def _field(text: str) -> Matcher:
    fields = _EQUAL.fullmatch(text)
    if fields is None:
        raise refusals.bad_request(f'unable to parse requirement: field selector "{text}"')
    path, value, equal = fields["key"].split("."), fields["value"], fields["operator"] != "!="

    def matches(body: Mapping[str, Any]) -> bool:
        found: Any = body
        for step in path:
            found = found.get(step, "") if isinstance(found, Mapping) else ""
        return (str(found) == value) == equal

    return matches
