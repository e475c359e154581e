"""Tests the whole report of an installation: when all is right, and when the caller may not read
everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from recover.doctor.installation.installed import Part
from recover.doctor.installation.told import InstallationAnswer, story
from recover.stories.words import Tone
from tests.facts import names
from tests.recover.doctor.installation.cases import (
    changed,
    healthy,
    reported,
)


def test_nothing_is_said_of_an_installation_that_is_all_right() -> None:
    report = reported(healthy())

    assert report.findings == ()
    assert report.not_made == ()
    verdict = story(report, healthy().now).verdict
    assert verdict.tone is Tone.GOOD
    assert names(verdict.text, len(report.passed))


def test_who_may_not_read_everything_is_not_told_that_all_is_well() -> None:
    report = reported(changed(unread={Part.CONTROLLER: "you have no permission to"}, controller=None))

    verdict = story(report, healthy().now).verdict

    assert report.findings == ()
    assert verdict.tone is Tone.WAITING
    assert names(verdict.text, len(report.passed), len(report.not_made))


@pytest.mark.parametrize("part", Part)
def test_what_may_not_be_read_leaves_checks_unmade_and_finds_nothing(part: Part) -> None:
    empty: dict[Part, dict[str, Any]] = {
        Part.DEFINITIONS: {"definitions": {}},
        Part.CONTROLLER: {"controller": None},
        Part.AGENTS: {"agents": None},
        Part.PODS: {"pods": ()},
        Part.LEASE: {"lease": None},
        Part.STATE: {"state": None},
        Part.SETTINGS: {"settings": None},
        Part.POLICIES: {"policies": {}},
        Part.ENVIRONMENT: {"policies": healthy().policies},
        Part.NODES: {"nodes": {}},
        Part.HEALTH: {"health": {}},
        Part.NAMESPACES: {"namespaces": {}},
    }
    seen = changed(unread={part: "you have no permission to"}, **empty.get(part, {}))
    if part is Part.POLICIES:
        seen = msgspec.structs.replace(
            seen, policies={key: b for key, b in healthy().policies.items() if key.startswith("Mutating")}
        )

    report = reported(seen)

    assert report.findings == ()
    assert report.not_made
    assert {one.why for one in report.not_made} == {seen.unread[part]}


def test_the_answer_for_programs_validates() -> None:
    schema = json.loads((Path(__file__).parents[4] / "docs/reference/answers.schema.json").read_text())
    report = reported(changed(controller=None, health={}, version="0.0.1", lease=None, policies={}))
    answer = json.loads(msgspec.json.encode(InstallationAnswer(installation=report)))

    jsonschema.validate(answer, {**schema, "oneOf": [{"$ref": "#/$defs/InstallationAnswer"}]})
    assert answer["installation"]["facts"]["leader"] is None
