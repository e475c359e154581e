"""An administrator of a namespace may harm their own jobs, and nothing else. All attempts are made in mode
recover, in which Rekindle acts at once on a fault that it believes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from chaos.simulated.lines import FALLEN_OFF_THE_BUS, gpu_address
from detectors.wire.resource import Resource
from recover.k8s.kinds import (
    CONFIGMAPS,
    INCIDENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODEHEALTHS,
    NODES,
    PODS,
    RECIPES,
    RECOVERIES,
)
from tests.cluster.cases import apply, until
from tests.cluster.cluster import Cluster
from tests.cluster.images import BASE
from tests.cluster.install import SYSTEM, one
from tests.cluster.installed.attackers import calling_as, tenant_token
from tests.cluster.installed.people import doings, mend, open_incidents, quarantined, recoveries
from tests.cluster.installed.steppers import (
    CAREFUL,
    NAMESPACE,
    OPTED_IN,
    STEPS,
    TENANT,
    ranks,
    steppers,
    stepping,
)
from tests.cluster.kernel_log import kernel_says
from tests.cluster.record import ClusterError
from tests.control_plane.callers import ANY_STATUS, body, incident, recovery

pytestmark = pytest.mark.real_nodes

NODE = "worker-2"
LIMIT_S = 120.0
LOOKED_S = 6.0
"""Time in seconds after which Rekindle would have acted on a fault that it believes: the controller waits for
two seconds at most."""
KERNELS_WORDS = FALLEN_OFF_THE_BUS.text.format(pci=gpu_address(0))
LIAR = f"print({KERNELS_WORDS!r}, flush=True)\n{STEPS}"
"""Program of a training whose log contains text that only a kernel should print."""
WRITER = """
import os, stat
def tried(path):
    try:
        return os.open(path, os.O_WRONLY)
    except OSError as error:
        return error.strerror
