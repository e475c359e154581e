"""The annotations in Chart.yaml, which a registry of charts reads, match the chart."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "rekindle"
PREFIX = "artifacthub.io/"
CHANGES = {"added", "changed", "deprecated", "removed", "fixed", "security"}


def annotations() -> dict[str, str]:
    """Returns the annotations, all of which are strings: Helm refuses others."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert all(isinstance(value, str) for value in chart["annotations"].values())
    assert all(name.startswith(PREFIX) for name in chart["annotations"])
    return {name.removeprefix(PREFIX): value for name, value in chart["annotations"].items()}


def test_the_listed_definitions_are_those_that_the_chart_installs() -> None:
    assert yaml.safe_load(annotations()["crds"]) == [
        told(yaml.safe_load(path.read_text(encoding="utf-8")))
        for path in sorted((CHART / "files" / "crds").iterdir())
    ]


def told(definition: dict[str, Any]) -> dict[str, str]:
    (version,) = definition["spec"]["versions"]
    kind = definition["spec"]["names"]["kind"]
    return {
        "kind": kind,
        "version": version["name"],
        "name": definition["metadata"]["name"],
        "displayName": kind,
        "description": version["schema"]["openAPIV3Schema"]["description"],
    }


def test_the_changes_are_of_kinds_that_a_changelog_has() -> None:
    changes = yaml.safe_load(annotations()["changes"])

    assert changes
    assert all(change["kind"] in CHANGES and change["description"].endswith(".") for change in changes)


def test_the_licence_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert annotations()["license"] == project["license"]


def test_no_address_is_named_that_is_not_ours() -> None:
    assert "://" not in (CHART / "Chart.yaml").read_text(encoding="utf-8")
