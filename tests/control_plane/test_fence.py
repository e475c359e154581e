"""With a token to which RBAC grants everything, the controller may do to nodes, pods and ConfigMaps only what
it does in practice. The module also tests who else may write what resumed ranks read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from recover.api.marks import OWN_CONDITION
from recover.k8s.kinds import CONFIGMAPS, NODES, PODS
from recover.stories.keys import WRITTEN_BY_US
from tests.control_plane.callers import NAMESPACE, Callers
from tests.control_plane.fenced import POLICIES, Attempt, answers, changed, fenced, gang_pod, scan_pod
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import SYSTEM

pytestmark = pytest.mark.control_plane

CHECKED_S = 60.0
NODE = NODES.path("n1")
THEIRS = {"key": "a.test/theirs", "value": "true", "effect": "NoSchedule"}
OURS = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}
OURS_TOLD = {"type": OWN_CONDITION, "status": "True", "reason": "NoFault"}
HERE, KUBE, OWN = (PODS.path(namespace=name) for name in (NAMESPACE, "kube-system", SYSTEM))
SCAN, RANK, OTHER = (PODS.path(name, NAMESPACE) for name in ("r-scan-0", "llm-0", "web-0"))
MAPS = CONFIGMAPS.path(namespace=NAMESPACE)
FAILED = {"status": {"phase": "Failed", "reason": "NodeLost", "message": "its node is proven to be off"}}
CONTAINER = "spec/containers/0"
HOST_PATH = [{"name": "checkpoints", "hostPath": {"path": "/"}}]
SECOND = [scan_pod()["spec"]["containers"][0], {"name": "mesh", "image": "mesh"}]


def all_answer(attempts: dict[str, Attempt], answer: str) -> dict[str, str]:
    return dict.fromkeys(attempts, answer)


def of_node(**parts: Any) -> Attempt:
    return ("PATCH", NODE, parts)


def meta(**parts: Any) -> Attempt:
    return of_node(metadata=parts)


def spec(**parts: Any) -> Attempt:
    return of_node(spec=parts)


def condition(type_: str, status: str) -> Attempt:
    return (
        "STRATEGIC",
        f"{NODE}/status",
        {"status": {"conditions": [{**OURS_TOLD, "type": type_, "status": status}]}},
    )


NODES_REFUSED: dict[str, Attempt] = {
    "a label of others": meta(labels={"node-role.kubernetes.io/control-plane": ""}),
    "the removal of a label of others": meta(labels={"type": None}),
    "a person's word: managed": meta(labels={"rekindle.dev/managed": "false"}),
    "a person's word: spare": meta(labels={"rekindle.dev/spare": "true"}),
    "a person's hold": meta(annotations={"rekindle.dev/hold": "true"}),
    "an annotation of others": meta(annotations={"a.test/b": "c"}),
    "finalizers": meta(finalizers=["a.test/b"]),
    "owners": meta(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]),
    "a taint of others": spec(taints=[THEIRS, {**THEIRS, "key": "node.kubernetes.io/out-of-service"}]),
    "the removal of others' taints": spec(taints=[OURS]),
    "a change of others' taints": spec(taints=[{**THEIRS, "effect": "NoExecute"}]),
    "a taint of ours that evicts": spec(taints=[THEIRS, {**OURS, "effect": "NoExecute"}]),
    "the provider's id": spec(providerID="a://b"),
    "the pods' network": spec(podCIDR="10.0.0.0/24", podCIDRs=["10.0.0.0/24"]),
    "status": ("PATCH", f"{NODE}/status", {"status": {"phase": "Terminated"}}),
    "a condition of others": condition("Ready", "False"),
    "our condition and an address": (
        "STRATEGIC",
        f"{NODE}/status",
        {"status": {"conditions": [OURS_TOLD], "addresses": [{"type": "Hostname", "address": "n9"}]}},
    ),
    "deletion": ("DELETE", NODE),
    "a new node": ("POST", NODES.path(), {"metadata": {"name": "n9"}}),
}
NODES_ADMITTED: dict[str, Attempt] = {
    "a quarantine": of_node(
        metadata={
            "labels": {"rekindle.dev/health": "faulted"},
            "annotations": {"rekindle.dev/quarantined-by": "{}"},
        },
        spec={"taints": [THEIRS, OURS], "unschedulable": True},
    ),
    "a soft one": spec(taints=[THEIRS, {**OURS, "effect": "PreferNoSchedule"}]),
    "a release": of_node(
        metadata={
            "labels": {"rekindle.dev/health": None},
            "annotations": {"rekindle.dev/released-at": "t", "rekindle.dev/released-findings": "{}"},
        },
        spec={"taints": [THEIRS], "unschedulable": None},
    ),
    "a spare": of_node(
        metadata={"annotations": {"rekindle.dev/spare-kept": "{}", "rekindle.dev/spare-for": "i"}},
        spec={"taints": [THEIRS, {**OURS, "key": "rekindle.dev/spare"}]},
    ),
    "what a removal takes back": of_node(
        metadata={part: dict.fromkeys(WRITTEN_BY_US) for part in ("labels", "annotations")}
    ),
    "our condition": condition(OWN_CONDITION, "False"),
    "the removal of our condition": (
        "STRATEGIC",
        f"{NODE}/status",
        {"status": {"conditions": [{"type": OWN_CONDITION, "$patch": "delete"}]}},
    ),
    "nothing": of_node(),
}


def made(path: str, value: Any) -> Attempt:
    return ("POST", HERE, changed(scan_pod(), path, value))


PODS_REFUSED: dict[str, Attempt] = {
    "in kube-system": ("POST", KUBE, scan_pod()),
    "any pod": ("POST", HERE, gang_pod("any")),
    "any pod in our namespace": ("POST", OWN, gang_pod("any")),
    "without our label": made("metadata/labels", None),
    "another image": made(f"{CONTAINER}/image", "docker.io/evil:1"),
    "an image whose name begins like ours": made(f"{CONTAINER}/image", "rekindle.evil:latest"),
    "our image of another registry": made(f"{CONTAINER}/image", "evil.test/rekindle:latest"),
    "another command": made(f"{CONTAINER}/command", ["/bin/sh", "-c", "id", "x"]),
    "another command of ours": made(f"{CONTAINER}/command/1", "controller"),
    "the image's command": made(f"{CONTAINER}/command", None),
    "arguments": made(f"{CONTAINER}/args", ["--write"]),
    "variables": made(f"{CONTAINER}/env", [{"name": "PYTHONPATH", "value": "/rekindle/volume"}]),
    "variables of a Secret": made(f"{CONTAINER}/envFrom", [{"secretRef": {"name": "s"}}]),
    "a hook": made(f"{CONTAINER}/lifecycle", {"preStop": {"exec": {"command": ["id"]}}}),
    "a second container": made("spec/containers", SECOND),
    "an init container": made("spec/initContainers", SECOND[1:]),
    "a token": made("spec/automountServiceAccountToken", True),
    "a token by default": made("spec/automountServiceAccountToken", None),
    "the network of the node": made("spec/hostNetwork", True),
    "the processes of the node": made("spec/hostPID", True),
    "the memory of the node": made("spec/hostIPC", True),
    "a node of its choice": made(
        "spec", {**changed(scan_pod()["spec"], "nodeName", "n1"), "schedulingGates": []}
    ),
    "a path of the node": made("spec/volumes", HOST_PATH),
    "a Secret": made("spec/volumes/0", {"name": "checkpoints", "secret": {"secretName": "s"}}),
    "an inline CSI volume": made("spec/volumes/0", {"name": "checkpoints", "csi": {"driver": "a.test"}}),
    "a second volume": made("spec/volumes", [*scan_pod()["spec"]["volumes"], {"name": "b", "emptyDir": {}}]),
    "another place": made(f"{CONTAINER}/volumeMounts/0/mountPath", "/opt/rekindle"),
    "user 0": made(f"{CONTAINER}/securityContext/runAsUser", 0),
    "user 0 for the pod": made("spec/securityContext/runAsUser", 0),
    "any user": made("spec/securityContext/runAsNonRoot", None),
    "no seccomp": made("spec/securityContext/seccompProfile/type", "Unconfined"),
    "a type of SELinux": made("spec/securityContext/seLinuxOptions/type", "spc_t"),
    "sysctls": made("spec/securityContext/sysctls", [{"name": "kernel.shm_rmid_forced", "value": "1"}]),
    "privileged": made(
        f"{CONTAINER}/securityContext",
        {"privileged": True, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    ),
    "more rights": made(f"{CONTAINER}/securityContext/allowPrivilegeEscalation", True),
    "capabilities": made(f"{CONTAINER}/securityContext/capabilities/add", ["SYS_ADMIN"]),
    "its capabilities": made(f"{CONTAINER}/securityContext/capabilities", None),
    "a root that is written": made(f"{CONTAINER}/securityContext/readOnlyRootFilesystem", False),
    "a profile of AppArmor": made(f"{CONTAINER}/securityContext/appArmorProfile", {"type": "Unconfined"}),
    "deletion of others' pods": ("DELETE", OTHER),
    "labels of a rank": ("PATCH", RANK, {"metadata": {"labels": {"a": "b"}}}),
    "annotations of a rank": ("PATCH", RANK, {"metadata": {"annotations": {"a": "b"}}}),
    "finalizers of a rank": ("PATCH", RANK, {"metadata": {"finalizers": None}}),
    "a rank's gate": ("PATCH", RANK, {"spec": {"schedulingGates": None}}),
    "the scan's label": ("PATCH", SCAN, {"metadata": {"labels": {"rekindle.dev/scan-of": "other"}}}),
    "the scan's image": ("PATCH", SCAN, changed({}, CONTAINER.partition("/")[0], {"containers": SECOND[:1]})),
    "the scan's deadline": ("PATCH", SCAN, {"spec": {"activeDeadlineSeconds": 1}}),
    "a rank that runs": ("PATCH", f"{RANK}/status", {"status": {"phase": "Running"}}),
    "a rank that has succeeded": ("PATCH", f"{RANK}/status", {"status": {"phase": "Succeeded"}}),
    "the address of a rank": ("PATCH", f"{RANK}/status", changed(FAILED, "status/podIP", "10.0.0.1")),
    "labels with a status": ("PATCH", f"{RANK}/status", {**FAILED, "metadata": {"labels": {"a": "b"}}}),
    "the failure of others' pods": ("PATCH", f"{OTHER}/status", FAILED),
    "a debugging container": (
        "PATCH",
        f"{RANK}/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [{"name": "d", "image": "evil"}]}},
    ),
    "a binding": (
        "POST",
        f"{RANK}/binding",
        {"metadata": {"name": "llm-0"}, "target": {"kind": "Node", "name": "n1"}},
    ),
}
PODS_ADMITTED: dict[str, Attempt] = {
    "a scan": ("POST", HERE, scan_pod()),
    "of the version before": made(f"{CONTAINER}/image", "rekindle:0.0.1@sha256:" + "0" * 64),
    "of NFS": made("spec/volumes/0", {"name": "checkpoints", "nfs": {"server": "a", "path": "/b"}}),
    "without a user": made(f"{CONTAINER}/securityContext/runAsUser", None),
    "without a gate": made("spec/schedulingGates", None),
    "away from nodes": made("spec/affinity", {"nodeAffinity": {}}),
    "with one more capability taken": made(
        f"{CONTAINER}/securityContext/capabilities/drop", ["ALL", "NET_RAW"]
    ),
    "its release": ("PATCH", SCAN, {"spec": {"schedulingGates": None}}),
    "its removal": ("DELETE", SCAN),
    "a rank's failure": ("PATCH", f"{RANK}/status", FAILED),
    "a rank's removal": ("DELETE", RANK, {"gracePeriodSeconds": 0, "dryRun": ["All"]}),
}
DATA = {"data": {"REKINDLE_RECOVERY": "r"}}


def config(name: str, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **(parts or DATA)}


MAPS_REFUSED: dict[str, Attempt] = {
    "any name": ("POST", MAPS, config("any")),
    "a name that begins like ours": ("POST", MAPS, config("llm-rekindle-job-2")),
    "the suffix alone": ("POST", MAPS, config("rekindle-job")),
    "in kube-system": ("POST", CONFIGMAPS.path(namespace="kube-system"), config("llm-rekindle-job")),
    "a change of any": ("PATCH", CONFIGMAPS.path("theirs", NAMESPACE), DATA),
    "a change of kube-system's": (
        "PATCH",
        CONFIGMAPS.path("extension-apiserver-authentication", "kube-system"),
        {"data": {"client-ca-file": "forged"}},
    ),
    "a removal of any": ("DELETE", CONFIGMAPS.path("theirs", NAMESPACE)),
    "our settings": ("POST", CONFIGMAPS.path(namespace=SYSTEM), config("rekindle-settings")),
    "what repairs run": ("POST", CONFIGMAPS.path(namespace=SYSTEM), config("rekindle-repair")),
    "our state elsewhere": ("POST", MAPS, config("rekindle-state")),
    "one that nobody can change": ("POST", MAPS, config("llm-rekindle-job", immutable=True)),
    "binary data": ("POST", MAPS, config("llm-rekindle-job", binaryData={"a": "YQ=="})),
}
MAPS_ADMITTED: dict[str, Attempt] = {
    **{
        kind: ("POST", MAPS, config(f"llm-rekindle-{kind}"))
        for kind in ("job", "jobset", "pytorchjob", "paddlejob", "tfjob")
    },
    "the name of before": ("POST", MAPS, config("llm-rekindle")),
    "the change": ("PATCH", CONFIGMAPS.path("there-rekindle-job", NAMESPACE), DATA),
    "the removal": ("DELETE", CONFIGMAPS.path("there-rekindle-job", NAMESPACE)),
    "our state": ("POST", CONFIGMAPS.path(namespace=SYSTEM), config("rekindle-state")),
}


async def test_the_api_server_knows_every_field_that_the_policies_name(control_plane: ControlPlane) -> None:
    async with fenced(control_plane) as (callers, _), asyncio.timeout(CHECKED_S):
        while len(checked := [one async for one in types_checked(callers)]) < 8:
            await asyncio.sleep(0.05)

        assert checked == [{}] * len(checked)


async def types_checked(callers: Callers) -> AsyncIterator[Any]:
    """Yields the warnings of each Rekindle policy that Kubernetes has type-checked."""
    for policy in (await callers.admin.does("GET", POLICIES.path()))["items"]:
        refuses = policy["spec"]["failurePolicy"] == "Fail"
        if refuses and "typeChecking" in policy.get("status", {}):
            yield policy["status"]["typeChecking"]


async def test_of_nodes_it_changes_its_own_marks_and_the_cordon(control_plane: ControlPlane) -> None:
    async with fenced(control_plane) as (callers, controller):
        await callers.admin.does("PATCH", NODE, {"spec": {"taints": [THEIRS]}})

        assert await answers(controller, NODES_REFUSED) == all_answer(NODES_REFUSED, "fence-nodes")
        assert await answers(controller, NODES_ADMITTED) == all_answer(NODES_ADMITTED, "ok")


async def test_pods_are_its_scans_and_those_of_jobs_that_end(control_plane: ControlPlane) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm", "uid": "u", "controller": True}
    async with fenced(control_plane) as (callers, controller):
        await controller.does("POST", HERE, scan_pod("r-scan-0"))
        # Its owner does not exist, so the garbage collector would delete the pod if it had no finalizer.
        rank = gang_pod("llm-0", ownerReferences=[owner], finalizers=["a.test/kept"])
        await callers.admin.does("POST", HERE, rank)
        await callers.admin.does("POST", HERE, gang_pod("web-0"))

        assert await answers(controller, PODS_REFUSED) == all_answer(PODS_REFUSED, "fence-pods")
        assert await answers(controller, PODS_ADMITTED) == all_answer(PODS_ADMITTED, "ok")


async def test_configmaps_are_those_of_resumed_ranks_and_its_state(control_plane: ControlPlane) -> None:
    async with fenced(control_plane) as (callers, controller):
        await callers.admin.does("POST", MAPS, config("theirs"))
        await controller.does("POST", MAPS, config("there-rekindle-job"))

        assert await answers(controller, MAPS_REFUSED) == all_answer(MAPS_REFUSED, "fence-configmaps")
        assert await answers(controller, MAPS_ADMITTED) == all_answer(MAPS_ADMITTED, "ok")


async def test_nobody_else_writes_what_resumed_ranks_read_and_whoever_may_deletes_it(
    control_plane: ControlPlane,
) -> None:
    there = CONFIGMAPS.path("there-rekindle-job", NAMESPACE)
    refused: dict[str, Attempt] = {
        "create": ("POST", MAPS, config("llm-rekindle-job", data={"LD_PRELOAD": "/ckpt/x.so"})),
        "create empty": ("POST", MAPS, config("llm-rekindle-pytorchjob")),
        "add": ("PATCH", there, {"data": {"BASH_ENV": "/ckpt/x"}}),
        "add in binary": ("PATCH", there, {"binaryData": {"BASH_ENV": "YQ=="}}),
        "take away": ("PATCH", there, {"data": {"REKINDLE_RECOVERY": None}}),
        "keep from change": ("PATCH", there, {"immutable": True}),
    }
    admitted: dict[str, Attempt] = {
        "label": ("PATCH", there, {"metadata": {"labels": {"a": "b"}}}),
        "as Kubernetes collects garbage": ("PATCH", there, {"metadata": {"finalizers": ["a.test/b"]}}),
        "delete": ("DELETE", there),
        "another name": ("POST", MAPS, config("llm-rekindle-values")),
        "a name of its own making": ("POST", MAPS, {"metadata": {"generateName": "x-rekindle-job"}}),
    }
    async with fenced(control_plane) as (callers, controller):
        await controller.does("POST", MAPS, config("there-rekindle-job"))
        await callers.grant("edit", callers.team, namespace=NAMESPACE)

        for caller in (callers.admin, callers.team):
            assert await answers(caller, refused) == all_answer(refused, "handed-over")
            assert await answers(caller, admitted) == all_answer(admitted, "ok")
