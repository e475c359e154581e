"""What Helm 3 and Helm 4 make of the chart: the API server takes every object, the daemons their settings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from detectors.agent import command as agent_command
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.service.settings import AgentSettings, load
from detectors.validation import command as validation_command
from recover.api.repair_state import StepKind
from recover.cli import controller_command, leave_command
from recover.doctor.installation import shipped
from recover.k8s.kinds import NAMESPACES
from recover.model.modes import Mode
from recover.policy.settings import Repairs, Settings
from recover.repair.means import load_means
from tests.chart.helm import (
    CHART,
    HELMS,
    KUBERNETES,
    NAMESPACE,
    REGISTRY,
    Helm,
    HelmError,
    of_kind,
    path_of,
)
from tests.chart.wrong_values import WRONG, WRONG_TOGETHER
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import manifests

pytestmark = pytest.mark.control_plane

DIGEST = "sha256:" + "0123456789abcdef" * 4
EVERYTHING: dict[str, Any] = {
    "mode": "repair",
    "modes": {"pools": {"A100.80G": "observe", "gone": None}, "namespaces": {"team": "recover"}},
    "labels": {"team": "ml-platform"},
    "image": {"registry": "registry.example.com:5000/team", "digest": DIGEST, "pullSecrets": ["pull"]},
    "settings": {
        "controller": {
            "timing": {"settle_s": 5, "settle_max_s": 12.5},
            "budgets": {"quarantined_nodes_max": 20_000_000, "pool_label": 'a"b\\<c>'},
            "accelerators": ["example.com/npu"],
            "repair": {"cool_down_s": 60, "webhook": {"url": "https://machines.example/reboot"}},
        },
        "agent": {"logs": {"stall_min_s": 900}, "nvml": {"enabled": False}},
        "catalogue": '[[xid]]\ncode = 999\n# "quoted"\n',
    },
    "agent": {
        "nodeLabels": [],
        "nodeSelector": {"pool": "gpu"},
        "runtimeClassName": "nvidia",
        "nvmlLibrary": "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
        "maxUnavailable": 1,
    },
    "repair": {
        "image": "registry.example.com/torch:1",
        "templates": {"reset": {"spec": {"containers": [{"name": "mine", "image": "reset:2"}]}}},
        "webhookSecret": "machines",
    },
    "controller": {
        "replicas": 3,
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "logLevel": "debug",
    },
    "networkPolicy": {"egressPorts": [443, 6443], "apiServerCIDRs": ["10.0.0.0/28", "fd00::1/128"]},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus", "team": "observability"}},
    "alerts": {"enabled": True},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Rekindle"}},
}
STANDARD = {
    f"app.kubernetes.io/{name}"
    for name in ("name", "instance", "version", "component", "part-of", "managed-by")
}
REBOOT_NODE = """
apiVersion: janitor.example.com/v1
kind: RebootNode
spec: {nodeName: "{node}", reason: "{fault}, {incident}"}
"""
BY_ANOTHER: dict[str, Any] = {
    "mode": "repair",
    "settings": {
        "controller": {"repair": {"maintenance": {"plural": "rebootnodes", "manifest": REBOOT_NODE}}}
    },
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "mode recover": {"mode": "recover"},
    "mode repair": {"mode": "repair"},
    "everything set": EVERYTHING,
    "reboots by another controller": BY_ANOTHER,
    "one controller, no limits": {
        "controller": {"replicas": 1},
        "networkPolicy": {"enabled": False},
        "crds": {"keep": False},
    },
    "definitions alone": {
        "agent": {"enabled": False},
        "controller": {"enabled": False},
        "rbac": {"enabled": False},
        "policies": {"enabled": False},
    },
}


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    return Helm(request.param, tmp_path)


@pytest.mark.parametrize("case", CASES)
async def test_the_api_server_takes_every_object(helm: Helm, api_server: ControlPlane, case: str) -> None:
    async with KubeApi(api_server.credentials()) as api:
        await there(api, {"metadata": {"name": NAMESPACE}})

        refused = [await refusal(api, body) for body in helm.render(CASES[case])]

    assert [message for message in refused if message] == []


@pytest.mark.parametrize("case", CASES)
def test_both_helms_make_the_same(tmp_path: Path, case: str) -> None:
    three, four = (Helm(program, tmp_path).render(CASES[case]) for program in HELMS)

    assert sorted(map(yaml.safe_dump, three)) == sorted(map(yaml.safe_dump, four))


def test_lint_finds_nothing_wrong(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", f"--kube-version={KUBERNETES}", str(CHART))


@pytest.mark.parametrize("what", {**WRONG, **WRONG_TOGETHER})
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, what: str) -> None:
    wrong, key = {**WRONG, **WRONG_TOGETHER}[what]

    with pytest.raises(HelmError, match=key):
        helm.render(wrong)


@pytest.mark.parametrize("case", ["defaults", "mode recover", "mode repair", "everything set"])
def test_the_daemons_take_their_settings_and_arguments(helm: Helm, tmp_path: Path, case: str) -> None:
    objects = helm.render(CASES[case])
    for name, text in of_kind(objects, "ConfigMap", "rekindle-settings")["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    controller = load(tmp_path / "controller.toml", [], Settings)
    agent = load(tmp_path / "agent.toml", [], AgentSettings)

    assert controller.mode == CASES[case].get("mode", "observe")
    assert controller.namespace == NAMESPACE
    assert controller.images.scan == container(of_kind(objects, "Deployment"))["image"]
    assert agent.logs.excluded_namespaces == ("kube-*", NAMESPACE)
    assert controller.agents_are_pods, "their readiness shows that they live"
    assert agent.publishing.idle_refresh_s == 0, "so an idle cluster causes no writes"
    if case == "everything set":
        assert (controller.timing.settle_s, controller.timing.settle_max_s) == (5, 12.5)
        assert controller.budgets.pool_label == 'a"b\\<c>'
        assert controller.budgets.quarantined_nodes_max == 20_000_000
        assert controller.accelerators == ("example.com/npu",)
        assert controller.repair.cool_down_s == 60
        assert controller.repair.webhook.url == "https://machines.example/reboot"
        assert mounted(of_kind(objects, "Deployment"), controller.repair.webhook.token_file)
        assert controller.images.repair == "registry.example.com/torch:1"
        assert controller.modes.pools == {"A100.80G": Mode.OBSERVE}
        assert controller.modes.namespaces == {"team": Mode.RECOVER}
        assert not agent.nvml.enabled
        assert (tmp_path / "catalogue.toml").read_text() == EVERYTHING["settings"]["catalogue"]
        assert mounted(of_kind(objects, "DaemonSet"), agent.catalogue.extra)
    leaving = of_kind(objects, "Job")
    options = leave_command._parser().parse_args(container(leaving)["args"][1:])
    assert mounted(leaving, str(options.settings))
    for kind, parser in (
        ("Deployment", controller_command._parser()),
        ("DaemonSet", agent_command._parser()),
    ):
        options = parser.parse_args(container(of_kind(objects, kind))["args"][1:])
        port = container(of_kind(objects, kind))["ports"][0]["containerPort"]
        assert options.listen == f"0.0.0.0:{port}"
        assert mounted(of_kind(objects, kind), str(options.settings))


@pytest.mark.parametrize("values", [{"uninstall": {"takeBack": False}}, {"controller": {"enabled": False}}])
def test_a_release_that_wrote_nothing_or_shall_leave_it_has_nothing_to_take_back(
    helm: Helm, values: dict[str, Any]
) -> None:
    hooks = [body for body in helm.render({}) if "helm.sh/hook" in body["metadata"].get("annotations", {})]
    left = [body for body in helm.render(values) if body["metadata"]["name"] == "rekindle-leave"]

    assert {(b["kind"], b["metadata"]["annotations"]["helm.sh/hook"]) for b in hooks} == {
        ("Pod", "test"),
        ("ClusterRole", "pre-delete"),
        ("ClusterRoleBinding", "pre-delete"),
        ("Job", "pre-delete"),
    }
    assert left == []


def test_the_settings_of_one_daemon_roll_out_that_one_alone(helm: Helm) -> None:
    before = helm.render({})
    after = helm.render({"settings": {"agent": {"logs": {"stall_min_s": 900}}}})

    assert annotations(before, "Deployment") == annotations(after, "Deployment")
    assert annotations(before, "DaemonSet") != annotations(after, "DaemonSet")


def test_a_digest_and_a_registry_name_the_image_of_every_container(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    expected = f"registry.example.com:5000/team/rekindle@{DIGEST}"
    assert set(images(objects)) == {expected}
    assert len(list(images(objects))) == 4
    assert f'scan = "{expected}"' in settings_of(objects)


def test_the_registry_of_all_charts_comes_before_that_of_this_one(helm: Helm) -> None:
    shared = {"global": {"imageRegistry": "mirror.example/all/"}, "image": {"registry": "registry.example"}}

    assert set(images(helm.render(shared))) == {"mirror.example/all/rekindle:0.1.0"}


@pytest.mark.parametrize(
    "image", [{}, {"registry": "team"}, {"repository": "team/rekindle"}, {"tag": "1"}], ids=str
)
def test_a_name_that_anybody_may_own_is_refused_with_what_to_set(helm: Helm, image: dict[str, str]) -> None:
    with pytest.raises(HelmError, match=r"image\.registry: ") as refused:
        helm.render({"image": image})

    said = str(refused.value)
    assert "docker push REGISTRY/rekindle:0.1.0" in said
    assert "--set image.registry=REGISTRY" in said
    assert "image.digest=sha256:" in said


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"image": {"registry": "localhost"}}, "localhost/rekindle:0.1.0"),
        ({"image": {"registry": "registry:5000"}}, "registry:5000/rekindle:0.1.0"),
        ({"image": {"registry": "docker.io/team"}}, "docker.io/team/rekindle:0.1.0"),
        ({"image": {"repository": "ghcr.io/team/rekindle", "tag": "2"}}, "ghcr.io/team/rekindle:2"),
        ({"image": {"digest": DIGEST}}, f"rekindle@{DIGEST}"),
        ({"global": {"imageRegistry": "mirror.example"}}, "mirror.example/rekindle:0.1.0"),
    ],
    ids=str,
)
def test_an_image_is_named_by_a_registry_or_by_its_digest(
    helm: Helm, values: dict[str, Any], expected: str
) -> None:
    objects = helm.render(values)

    assert set(images(objects)) == {expected}
    assert f'scan = "{expected}"' in settings_of(objects)


def test_the_chart_starts_no_second_image_of_its_own(helm: Helm) -> None:
    objects = helm.render({"mode": "repair"})

    named = re.findall(r'"([^"]*rekindle:[^"]*)"', settings_of(objects))
    assert {*images(objects), *named} == {f"{REGISTRY}/rekindle:0.1.0"}


def test_the_documented_command_lists_every_image_that_ones_own_values_name(helm: Helm) -> None:
    page = (CHART.parents[1] / "docs" / "install.md").read_text(encoding="utf-8")
    command, _, listing = page[page.index("helm template ") :].partition("```")[0].partition("|\n")
    flags = [f"--kube-version={KUBERNETES}", *helm.values(EVERYTHING)]
    assert command.split()[:4] == ["helm", "template", "rekindle", "charts/rekindle"]

    rendered = helm.run("template", "rekindle", str(CHART), *flags)
    listed = subprocess.run(listing, shell=True, input=rendered, capture_output=True, text=True, check=True)

    ours = f"registry.example.com:5000/team/rekindle@{DIGEST}"
    assert set(listed.stdout.split()) == {ours, "registry.example.com/torch:1", "reset:2"}


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
    """As the controller reads them."""
    for name, text in of_kind(objects, "ConfigMap", "rekindle-repair")["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "controller.toml").write_text(settings_of(objects), encoding="utf-8")
    repair = load(folder / "controller.toml", [], Settings).repair
    paths = msgspec.structs.asdict(repair.templates)
    assert all(mounted(of_kind(objects, "Deployment"), path) for path in paths.values())
    laid = {step: path.replace("/etc/rekindle-repair", str(folder)) for step, path in paths.items()}
    here = msgspec.structs.replace(repair, templates=msgspec.structs.replace(repair.templates, **laid))
    return dict(load_means(here).templates)


def settings_of(objects: list[dict[str, Any]]) -> str:
    return str(of_kind(objects, "ConfigMap", "rekindle-settings")["data"]["controller.toml"])


def annotations(objects: list[dict[str, Any]], kind: str) -> dict[str, str]:
    return dict(of_kind(objects, kind)["spec"]["template"]["metadata"]["annotations"])


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
    """Without it the repair could never end, and a removal would be refused for it."""
    for mode in ("recover", "observe"):
        objects = helm.render({**BY_ANOTHER, "mode": mode})

        (rule,) = of_kind(objects, "ClusterRole", "rekindle-maintenance")["rules"]
        assert rule["verbs"] == ["get", "delete"]
        assert of_kind(objects, "ClusterRoleBinding", "rekindle-maintenance")


def test_every_pod_of_the_controllers_account_may_run_where_the_controller_may(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    specs = [body["spec"] for body in objects if body["kind"] == "Pod"]
    specs += [of_kind(objects, kind)["spec"]["template"]["spec"] for kind in ("Deployment", "Job")]

    assert len(specs) == 3
    for spec in specs:
        assert spec["serviceAccountName"] == "rekindle-controller"
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "infra"}
        assert spec["tolerations"] == EVERYTHING["controller"]["tolerations"]
    assert [spec.get("priorityClassName") for spec in specs] == [None, *["system-cluster-critical"] * 2]


def test_a_pod_gets_a_token_and_no_more_than_it_asks_for(helm: Helm) -> None:
    objects = helm.render({"mode": "repair"})
    accounts = [body for body in objects if body["kind"] == "ServiceAccount"]

    assert [body["automountServiceAccountToken"] for body in accounts] == [False, False]
    assert len(pod_specs(objects)) == 4
    for spec in pod_specs(objects):
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (True, False)
    for template in of_kind(objects, "ConfigMap", "rekindle-repair")["data"].values():
        spec = yaml.safe_load(template)["spec"]
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)


def test_every_pod_but_the_agent_runs_as_nobody_and_cannot_become_more(helm: Helm) -> None:
    others = [s for s in pod_specs(helm.render({})) if s["serviceAccountName"] != "rekindle-agent"]

    assert len(others) == 3
    for spec in others:
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert [one["securityContext"] for one in spec["containers"]] == [
            {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        ]
        assert "hostUsers" not in spec


def test_whoever_asks_for_it_has_the_controllers_pods_in_user_namespaces(helm: Helm) -> None:
    asked = {"controller": {"hostUsers": False}}

    told = {s["serviceAccountName"]: s.get("hostUsers") for s in pod_specs(helm.render(asked))}

    assert told == {"rekindle-agent": None, "rekindle-controller": False}
    with pytest.raises(HelmError, match=r"controller\.hostUsers: .*1\.32"):
        helm.render(asked, kubernetes="1.32.9")


def pod_specs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of all pods that the chart itself starts."""
    specs = (
        body.get("spec", {}) for body in objects if body["kind"] in ("Pod", "Job", "Deployment", "DaemonSet")
    )
    return [spec.get("template", {}).get("spec", spec) for spec in specs]


