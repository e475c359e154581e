"""Tests the checks of an installation that concern the API server: version, kinds, definitions, clocks."""

from __future__ import annotations

import copy
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recover.doctor.installation.installed import Installation
from recover.doctor.installation.release_objects import ApiKinds, StatusWrite, Version
from tests.facts import names
from tests.recover.doctor.installation.cases import (
    NOW,
    changed,
    found,
    healthy,
    only,
)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("v1.36.3", []),
        ("v1.35.9+k3s1", ["kubernetes-before-1.36"]),
        ("v1.29.4-gke.1", ["kubernetes-before-1.30", "kubernetes-before-1.36"]),
        ("v1.26.0", ["kubernetes-before-1.30", "kubernetes-before-1.27", "kubernetes-before-1.36"]),
    ],
)
def test_what_an_older_api_server_lacks_is_told(version: str, names: list[str]) -> None:
    server = Version.of(version)
    assert server is not None

    assert [finding.name for finding in found(changed(server=server))] == names


def test_doctor_and_the_installation_page_know_the_same_older_versions() -> None:
    page = (Path(__file__).parents[4] / "docs" / "install.md").read_text()
    _, _, lacks = page.partition("## What older versions of Kubernetes lack")
    told = set(re.findall(r"^\| (1\.\d+) \|", lacks.partition("\n## ")[0], re.MULTILINE))

    oldest = changed(server=Version(1, 20, "v1.20.0"))

    assert {finding.name.removeprefix("kubernetes-before-") for finding in found(oldest)} == told


def test_a_kind_that_is_not_served_is_named() -> None:
    kinds = {"rekindle.dev": ApiKinds(("v1alpha1",), frozenset({"nodehealths", "incidents", "recoveries"}))}

    finding = only(changed(kinds=kinds))

    assert finding.name == "definitions-missing"
    assert names(finding.what, "Recipe", "v1alpha1")


def _edited(change: Any) -> Installation:
    """Returns an installation with one definition that somebody, or an older version, has written
    differently."""
    seen = healthy()
    definitions = copy.deepcopy(dict(seen.definitions))
    schema = definitions["nodehealths.rekindle.dev"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    change(schema["properties"]["status"]["properties"])
    return msgspec.structs.replace(seen, definitions=definitions)


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        (lambda status: status.pop("handsOff"), "status.handsOff"),
        (lambda status: status["devices"]["items"]["properties"].pop("pods"), "status.devices[].pods"),
        (
            lambda status: status["coverage"]["items"]["properties"]["source"]["enum"].remove("logs"),
            "status.coverage[].source=logs",
        ),
        (lambda status: status["findings"].update(maxItems=8), "status.findings (maxItems 8)"),
    ],
    ids=["field", "field of a list", "value", "room"],
)
def test_what_a_definition_lacks_is_named(change: Any, lacks: str) -> None:
    finding = only(_edited(change))

    assert finding.name == "definition-outdated"
    assert finding.where.value == lacks
    assert names(finding.fix, "rekindle crds", "kubectl apply")


def test_a_definition_that_knows_more_is_no_finding() -> None:
    assert found(_edited(lambda status: status.update(news={"type": "string"}))) == []


def test_clocks_that_are_off_are_told_together_by_their_side() -> None:
    clocks = [
        StatusWrite("node a", NOW + timedelta(hours=1), NOW),
        StatusWrite("node b", NOW + timedelta(minutes=5), NOW),
        StatusWrite("node c", NOW - timedelta(minutes=1), NOW),
        StatusWrite("node d", NOW + timedelta(seconds=10.9), NOW),
    ]

    ahead, behind = found(changed(clocks=tuple(clocks)))

    assert (ahead.name, ahead.where.object) == ("clock", "node a")
    assert (behind.name, behind.where.object) == ("clock", "node c")
    assert names(ahead.what, 2, "60 min", "node a", "node b")
    assert names(behind.what, 1, "60 s", "node c")


@pytest.mark.parametrize(("theirs_s", "ahead_s"), [(0.0, 0.0), (0.9, 0.0), (1.5, 0.5), (-2.0, -2.0)])
def test_the_second_that_the_api_server_leaves_out_is_no_skew(theirs_s: float, ahead_s: float) -> None:
    assert StatusWrite("n", NOW + timedelta(seconds=theirs_s), NOW).ahead_s == ahead_s
