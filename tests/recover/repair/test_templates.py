"""Tests the operator's own pod templates: which are accepted, and which end the start of the controller
with a message about the mistake."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from detectors.service.settings import SettingsError
from recover.api.repair_state import StepKind
from recover.policy.settings import Maintenance, Repairs, Templates, Webhook
from recover.repair.means import load_means


def test_without_files_the_packaged_templates_are_used() -> None:
    found = load_means(Repairs()).templates

    assert set(found) == set(StepKind)
    assert found[StepKind.RESET]["spec"]["containers"][0]["name"] == "reset"


def test_a_file_of_ones_own_takes_the_place_of_one_template(tmp_path: Path) -> None:
    file = tmp_path / "reboot.yaml"
    file.write_text("spec: {containers: [{name: mine, image: bmc:1}], hostNetwork: true}")

    found = load_means(Repairs(templates=Templates(reboot=str(file)))).templates

    assert found[StepKind.REBOOT]["spec"]["hostNetwork"] is True
    assert found[StepKind.RESET]["spec"]["containers"][0]["name"] == "reset"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("spec: [", ("YAML", "flow node")),
        ("since: 2026-02-31", ("YAML", "day is")),
        ("", ("`spec.containers`",)),
        ("containers: []", ("`spec.containers`",)),
        ("spec: {containers: []}", ("`spec.containers`",)),
        ("spec: {containers: [3]}", ("`spec.containers`",)),
        ("spec: {containers: [{name: x, env: {A: b}}]}", ("`object`", "`$.spec.containers[0].env`")),
        ("spec: {containers: [{name: x}], initContainers: [a]}", ("`$.spec.initContainers[0]`",)),
        ("{metadata: {labels: [a]}, spec: {containers: [{name: x}]}}", ("`$.metadata.labels`",)),
        ("spec: {nodeName: n7, containers: [{name: x}]}", ("spec.nodeName", "'n7'")),
        (None, (os.strerror(errno.ENOENT),)),
    ],
)
def test_a_template_that_cannot_be_used_names_setting_file_and_what_was_expected(
    tmp_path: Path, text: str | None, names: tuple[str, ...]
) -> None:
    file = tmp_path / "reset.yaml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(SettingsError) as raised:
        load_means(Repairs(templates=Templates(reset=str(file))))

    assert all(name in str(raised.value) for name in names), raised.value
    assert f"repair.templates.reset: {file}" in str(raised.value)
    assert "\n" not in str(raised.value)


MANIFEST = "{apiVersion: janitor.example/v1, kind: RebootNode, spec: {nodeName: '{node}'}}"


def test_an_object_for_reboots_is_read_from_the_settings() -> None:
    found = load_means(Repairs(maintenance=Maintenance(plural="rebootnodes", manifest=MANIFEST))).maintenance

    assert found is not None
    assert found.resource.path("x") == "/apis/janitor.example/v1/rebootnodes/x"
    assert found.namespace == ""


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (Repairs(maintenance=Maintenance(plural="rebootnodes")), ("plural", "manifest")),
        (Repairs(maintenance=Maintenance(manifest=MANIFEST)), ("plural", "manifest")),
        (Repairs(maintenance=Maintenance(plural="x", manifest="[")), ("YAML",)),
        (Repairs(maintenance=Maintenance(plural="x", manifest="at: 2026-02-31")), ("YAML", "day is")),
        (Repairs(maintenance=Maintenance(plural="x", manifest="kind: X")), ("`apiVersion`", "`kind`")),
        (
            Repairs(
                maintenance=Maintenance(plural="x", manifest="{apiVersion: a/v1, kind: X, metadata: [a]}")
            ),
            ("metadata", "`object`"),
        ),
        (
            Repairs(
                maintenance=Maintenance(plural="x", manifest=MANIFEST), webhook=Webhook(url="http://bmc/")
            ),
            ("maintenance", "webhook"),
        ),
    ],
)
def test_an_object_that_cannot_be_used_ends_the_start(settings: Repairs, names: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError) as raised:
        load_means(settings)

    assert all(name in str(raised.value) for name in names), raised.value
