"""The objects that Helm 3 and Helm 4 render from the chart: the API server accepts every object, and the
daemons accept their settings."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from detectors.agent import command as agent_command
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.service.settings import AgentSettings, load
from recover.cli import cleanup_command, controller_command
from recover.doctor.installation import shipped
from recover.k8s.kinds import NAMESPACES
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chart.helm import CHART, HELMS, KUBERNETES, NAMESPACE, Helm, HelmError, of_kind, path_of
from tests.chart.rendered import CASES, CLEANS_UP, EVERYTHING, annotations, container, mounted
from tests.chart.wrong_values import WRONG, WRONG_TOGETHER
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import manifests
from tests.control_plane.stage import ANSWERED_S

pytestmark = pytest.mark.control_plane


@pytest.mark.parametrize("case", CASES)
async def test_the_api_server_takes_every_object(helm: Helm, api_server: ControlPlane, case: str) -> None:
    async with KubeApi(api_server.credentials(), timeout_s=ANSWERED_S) as api:
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
    objects = helm.render({**CASES[case], **CLEANS_UP})
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
    cleanup = of_kind(objects, "Job")
    options = cleanup_command._parser().parse_args(container(cleanup)["args"][1:])
    assert mounted(cleanup, str(options.settings))
    for kind, parser in (
        ("Deployment", controller_command._parser()),
        ("DaemonSet", agent_command._parser()),
    ):
        options = parser.parse_args(container(of_kind(objects, kind))["args"][1:])
        port = container(of_kind(objects, kind))["ports"][0]["containerPort"]
        assert options.listen == f"0.0.0.0:{port}"
        assert mounted(of_kind(objects, kind), str(options.settings))


@pytest.mark.parametrize(
    "values", [{"uninstall": {"takeBack": False}}, {"controller": {"enabled": False}, **CLEANS_UP}]
)
def test_a_release_that_wrote_nothing_or_shall_leave_it_has_nothing_to_take_back(
    helm: Helm, values: dict[str, Any]
) -> None:
    hooks = [
        body for body in helm.render(CLEANS_UP) if "helm.sh/hook" in body["metadata"].get("annotations", {})
    ]
    left = [body for body in helm.render(values) if body["metadata"]["name"] == "rekindle-cleanup"]

    assert {(b["kind"], b["metadata"]["annotations"]["helm.sh/hook"]) for b in hooks} == {
        ("Pod", "test"),
        ("ClusterRole", "pre-delete"),
        ("ClusterRoleBinding", "pre-delete"),
        ("Job", "pre-delete"),
    }
    assert left == []


def test_what_kubectl_would_apply_has_no_job_that_ends_the_controllers(helm: Helm) -> None:
    """kubectl knows no hooks of Helm: it creates each object that `helm template` prints."""
    assert not [body for body in helm.render({}) if body["metadata"]["name"] == "rekindle-cleanup"]


def test_a_larger_chart_may_switch_this_chart_by_a_condition(helm: Helm, tmp_path: Path) -> None:
    """Helm also gives the value of the condition to this chart, whose schema refuses unknown values."""
    whole = tmp_path / "whole"
    shutil.copytree(CHART, whole / "charts" / "rekindle")
    part = {"name": "rekindle", "version": "0.1.0", "condition": "rekindle.enabled"}
    about = {"apiVersion": "v2", "name": "whole", "version": "1.0.0", "dependencies": [part]}
    (whole / "Chart.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    flags = (f"--kube-version={KUBERNETES}", "--set=rekindle.image.registry=localhost")

    on = helm.run("template", "whole", str(whole), *flags, "--set=rekindle.enabled=true")
    off = helm.run("template", "whole", str(whole), *flags, "--set=rekindle.enabled=false")

    assert "kind: Deployment" in on
    assert "kind: Deployment" not in off
    with pytest.raises(HelmError, match="enabled"):
        helm.run("template", "rekindle", str(CHART), "--set=image.registry=localhost,enabled=false")


def test_the_settings_of_one_daemon_roll_out_that_one_alone(helm: Helm) -> None:
    before = helm.render({})
    after = helm.render({"settings": {"agent": {"logs": {"stall_min_s": 900}}}})

    assert annotations(before, "Deployment") == annotations(after, "Deployment")
    assert annotations(before, "DaemonSet") != annotations(after, "DaemonSet")


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
    """The values of an earlier chart do not have this value."""
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


@pytest.mark.parametrize(
    ("asked", "is_granted", "may_write"),
    [(None, False, False), (False, False, False), (True, True, True), ("remove", True, False)],
)
def test_only_a_release_that_writes_the_condition_may_and_one_that_removes_it_has_the_right_for_that(
    helm: Helm, asked: object, is_granted: bool, may_write: bool
) -> None:
    """The values of an earlier chart do not have this value."""
    objects = helm.render({"controller": {"nodeCondition": asked}})

    roles = [body for body in objects if body["metadata"]["name"] == "rekindle-node-condition"]
    fence = str(of_kind(objects, "ValidatingAdmissionPolicy", "rekindle-fence-nodes"))
    settings = of_kind(objects, "ConfigMap", "rekindle-settings")["data"]["controller.toml"]
    assert [body["kind"] for body in roles] == (["ClusterRole", "ClusterRoleBinding"] if is_granted else [])
    assert ("'node-condition-on'" in fence) is may_write
    assert ("node_condition = true" in settings) is may_write
    others = [body for body in objects if body["kind"] == "ClusterRole" and body not in roles]
    granting = {body["metadata"]["name"] for body in others if "nodes/status" in str(body["rules"])}
    assert granting <= {"rekindle-cleanup"}, "which Helm makes for a removal alone"


def test_rights_and_policies_are_the_files_that_the_other_tests_put_in_force(helm: Helm) -> None:
    objects = helm.render({"mode": "repair", "controller": {"nodeCondition": True}})
    rendered = {path_of(body): body for body in objects}
    image = container(of_kind(objects, "Deployment"))["image"]

    for body in yaml.safe_load_all(yaml.safe_dump_all(manifests()).replace("rekindle:latest", image)):
        found = rendered[path_of(body)]
        assert body["metadata"].get("labels", {}).items() <= found["metadata"].pop("labels").items()
        body["metadata"].pop("labels", None)
        assert found == body


async def there(api: KubeApi, namespace: dict[str, Any]) -> None:
    try:
        await api.request("POST", NAMESPACES.path(), body=namespace)
    except ApiError as error:
        if not error.exists:
            raise


async def refusal(api: KubeApi, body: dict[str, Any]) -> str:
    """Returns the API server's objection to the object, applied as a dry run, or an empty string if the API
    server accepts it."""
    params = {"dryRun": "All", "fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    try:
        await api.request(
            "PATCH", path_of(body), params=params, body=body, content_type="application/apply-patch+yaml"
        )
    except ApiError as error:
        return f"{body['kind']} {body['metadata']['name']}: {error.message}"
    return ""
