"""What Helm 3 and Helm 4 make of the chart: the API server takes every object, the daemons their settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from detectors import agent_command
from detectors.kubeapi import ApiError, KubeApi
from detectors.settings import AgentSettings, load
from recover import controller_command
from recover.resources import NAMESPACES
from recover.settings import Settings
from tests.chart.helm import CHART, HELMS, KUBERNETES, NAMESPACE, Helm, HelmError, of_kind, path_of
from tests.chart.wrong_values import WRONG
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import manifests

pytestmark = pytest.mark.control_plane

DIGEST = "sha256:" + "0123456789abcdef" * 4
EVERYTHING: dict[str, Any] = {
    "mode": "recover",
    "image": {"registry": "registry.example.com:5000/team", "digest": DIGEST, "pullSecrets": ["pull"]},
    "settings": {
        "controller": {
            "timing": {"settle_s": 5, "settle_max_s": 12.5},
            "budgets": {"quarantined_nodes_max": 20_000_000, "pool_label": 'a"b\\<c>'},
            "accelerators": ["example.com/npu"],
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
    "controller": {
        "replicas": 3,
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "logLevel": "debug",
    },
    "networkPolicy": {"egressPorts": [443, 6443]},
    "podMonitor": {"enabled": True},
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "mode recover": {"mode": "recover"},
    "everything set": EVERYTHING,
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


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, what: str) -> None:
    wrong, key = WRONG[what]

    with pytest.raises(HelmError, match=key):
        helm.render(wrong)


@pytest.mark.parametrize("case", ["defaults", "mode recover", "everything set"])
def test_the_daemons_take_their_settings_and_arguments(helm: Helm, tmp_path: Path, case: str) -> None:
    objects = helm.render(CASES[case])
    for name, text in of_kind(objects, "ConfigMap")["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    controller = load(tmp_path / "controller.toml", [], Settings)
    agent = load(tmp_path / "agent.toml", [], AgentSettings)

    assert controller.mode == CASES[case].get("mode", "observe")
    assert controller.namespace == NAMESPACE
    assert controller.images.scan == container(of_kind(objects, "Deployment"))["image"]
    assert agent.logs.excluded_namespaces == ("kube-*", NAMESPACE)
    if case == "everything set":
        assert (controller.timing.settle_s, controller.timing.settle_max_s) == (5, 12.5)
        assert controller.budgets.pool_label == 'a"b\\<c>'
        assert controller.budgets.quarantined_nodes_max == 20_000_000
        assert controller.accelerators == ("example.com/npu",)
        assert not agent.nvml.enabled
        assert (tmp_path / "catalogue.toml").read_text() == EVERYTHING["settings"]["catalogue"]
        assert mounted(of_kind(objects, "DaemonSet"), agent.catalogue.extra)
    for kind, parser in (
        ("Deployment", controller_command._parser()),
        ("DaemonSet", agent_command._parser()),
    ):
        options = parser.parse_args(container(of_kind(objects, kind))["args"][1:])
        port = container(of_kind(objects, kind))["ports"][0]["containerPort"]
        assert options.listen == f"0.0.0.0:{port}"
        assert mounted(of_kind(objects, kind), str(options.settings))


def test_the_settings_of_one_daemon_roll_out_that_one_alone(helm: Helm) -> None:
    before = helm.render({})
    after = helm.render({"settings": {"agent": {"logs": {"stall_min_s": 900}}}})

    assert checksum(before, "Deployment") == checksum(after, "Deployment")
    assert checksum(before, "DaemonSet") != checksum(after, "DaemonSet")


def test_a_digest_and_a_registry_name_the_image_of_every_container(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    expected = f"registry.example.com:5000/team/rekindle@{DIGEST}"
    assert set(images(objects)) == {expected}
    assert len(list(images(objects))) == 3
    assert f'scan = "{expected}"' in of_kind(objects, "ConfigMap")["data"]["controller.toml"]


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
        "/sys/fs/cgroup",
        "/var/lib/kubelet/pod-resources",
    }


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


def test_an_api_server_without_policies_is_refused_until_they_are_given_up(helm: Helm) -> None:
    with pytest.raises(
        HelmError, match=r"policies\.enabled: Kubernetes v?1\.29\.0 has no admission policies"
    ):
        helm.render({}, kubernetes="1.29.0")

    assert of_kind(helm.render({"policies": {"enabled": False}}, kubernetes="1.27.0"), "DaemonSet")


def test_an_api_server_that_is_too_old_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.27\.0-0"):
        helm.render({"policies": {"enabled": False}}, kubernetes="1.26.9")


@pytest.mark.parametrize("apis", [(), ("monitoring.coreos.com/v1/PodMonitor",)])
def test_pod_monitors_are_made_where_they_are_known(helm: Helm, apis: tuple[str, ...]) -> None:
    monitors = {
        body["metadata"]["name"]
        for body in helm.render({"podMonitor": {"enabled": True}}, apis=apis)
        if body["kind"] == "PodMonitor"
    }

    assert monitors == ({"rekindle-agent", "rekindle-controller"} if apis else set())
    assert not [b for b in helm.render({}, apis=apis) if b["kind"] == "PodMonitor"]


def test_rights_and_policies_are_the_files_that_the_other_tests_put_in_force(helm: Helm) -> None:
    rendered = [yaml.safe_dump(body) for body in helm.render({"mode": "recover"})]

    for body in manifests():
        assert yaml.safe_dump(body) in rendered, body["metadata"]["name"]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def mounted(workload: dict[str, Any], path: str) -> bool:
    """Whether that file comes from the ConfigMap."""
    volumes = workload["spec"]["template"]["spec"]["volumes"]
    (items,) = (volume["configMap"]["items"] for volume in volumes if "configMap" in volume)
    return path in {f"/etc/rekindle/{item['path']}" for item in items}


def checksum(objects: list[dict[str, Any]], kind: str) -> str:
    return str(of_kind(objects, kind)["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])


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