@pytest.mark.parametrize("asked", ["avoid", "never", "allow"])
def test_the_controllers_token_is_kept_off_the_nodes_where_tenants_code_runs(helm: Helm, asked: str) -> None:
    labels = ["nvidia.com/gpu.present", "example.com/npu"]
    none = {"matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in labels]}
    expected = {
        "avoid": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": none}]
            }
        },
        "never": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [none]}}
        },
        "allow": None,
    }

    objects = helm.render({"agent": {"nodeLabels": labels}, "controller": {"acceleratorNodes": asked}})

    ours = [s for s in pod_specs(objects) if s["serviceAccountName"] == "rekindle-controller"]
    assert [spec.get("affinity") for spec in ours] == [expected[asked]] * 3


def test_labels_stand_on_every_object_and_pod_and_take_the_place_of_none_of_ours(helm: Helm) -> None:
    objects = helm.render(EVERYTHING, apis=("monitoring.coreos.com/v1/PodMonitor",))
    templates = [body["spec"]["template"] for body in objects if "template" in body.get("spec", {})]

    kinds = {
        "DaemonSet",
        "ClusterRole",
        "CustomResourceDefinition",
        "ValidatingAdmissionPolicyBinding",
        "Lease",
    }
    assert kinds <= {body["kind"] for body in objects}
    for body in [*objects, *templates]:
        team = "observability" if body.get("kind") == "PodMonitor" else "ml-platform"
        assert body["metadata"]["labels"]["team"] == team
        assert body["metadata"]["labels"]["app.kubernetes.io/name"] == "rekindle"
        assert body["metadata"]["labels"].keys() >= STANDARD


