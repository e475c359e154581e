"""The chart's pods: on which nodes they run, with which user, token and labels."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.chart.helm import CHART, KUBERNETES, Helm, HelmError, of_kind
from tests.chart.rendered import CLEANS_UP, EVERYTHING

pytestmark = pytest.mark.control_plane

STANDARD = {
    f"app.kubernetes.io/{name}"
    for name in ("name", "instance", "version", "component", "part-of", "managed-by")
}


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
    objects = helm.render({"mode": "repair", **CLEANS_UP})
    accounts = [body for body in objects if body["kind"] == "ServiceAccount"]

    assert [body["automountServiceAccountToken"] for body in accounts] == [False, False]
    assert len(pod_specs(objects)) == 4
    for spec in pod_specs(objects):
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (True, False)
    for template in of_kind(objects, "ConfigMap", "rekindle-repair")["data"].values():
        spec = yaml.safe_load(template)["spec"]
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)


def test_every_pod_but_the_agent_runs_as_nobody_and_cannot_become_more(helm: Helm) -> None:
    others = [s for s in pod_specs(helm.render(CLEANS_UP)) if s["serviceAccountName"] != "rekindle-agent"]

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
    """Returns the specs of all pods that the chart itself starts."""
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

    values = {"agent": {"nodeLabels": labels}, "controller": {"acceleratorNodes": asked}, **CLEANS_UP}
    objects = helm.render(values)

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
        "/sys/fs",
        "/sys/fs/cgroup",
        "/var/lib/kubelet/pod-resources",
        "/var/lib/kubelet/pods",
        "/var/lib/systemd/pstore",
    }
    (volumes,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "pod-volumes"]
    assert volumes["mountPropagation"] == "HostToContainer", "volumes that are mounted later show, too"


def test_what_the_agent_does_not_read_is_not_mounted(helm: Helm) -> None:
    off = {"volumes": {"enabled": False}, "host": {"enabled": False}}
    spec = of_kind(helm.render({"settings": {"agent": off}}), "DaemonSet")["spec"]["template"]["spec"]

    paths = {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert not paths & {"/sys/fs", "/var/lib/kubelet/pods", "/var/lib/systemd/pstore"}
    assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == {
        v["name"] for v in spec["volumes"]
    }


def test_a_release_and_a_namespace_may_have_a_number_as_name(helm: Helm) -> None:
    """YAML reads an unquoted number as a number, and the API server refuses a number as a name or label."""
    flags = (f"--kube-version={KUBERNETES}", "--namespace=456", *helm.values(EVERYTHING))

    objects = [body for body in yaml.safe_load_all(helm.run("template", "123", str(CHART), *flags)) if body]

    told = {body["metadata"]["labels"]["app.kubernetes.io/instance"] for body in objects}
    spaces = {
        one.get("namespace") for body in objects for one in (body["metadata"], *body.get("subjects", []))
    }
    assert told == {"123"}
    assert spaces == {"456", None}