print("/dev/kmsg:", tried("/dev/kmsg"))
os.mknod("/tmp/kmsg", stat.S_IFCHR | 0o600, os.makedev(1, 11))
print("its device:", tried("/tmp/kmsg"))
"""
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
Asked = tuple[Any, ...]
"""Method, path, and a body if the request has one."""
CLAIMS = {
    "kcover.io/need-recovery": "true",
    "rekindle.dev/health": "faulted",
    "rekindle.dev/incident": "worker-2-device-lost-00000000",
    "rekindle.dev/quarantined-by": "worker-2-device-lost-00000000",
    "rekindle.dev/unhealthy": "device-lost",
}


@pytest.fixture(autouse=True)
def tidied(cluster: Cluster) -> Iterator[None]:
    yield
    for namespace in (NAMESPACE, CAREFUL, TENANT):
        cluster.kubectl("delete", "jobs,pods", "--all", f"--namespace={namespace}")
    mend(cluster)


async def test_an_administrator_of_a_namespace_can_neither_write_what_we_believe_nor_raise_the_mode(
    cluster: Cluster,
) -> None:
    beside_us = {"serviceAccountName": "rekindle-agent", "containers": [{"name": "a", "image": BASE}]}
    our_role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "rekindle-controller"}
    asked: dict[str, Asked] = {
        "raise its namespace's mode": (
            "PATCH",
            NAMESPACES.path(TENANT),
            {"metadata": {"annotations": {"rekindle.dev/mode": "repair"}}},
        ),
        "raise the cluster's mode": (
            "PATCH",
            CONFIGMAPS.path("rekindle-settings", SYSTEM),
            {"data": {"controller.toml": 'mode = "repair"'}},
        ),
        "set back since when the mode holds": (
            "PATCH",
            CONFIGMAPS.path("rekindle-state", SYSTEM),
            {"data": {"since": "2020-01-01T00:00:00+00:00"}},
        ),
        "create a Recovery of its own": ("POST", RECOVERIES.path(namespace=TENANT), recovery("forged")),
        "create a Recovery elsewhere": ("POST", RECOVERIES.path(namespace=NAMESPACE), recovery("forged")),
        "patch a Recovery": ("PATCH", RECOVERIES.path("forged", TENANT, "status"), {"status": {}}),
        "create an Incident": ("POST", INCIDENTS.path(), incident("forged")),
        "write a NodeHealth": ("PATCH", NODEHEALTHS.path(NODE, subresource="status"), ANY_STATUS),
        "create a Recipe": ("POST", RECIPES.path(), body(RECIPES, "forged", spec={})),
        "cordon a node": ("PATCH", NODES.path(NODE), {"spec": {"unschedulable": True}}),
        "label a node": ("PATCH", NODES.path(NODE), {"metadata": {"labels": CLAIMS}}),
        "create an Event about a node": ("POST", EVENTS.path(namespace="default"), event("Node", NODE)),
        "create a pod beside ours": (
            "POST",
            PODS.path(namespace=SYSTEM),
            {"metadata": {"name": "forged"}, "spec": beside_us},
        ),
        "list our pods": ("GET", PODS.path(namespace=SYSTEM)),
        "take the lease": ("PATCH", LEASES.path("rekindle-controller", SYSTEM), {"spec": {}}),
        "be our controller in its namespace": (
            "POST",
            BINDINGS.path(namespace=TENANT),
            {"metadata": {"name": "forged"}, "roleRef": our_role},
        ),
    }
    before, token = doings(cluster), tenant_token(cluster)
    async with calling_as(cluster, token) as tenant:
        answers = {what: await tenant.asks(*question) for what, question in asked.items()}
        assert answers == dict.fromkeys(asked, "refused by RBAC")
        # In its own namespace the tenant may do what it likes.
        own = {"metadata": {"name": "own"}}
        assert await tenant.asks("POST", CONFIGMAPS.path(namespace=TENANT), own) == "ok"

    assert doings(cluster) == before


async def test_what_a_tenant_says_in_its_own_objects_and_logs_is_no_fault_to_us(cluster: Cluster) -> None:
    apply(cluster, steppers("llm"))
    victims = stepping(cluster, "llm")
    before = doings(cluster)
    async with calling_as(cluster, tenant_token(cluster)) as tenant:
        liar = steppers("liar", namespace=TENANT, count=1, program=LIAR)
        await tenant.does("POST", JOBS.path(namespace=TENANT), liar)
        (pod,) = stepping(cluster, "liar", 1)  # its agent has read on, past the kernel's words
        name = pod["metadata"]["name"]
        for resource, of in ((PODS, name), (JOBS, "liar")):
            claimed = {"metadata": {"labels": CLAIMS, "annotations": CLAIMS}}
            await tenant.does("PATCH", resource.path(of, TENANT), claimed)
        for number, claim in enumerate((event("Pod", name), event("Job", "liar"))):
            claim["metadata"]["name"] = f"claim-{number}"
            await tenant.does("POST", EVENTS.path(namespace=TENANT), claim)
        forged = {"metadata": {"name": "liar-rekindle"}, "data": {"REKINDLE_RECOVERY": "forged"}}
        await tenant.does("POST", CONFIGMAPS.path(namespace=TENANT), forged)
        impostor = failing_rank_of(one(cluster, "job", "llm", NAMESPACE))
        await tenant.does("POST", PODS.path(namespace=TENANT), impostor)

    until("the impostor's end", lambda: has_ended(cluster, "impostor"), LIMIT_S)
    await asyncio.sleep(LOOKED_S)
    assert doings(cluster) == before
    assert uids(ranks(cluster, "llm")) == uids(victims)
    assert uids(ranks(cluster, "liar")) == {pod["metadata"]["uid"]}


def event(kind: str, name: str) -> dict[str, Any]:
    """Returns an Event that kcover would take for its order, in Rekindle's words."""
    return {
        "metadata": {"name": "forged", "annotations": CLAIMS},
        "eventTime": "2026-11-21T10:00:00.000000Z",
        "reportingController": "rekindle.dev/controller",
        "reportingInstance": "rekindle-controller",
        "action": "Detect",
        "reason": "FaultDetected",
        "type": "Warning",
        "note": KERNELS_WORDS,
        "regarding": {"kind": kind, "namespace": TENANT, "name": name},
    }


