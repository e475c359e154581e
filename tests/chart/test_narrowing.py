"""Objects that people have written stay valid: the chart's definitions remove nothing that those of the last
release allowed, unless the change is declared here and the changelog announces it as breaking."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import CHART
from tests.chart.narrowing import narrowed, narrowed_schema

RELEASED = Path(__file__).parent / "released_crds"
"""Definitions of the last release. A release copies charts/rekindle/files/crds here and empties DECLARED."""
DECLARED: dict[str, str] = {}
"""Losses as `narrowed` reports them, each with words of the entry in CHANGELOG.md that begins with
**Breaking**."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 63, "minLength": 1, "pattern": "^a"},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "text": {"type": "string"},
        "count": {"type": "integer", "minimum": 0, "maximum": 10},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {
            "type": "array",
            "maxItems": 4,
            "items": {"type": "object", "properties": {"at": {"type": "string", "nullable": True}}},
        },
    },
    "x-kubernetes-validations": [{"rule": "size(self) < 4", "message": "expected less"}],
}
LOSSES: dict[str, tuple[str, Any]] = {
    ".text: removed": ("text", None),
    ".name: maxLength was 63, is 62": ("name.maxLength", 62),
    ".name: minLength was 1, is 2": ("name.minLength", 2),
    ".name: pattern was ^a, is ^b": ("name.pattern", "^b"),
    ".text: maxLength was absent, is 9": ("text.maxLength", 9),
    ".text: format was absent, is date": ("text.format", "date"),
    ".text: took any value, takes ['a']": ("text.enum", ["a"]),
    ".text: type was string, is integer": ("text.type", "integer"),
    ".mode: value b removed": ("mode.enum", ["a", "c"]),
    ".mode: default was a, is b": ("mode.default", "b"),
    ".count: minimum was 0, is 1": ("count.minimum", 1),
    ".count: maximum was 10, is 9": ("count.maximum", 9),
    ".free: x-kubernetes-preserve-unknown-fields removed": (
        "free.x-kubernetes-preserve-unknown-fields",
        None,
    ),
    ".map: takes no more names of one's own": ("map.additionalProperties", None),
    ".map{}: maxLength was absent, is 1": ("map.additionalProperties.maxLength", 1),
    ".list: maxItems was 4, is 3": ("list.maxItems", 3),
    ".list[].at: removed": ("list.items.properties.at", None),
    ".list[].at: nullable removed": ("list.items.properties.at.nullable", None),
    ".text: multipleOf is a word that this comparison does not know": ("text.multipleOf", 2),
}
"""Changes of SCHEMA's properties, each by the line that reports it. The value None removes the property."""
GAINS: dict[str, Any] = {
    "other": {"type": "string", "maxLength": 3},
    "name.maxLength": 64,
    "name.minLength": None,
    "name.pattern": None,
    "mode.enum": ["a", "b", "c"],
    "text.description": "other words",
    "count.type": "number",
    "count.minimum": -1,
    "text.minLength": 0,
    "list.maxItems": None,
    "list.items.properties.new": {"type": "string", "enum": ["a"]},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    schema = copy.deepcopy(SCHEMA)
    *folders, last = path.split(".")
    place = schema["properties"]
    for folder in folders:
        place = place[folder]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return schema


def test_the_charts_definitions_take_away_only_what_is_declared() -> None:
    lost = {
        line
        for path in sorted(RELEASED.iterdir())
        for line in narrowed(loaded(path), loaded(CHART / "files" / "crds" / path.name))
    }

    assert lost == set(DECLARED), "keep it, or declare it as breaking: CONTRIBUTING.md says how"


def test_what_is_declared_stands_in_the_changelog_as_breaking() -> None:
    text = (CHART.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = text.partition("## [Unreleased]")[2].partition("\n## [")[0]
    breaking = [entry for entry in unreleased.split("\n- ") if entry.startswith("**Breaking**")]

    for words in DECLARED.values():
        assert any(words in " ".join(entry.split()) for entry in breaking), words


@pytest.mark.parametrize("told", LOSSES)
def test_a_loss_is_told_by_its_place(told: str) -> None:
    assert list(narrowed_schema(SCHEMA, changed(*LOSSES[told]), "")) == [told]


@pytest.mark.parametrize("path", GAINS)
def test_what_is_added_or_loosened_is_no_loss(path: str) -> None:
    assert list(narrowed_schema(SCHEMA, changed(path, GAINS[path]), "")) == []


def test_a_field_may_become_required_only_with_a_default() -> None:
    required = {**SCHEMA, "required": ["name", "mode", "text"]}

    assert list(narrowed_schema(SCHEMA, required, "")) == [".text: is required"]


def test_a_new_rule_is_a_loss_and_another_way_to_compute_an_old_one_is_none() -> None:
    rules = [{"rule": "size(self) + 0 < 4", "message": "expected less"}, {"rule": "has(self.text)"}]

    lost = narrowed_schema(SCHEMA, {**SCHEMA, "x-kubernetes-validations": rules}, "s")

    assert list(lost) == ["s: new rule, has(self.text)"]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("scope", "Cluster", "scope was Namespaced, is Cluster"),
        ("names", {"plural": "recoveries"}, "names.kind was Recovery, is None"),
        ("versions", [], " v1alpha1: removed"),
    ],
)
def test_a_definition_that_becomes_another_is_a_loss(key: str, value: Any, told: str) -> None:
    old = loaded(RELEASED / "recoveries.yaml")

    lost = list(narrowed(old, {**old, "spec": {**old["spec"], key: value}}))

    assert any(told in line for line in lost), lost


@pytest.mark.parametrize("key", ["served", "storage", "subresources"])
def test_a_version_that_is_no_longer_served_or_stored_is_a_loss(key: str) -> None:
    old = loaded(RELEASED / "incidents.yaml")
    (version,) = old["spec"]["versions"]
    new = {
        **old,
        "spec": {**old["spec"], "versions": [{**version, key: {} if key == "subresources" else False}]},
    }

    assert len(list(narrowed(old, new))) == 1
    assert list(narrowed(old, old)) == []


def loaded(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