def test_a_release_may_be_part_of_a_larger_whole(helm: Helm) -> None:
    whole = {"app.kubernetes.io/part-of": "ml-platform"}

    objects = helm.render({"labels": whole})

    assert {body["metadata"]["labels"]["app.kubernetes.io/part-of"] for body in objects} == {"ml-platform"}
    assert {b["metadata"]["labels"]["app.kubernetes.io/part-of"] for b in helm.render({})} == {"rekindle"}


def test_the_agent_runs_on_tainted_nodes_and_sees_the_node_read_only(helm: Helm) -> None:
    spec = of_kind(helm.render({}), "DaemonSet")["spec"]["template"]["spec"]

    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert all(mount["readOnly"] for mount in spec["containers"][0]["volumeMounts"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume} == {
        "/dev/kmsg",
        "/var/log/pods",
        "/proc/sys/kernel/random",
        "/proc/driver",
        "/sys/bus",
        "/sys/class",
        "/sys/devices",
        "/sys/fs/cgroup",
        "/var/lib/kubelet/pod-resources",
    }


def test_agent_and_controller_reach_the_api_server_and_a_webhook_and_nothing_else(helm: Helm) -> None:
    def reached(url: str) -> dict[str, list[tuple[str, int]]]:
        webhook = {"settings": {"controller": {"repair": {"webhook": {"url": url}}}}} if url else {}
        policies = [body for body in helm.render(webhook) if body["kind"] == "NetworkPolicy"]
        return {body["metadata"]["name"]: open_ports(body["spec"]["egress"]) for body in policies}

    server, names = [("TCP", 443), ("TCP", 6443)], [("TCP", 53), ("UDP", 53)]
    ours = {f"rekindle-{name}": server for name in ("agent", "controller", "leave", "test")}

    assert reached("") == ours
    for url, port in (
        ("https://machines.example:8443/reboot", 8443),
        ("https://machines.example/reboot?of=1:2", 443),
        ("http://[fd00::1]/reboot", 80),
    ):
        asking = sorted({*server, ("TCP", port), *names})
        assert reached(url) == {**ours, "rekindle-controller": asking}, url


def test_whoever_knows_the_api_servers_addresses_closes_all_others(helm: Helm) -> None:
    policies = [body["spec"] for body in helm.render(EVERYTHING) if body["kind"] == "NetworkPolicy"]

    assert len(policies) == 4
    for policy in policies:
        server, *_webhook = policy["egress"]
        assert [one["ipBlock"]["cidr"] for one in server["to"]] == ["10.0.0.0/28", "fd00::1/128"]
        assert {port["port"] for port in server["ports"]} == {443, 6443}


def test_where_no_port_is_told_nothing_limits_what_is_reached(helm: Helm) -> None:
    objects = helm.render({"networkPolicy": {"egressPorts": []}})

    assert {tuple(b["spec"]["policyTypes"]) for b in objects if b["kind"] == "NetworkPolicy"} == {
        ("Ingress",)
    }


@pytest.mark.parametrize(
    ("values", "expected"), [({}, ["monitoring"]), ({"scrapeNamespaces": ["a", "b"]}, ["a", "b"])], ids=str
)
def test_metrics_are_told_to_pods_of_these_namespaces_alone(
    helm: Helm, values: dict[str, Any], expected: list[str]
) -> None:
    objects = helm.render({"networkPolicy": values})

    within = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": expected}
    for name, port in (("agent", 9101), ("controller", 9100)):
        assert of_kind(objects, "NetworkPolicy", f"rekindle-{name}")["spec"]["ingress"] == [
            {
                "from": [{"namespaceSelector": {"matchExpressions": [within]}}],
                "ports": [{"port": port, "protocol": "TCP"}],
            }
        ]
    for name in ("leave", "test"):
        assert of_kind(objects, "NetworkPolicy", f"rekindle-{name}")["spec"]["ingress"] == []


def test_metrics_are_told_to_nobody_where_no_namespace_is_named(helm: Helm) -> None:
    objects = helm.render({"networkPolicy": {"scrapeNamespaces": []}})

    assert [b["spec"]["ingress"] for b in objects if b["kind"] == "NetworkPolicy"] == [[]] * 4


def open_ports(rules: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted({(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]})


@pytest.mark.parametrize(
    ("mode", "asked", "kubernetes", "there"),
    [
        ("observe", "auto", "1.36.0", False),
        ("recover", "auto", "1.36.0", True),
        ("recover", "auto", "v1.36.3-eks-1", True),
        ("recover", "auto", "1.35.9", False),
        ("observe", True, "1.36.0", True),
        ("recover", False, "1.36.0", False),
        ("recover", True, "1.30.0", False),
    ],
)
def test_the_environments_policy_goes_with_the_mode_and_the_api_server(
    helm: Helm, mode: str, asked: Any, kubernetes: str, there: bool
) -> None:
    objects = helm.render({"mode": mode, "policies": {"environment": asked}}, kubernetes=kubernetes)

    assert any(body["kind"] == "MutatingAdmissionPolicy" for body in objects) is there
    assert any(body["kind"] == "ValidatingAdmissionPolicy" for body in objects)


@pytest.mark.parametrize("apis", [(), ("monitoring.coreos.com/v1/PodMonitor",)])
def test_pod_monitors_are_made_where_they_are_known(helm: Helm, apis: tuple[str, ...]) -> None:
    monitors = {
        body["metadata"]["name"]
        for body in helm.render({"podMonitor": {"enabled": True}}, apis=apis)
        if body["kind"] == "PodMonitor"
    }

    assert monitors == ({"rekindle-agent", "rekindle-controller"} if apis else set())
    assert not [b for b in helm.render({}, apis=apis) if b["kind"] == "PodMonitor"]


def test_whoever_does_not_want_warnings_has_none(helm: Helm) -> None:
    policies = {
        body["metadata"]["name"]
        for body in helm.render({"policies": {"warnings": False}})
        if body["kind"] == "ValidatingAdmissionPolicy"
    }

    assert "rekindle-fence-nodes" in policies
    assert not [name for name in policies if "warns" in name]


@pytest.mark.parametrize("allowed", [True, False, None])
def test_jobs_that_use_the_node_are_made_anew_where_the_values_say_so(
    helm: Helm, allowed: bool | None
) -> None:
    """Values of an earlier chart say nothing of it."""
    policies = {"recreatePrivileged": allowed}

    names = {body["metadata"]["name"] for body in helm.render({"policies": policies})}

    assert ("rekindle-fence-anew" in names) is not bool(allowed)


@pytest.mark.parametrize("mode", ["observe", "recover", "repair"])
def test_the_fence_knows_the_releases_image_and_mode_and_the_doctor_what_the_chart_renders(
    helm: Helm, tmp_path: Path, mode: str
) -> None:
    objects = helm.render({"mode": mode, "policies": {"environment": True}})
    file = tmp_path / "controller.toml"
    file.write_text(of_kind(objects, "ConfigMap", "rekindle-settings")["data"][file.name], encoding="utf-8")

    known = shipped.policies(NAMESPACE, load(file, [], Settings))

    rendered = {f"{body['kind']}/{body['metadata']['name']}": body for body in objects}
    assert {key: rendered[key]["spec"] for key in known} == {key: body["spec"] for key, body in known.items()}
    pods = str(known["ValidatingAdmissionPolicy/rekindle-fence-pods"])
    assert container(of_kind(objects, "Deployment"))["image"] in pods
    assert "rekindle:latest" not in pods
    assert f"'mode-{mode}'" in str(known["ValidatingAdmissionPolicy/rekindle-fence-jobs"])
    assert not [
        key for key in shipped.policies(NAMESPACE, None) if "fence-pods" in key and "Binding" not in key
    ]


def test_rights_and_policies_are_the_files_that_the_other_tests_put_in_force(helm: Helm) -> None:
    objects = helm.render({"mode": "repair"})
    rendered = {path_of(body): body for body in objects}
    image = container(of_kind(objects, "Deployment"))["image"]

    for body in yaml.safe_load_all(yaml.safe_dump_all(manifests()).replace("rekindle:latest", image)):
        found = rendered[path_of(body)]
        assert body["metadata"].get("labels", {}).items() <= found["metadata"].pop("labels").items()
        body["metadata"].pop("labels", None)
        assert found == body


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def mounted(workload: dict[str, Any], path: str) -> bool:
    """Whether that file comes from a ConfigMap or Secret."""
    spec = workload["spec"]["template"]["spec"]
    (folder,) = (
        mount["name"]
        for mount in spec["containers"][0]["volumeMounts"]
        if mount["mountPath"] == str(Path(path).parent)
    )
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == folder)
    items = (volume.get("configMap") or volume["secret"]).get("items")
    return items is None or Path(path).name in {item["path"] for item in items}


def images(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from images(item)
    elif isinstance(value, dict):
        if isinstance(value.get("image"), str):
            yield value["image"]
        for item in value.values():
            yield from images(item)


async def there(api: KubeApi, namespace: dict[str, Any]) -> None:
    try:
        await api.request("POST", NAMESPACES.path(), body=namespace)
    except ApiError as error:
        if not error.exists:
            raise


async def refusal(api: KubeApi, body: dict[str, Any]) -> str:
    """What the API server has against the object, applied and not kept; nothing where it takes it."""
    params = {"dryRun": "All", "fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    try:
        await api.request(
            "PATCH", path_of(body), params=params, body=body, content_type="application/apply-patch+yaml"
        )
    except ApiError as error:
        return f"{body['kind']} {body['metadata']['name']}: {error.message}"
    return ""