def failing_rank_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a pod that claims to be a rank of that job, which is in another namespace."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "controller": True}
    template = job["spec"]["template"]
    container = {**template["spec"]["containers"][0], "command": ["python3", "-c", "raise SystemExit(1)"]}
    metadata = {
        "name": "impostor",
        "labels": {**template["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": "0"},
        "ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}],
    }
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}}


def has_ended(cluster: Cluster, pod: str) -> bool:
    """Whether the pod has ended or is gone. Sooner or later Kubernetes itself collects an object whose owner
    is in another namespace."""
    found = one(cluster, "pod", pod, TENANT)
    return not found or found["status"]["phase"] == "Failed"


def uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def test_a_training_that_prints_an_xid_and_crashes_has_crashed_by_itself(cluster: Cluster) -> None:
    crash = f"print('step 1 loss 0.25')\nprint({KERNELS_WORDS!r}, flush=True)\nraise SystemExit(1)"
    apply(cluster, steppers("crasher", namespace=TENANT, count=1, program=crash))

    until("its Recovery", lambda: bool(recoveries(cluster, "crasher")), LIMIT_S)

    until("its Incident", lambda: bool(blames(cluster) - {"unknown"}), LIMIT_S)
    print(f"\nblamed: {blames(cluster)}")
    assert blames(cluster) == {"application"}
    assert quarantined(cluster) == set()


def blames(cluster: Cluster) -> set[str]:
    """Returns the culprits in the open Incidents. A new Incident says `unknown` for a moment."""
    return {body.get("status", {}).get("blame", "unknown") for body in open_incidents(cluster)}


def test_no_pod_of_a_tenant_writes_to_the_kernel_log(cluster: Cluster) -> None:
    apply(cluster, steppers("writer", namespace=TENANT, count=1, gpus=0, program=WRITER))
    own = ("--selector=steppers=writer", f"--namespace={TENANT}")
    cluster.kubectl("wait", "--for=condition=Complete", f"--timeout={LIMIT_S:g}s", "job/writer", own[1])

    words = cluster.kubectl("logs", *own)

    assert words == "/dev/kmsg: No such file or directory\nits device: Operation not permitted\n"
    for asks in (hostpath_pod(), privileged_pod()):
        with pytest.raises(ClusterError, match='violates PodSecurity "baseline:latest"'):
            apply(cluster, asks)


def hostpath_pod() -> dict[str, Any]:
    pod = pod_of_tenant()
    pod["spec"]["volumes"] = [{"name": "kmsg", "hostPath": {"path": "/dev/kmsg"}}]
    return pod


def privileged_pod() -> dict[str, Any]:
    pod = pod_of_tenant()
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    return pod


def pod_of_tenant() -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": BASE, "imagePullPolicy": "Never"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": TENANT}, "spec": spec}


def test_a_namespace_that_asks_for_more_gets_no_more_than_the_settings_allow_it(cluster: Cluster) -> None:
    """The mode of a namespace can be set by everyone who may write namespaces, which in many clusters a
    tenant may. The node shows that everything else here works: the same fault does quarantine the node."""
    cluster.kubectl("annotate", "namespace", CAREFUL, "rekindle.dev/mode=repair", "--overwrite")
    apply(cluster, steppers("held-back", namespace=CAREFUL, labels=OPTED_IN))
    pods = stepping(cluster, "held-back")
    struck = pods[0]["spec"]["nodeName"]

    # One write has both lines: otherwise a reconcile might see one line without the other.
    lost = (FALLEN_OFF_THE_BUS.text.format(pci=gpu_address(gpu)) for gpu in (0, 1))
    kernel_says(cluster.nodes[struck], *lost)

    until("the node's quarantine", lambda: quarantined(cluster) == {struck}, LIMIT_S)
    time.sleep(LOOKED_S)
    (told,) = open_incidents(cluster)
    refusals = {a["reason"] for a in told["status"]["actions"] if a["target"].endswith("held-back")}
    assert refusals == {"ObserveMode"}
    assert recoveries(cluster, "held-back") == []
    assert uids(ranks(cluster, "held-back")) == uids(pods)
