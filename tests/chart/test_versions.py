"""Tests the release on each Kubernetes version on which it may be installed: a release with fewer features
says so, or is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.chart.helm import HELMS, Helm, HelmError, notes, of_kind

pytestmark = pytest.mark.control_plane

LACKS = {
    "1.25.0": {"scheduling gates (1.27)", "unready pods (1.27)", "(1.30)", "(1.36)"},
    "v1.26.15-gke.1": {"scheduling gates (1.27)", "unready pods (1.27)", "(1.30)", "(1.36)"},
    "1.27.0": {"(1.30)", "(1.36)"},
    "1.28.0": {"(1.30)", "(1.36)"},
    "1.30.0": {"(1.36)"},
    "1.33.0": {"(1.36)"},
    "v1.35.9-eks-1": {"(1.36)"},
    "1.36.0": set(),
}
"""Words in the notes, by version."""
WITHOUT_POLICIES = [version for version, lacks in LACKS.items() if "(1.30)" in lacks]


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    return Helm(request.param, tmp_path)


def taken(version: str, **values: Any) -> dict[str, Any]:
    """Returns values with which a release is not refused on that version."""
    return {**values, **({"policies": {"enabled": False}} if version in WITHOUT_POLICIES else {})}


@pytest.mark.parametrize("version", LACKS)
def test_the_notes_say_what_this_kubernetes_lacks(helm: Helm, tmp_path: Path, version: str) -> None:
    said = notes(helm, tmp_path, version, taken(version))

    assert {words for lacks in LACKS.values() for words in lacks if words in said} == LACKS[version]
    assert ("Recoveries" in said) is (version in WITHOUT_POLICIES), "whom no admission policy stops"
    number = version.removeprefix("v").partition("-")[0]  # Helm 3 leaves out the rest
    assert (number in said) is bool(LACKS[version])


def test_the_notes_say_which_mode_holds_where(helm: Helm, tmp_path: Path) -> None:
    modes = {"pools": {"a100": "observe", "gone": None}, "namespaces": {"a100": "recover", "b": "repair"}}

    said = notes(helm, tmp_path, "1.36.0", {"mode": "recover", "modes": modes})

    assert "mode recover" in said
    lines = [line for line in said.splitlines() if line.startswith("In ")]
    names = [("namespace a100", "recover"), ("namespace b", "repair", "recover"), ("pool a100", "observe")]
    for line, in_it in zip(sorted(lines), names, strict=True):
        assert all(name in line for name in in_it), line
    assert "gone" not in said, "null is how Helm takes a value back"


@pytest.mark.parametrize("version", LACKS)
def test_the_release_holds_nothing_that_this_kubernetes_does_not_know(helm: Helm, version: str) -> None:
    objects = helm.render(taken(version, mode="repair"), kubernetes=version)

    kinds = {body["kind"] for body in objects}
    assert ("ValidatingAdmissionPolicy" in kinds) is (version not in WITHOUT_POLICIES)
    assert ("MutatingAdmissionPolicy" in kinds) is ("(1.36)" not in LACKS[version])
    settings = of_kind(objects, "ConfigMap", "rekindle-settings")["data"]["controller.toml"]
    assert ("scheduling_gates = false" in settings) is ("scheduling gates (1.27)" in LACKS[version])
    budget = of_kind(objects, "PodDisruptionBudget")["spec"]
    assert ("unhealthyPodEvictionPolicy" in budget) is ("unready pods (1.27)" not in LACKS[version])


@pytest.mark.parametrize("version", WITHOUT_POLICIES)
def test_a_release_that_nothing_would_hold_is_refused_until_that_is_accepted(
    helm: Helm, version: str
) -> None:
    number = version.removeprefix("v").partition("-")[0]  # Helm 3 leaves out the rest
    with pytest.raises(HelmError, match=rf"policies\.enabled: .*{re.escape(number)}"):
        helm.render({}, kubernetes=version)

    assert of_kind(helm.render({"policies": {"enabled": False}}, kubernetes=version), "DaemonSet")


def test_an_api_server_that_is_too_old_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.25\.0-0"):
        helm.render({"policies": {"enabled": False}}, kubernetes="1.24.17")


@pytest.mark.parametrize(("is_enabled", "values"), [(True, {}), (False, {"nvml": {"enabled": False}})])
def test_the_notes_advise_about_nvml_only_where_agents_read_it(
    helm: Helm, tmp_path: Path, is_enabled: bool, values: dict[str, Any]
) -> None:
    said = notes(helm, tmp_path, "1.36.0", {"settings": {"agent": values}})

    assert ("NVML" in said) is is_enabled
