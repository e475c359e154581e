"""Tests what the chart gives to the controller for repairs: templates of pods, and permissions on another
operator's reboots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.service.settings import load
from detectors.validation import command as validation_command
from recover.api.repair_state import StepKind
from recover.policy.settings import Repairs, Settings
from recover.repair.means import load_means
from tests.chart.helm import REGISTRY, Helm, of_kind
from tests.chart.rendered import BY_ANOTHER, annotations, mounted, settings_of

pytestmark = pytest.mark.control_plane


def test_the_controller_is_given_the_packaged_templates_of_a_repair_as_this_cluster_needs_them(
    helm: Helm, tmp_path: Path
) -> None:
    plain = templates_of(helm.render({"mode": "repair"}), tmp_path)
    told = {
        "mode": "repair",
        "image": {"registry": REGISTRY, "pullSecrets": ["pull"]},
        "agent": {
            "runtimeClassName": "nvidia",
            "nvmlLibrary": "/usr/lib64/libnvidia-ml.so.1",
            "hostPaths": {"kmsg": "/run/kmsg"},
        },
        "settings": {"catalogue": "[[xid]]\ncode = 999\n"},
    }
    set_up = templates_of(helm.render(told), tmp_path)

    assert plain == load_means(Repairs()).templates
    for step, template in set_up.items():
        spec = dict(template["spec"])
        assert spec.pop("imagePullSecrets") == [{"name": "pull"}]
        if step is StepKind.VALIDATE:
            (told_container,) = spec["containers"]
            assert spec.pop("runtimeClassName") == "nvidia"
            hosts = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v}
            assert (hosts["kmsg"], hosts["nvml"]) == ("/run/kmsg", "/usr/lib64/libnvidia-ml.so.1")
            mounts = {mount["name"]: mount["mountPath"] for mount in told_container["volumeMounts"]}
            assert mounts["settings"] == "/etc/rekindle"
            options = validation_command._parser().parse_args(told_container["args"][1:])
            assert str(options.catalogue) == "/etc/rekindle/catalogue.toml"
        else:
            assert spec == plain[step]["spec"]


def test_a_template_of_ones_own_is_taken_as_it_is_and_starts_the_controllers_anew(
    helm: Helm, tmp_path: Path
) -> None:
    own = {"spec": {"containers": [{"name": "mine", "command": ["sh", "-c", "a: |\n  'b'\n"]}]}}
    before = helm.render({"mode": "repair"})
    after = helm.render({"mode": "repair", "repair": {"templates": {"reboot": own}}})

    found = templates_of(after, tmp_path)
    assert found == {**load_means(Repairs()).templates, StepKind.REBOOT: own}
    assert annotations(before, "Deployment") != annotations(after, "Deployment")
    assert annotations(before, "DaemonSet") == annotations(after, "DaemonSet")


def test_where_the_chart_starts_no_agents_none_is_missed_for_lack_of_a_pod(
    helm: Helm, tmp_path: Path
) -> None:
    objects = helm.render({"agent": {"enabled": False}})
    (tmp_path / "controller.toml").write_text(settings_of(objects), encoding="utf-8")

    assert not load(tmp_path / "controller.toml", [], Settings).agents_are_pods


def templates_of(objects: list[dict[str, Any]], folder: Path) -> dict[StepKind, Any]:
    """Returns the templates as the controller reads them."""
    for name, text in of_kind(objects, "ConfigMap", "rekindle-repair")["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "controller.toml").write_text(settings_of(objects), encoding="utf-8")
    repair = load(folder / "controller.toml", [], Settings).repair
    paths = msgspec.structs.asdict(repair.templates)
    assert all(mounted(of_kind(objects, "Deployment"), path) for path in paths.values())
    laid = {step: path.replace("/etc/rekindle-repair", str(folder)) for step, path in paths.items()}
    here = msgspec.structs.replace(repair, templates=msgspec.structs.replace(repair.templates, **laid))
    return dict(load_means(here).templates)


def test_the_controller_may_ask_another_one_for_reboots_by_its_objects_in_mode_repair(
    helm: Helm, tmp_path: Path
) -> None:
    objects = helm.render(BY_ANOTHER)
    (tmp_path / "controller.toml").write_text(settings_of(objects), encoding="utf-8")
    told = load(tmp_path / "controller.toml", [], Settings).repair.maintenance
    maintenance = load_means(Repairs(maintenance=told)).maintenance

    assert maintenance is not None
    assert of_kind(objects, "ClusterRole", "rekindle-maintenance")["rules"] == [
        {
            "apiGroups": [maintenance.resource.group],
            "resources": [maintenance.resource.plural],
            "verbs": ["get", "create", "delete"],
        }
    ]
    binding = of_kind(objects, "ClusterRoleBinding", "rekindle-maintenance")
    assert [subject["name"] for subject in binding["subjects"]] == ["rekindle-controller"]
    without = {body["metadata"]["name"] for body in helm.render({"mode": "repair"})}
    assert "rekindle-maintenance" not in without


def test_a_mode_that_is_lowered_in_the_midst_of_a_reboot_leaves_the_right_to_take_its_object_back(
    helm: Helm,
) -> None:
    """Without this permission the repair could never end, and would block a removal of the release."""
    for mode in ("recover", "observe"):
        objects = helm.render({**BY_ANOTHER, "mode": mode})

        (rule,) = of_kind(objects, "ClusterRole", "rekindle-maintenance")["rules"]
        assert rule["verbs"] == ["get", "delete"]
        assert of_kind(objects, "ClusterRoleBinding", "rekindle-maintenance")
