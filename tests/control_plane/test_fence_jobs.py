"""With a token to which RBAC grants everything, the controller may do to jobs only what a stop, a start and
the creation of a job again need; the same applies to the Jobs of a repair."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, JOBSETS, PYTORCHJOBS
from tests.control_plane.callers import NAMESPACE, Callers
from tests.control_plane.cases import RECREATE, indexed_job, pytorchjob, recovered, recoveries, trained
from tests.control_plane.fenced import Attempt, answers, changed, fenced
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import SYSTEM
from tests.control_plane.stage import raised

pytestmark = pytest.mark.control_plane

LABEL = {"rekindle.dev/repair": "i"}
MARK = {"rekindle.dev/recovery": "{}"}
ANEW = {"rekindle.dev/on-terminal": "recreate"}
MARKED = {"metadata": {"annotations": MARK}}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
                    ]
                }
            ]
        }
    }
}
HERE, KUBE, OWN = (JOBS.path(namespace=name) for name in (NAMESPACE, "kube-system", SYSTEM))
PLAIN, WILLING, HOSTLY = (JOBS.path(name, NAMESPACE) for name in ("plain", "willing", "hostly"))
POD = "spec/template/spec"
CONTAINER = f"{POD}/containers/0"


def job(name: str = "llm", **annotations: str) -> dict[str, Any]:
    return indexed_job(name, annotations={**MARK, **ANEW, **annotations}, suspend=True)


def repair() -> dict[str, Any]:
    node = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    pinned = {"nodeSelectorTerms": [{"matchFields": [node]}]}
    return {
        "metadata": {"name": "repair-1", "labels": LABEL},
        "spec": {
            "backoffLimit": 0,
            "suspend": True,
            "template": {
                "metadata": {"labels": LABEL},
                "spec": {
                    "restartPolicy": "Never",
                    "hostPID": True,
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pinned}},
                    "containers": [
                        {"name": "reboot", "image": "any", "securityContext": {"privileged": True}}
                    ],
                },
            },
        },
    }


def made(path: str, value: Any, of: Any = None, where: str = HERE) -> Attempt:
    return ("POST", where, changed(job() if of is None else of, path, value))


REFUSED: dict[str, Attempt] = {
    "in kube-system": ("POST", KUBE, job()),
    "without our mark": made("metadata/annotations", ANEW),
    "one that did not ask for it": made("metadata/annotations", MARK),
    "in our namespace": ("POST", OWN, job()),
    "a repair on any node": made(f"{POD}/affinity", None, repair(), OWN),
    "a repair on many nodes": made("spec/parallelism", 9, repair(), OWN),
    "a repair elsewhere": made("metadata/annotations", None, changed(job(), "metadata/labels", LABEL)),
    "a repair whose pod has no label": made("spec/template/metadata", {}, repair(), OWN),
    "deletion of one that did not ask for it": ("DELETE", PLAIN),
    "deletion in kube-system": ("DELETE", JOBS.path("system", "kube-system")),
    "a stop in kube-system": ("PATCH", JOBS.path("system", "kube-system"), {"spec": {"suspend": True}}),
    "labels": ("PATCH", PLAIN, {"metadata": {"labels": {"a": "b"}}}),
    "an annotation of people": ("PATCH", PLAIN, {"metadata": {"annotations": ANEW}}),
    "finalizers": ("PATCH", PLAIN, {"metadata": {"finalizers": ["a.test/b"]}}),
    "owners": (
        "PATCH",
        PLAIN,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}},
    ),
    "parallelism": ("PATCH", PLAIN, {"spec": {"parallelism": 0}}),
    "a deadline": ("PATCH", PLAIN, {"spec": {"activeDeadlineSeconds": 1}}),
    "a time to live": ("PATCH", PLAIN, {"spec": {"ttlSecondsAfterFinished": 0}}),
    "tolerations": (
        "PATCH",
        PLAIN,
        {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}},
    ),
    "labels of pods": ("PATCH", PLAIN, {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
    "success": ("PATCH", f"{PLAIN}/status", {"status": {"succeeded": 2}}),
    "a start time": ("PATCH", f"{PLAIN}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}}),
    "labels with a status": ("PATCH", f"{PLAIN}/status", {"metadata": {"labels": {"a": "b"}}}),
}
ANEW_REFUSED: dict[str, Attempt] = {
    "a path of the node": made(f"{POD}/volumes", [{"name": "v", "hostPath": {"path": "/"}}]),
    "the network of the node": made(f"{POD}/hostNetwork", True),
    "the processes of the node": made(f"{POD}/hostPID", True),
    "the memory of the node": made(f"{POD}/hostIPC", True),
    "privileged": made(f"{CONTAINER}/securityContext", {"privileged": True}),
    "an init container": made(
        f"{POD}/initContainers", [{"name": "i", "image": "i", "securityContext": {"privileged": True}}]
    ),
    "a strong capability": made(f"{CONTAINER}/securityContext", {"capabilities": {"add": ["SYS_ADMIN"]}}),
    "a node of its choice": made(f"{POD}/nodeName", "n1"),
    "an account with rights": made(f"{POD}/serviceAccountName", "strong"),
    "deletion of one that could not be made again": ("DELETE", HOSTLY),
}
ADMITTED: dict[str, Attempt] = {
    "one made anew": ("POST", HERE, job()),
    "with locked memory": made(f"{CONTAINER}/securityContext", {"capabilities": {"add": ["IPC_LOCK"]}}),
    "its deletion": ("DELETE", WILLING, {"propagationPolicy": "Foreground", "dryRun": ["All"]}),
    "a stop": ("PATCH", PLAIN, {**MARKED, "spec": {"suspend": True}}),
    "a start": (
        "PATCH",
        PLAIN,
        {**MARKED, "spec": {"suspend": False, "template": {"spec": {"affinity": AFFINITY}}}},
    ),
    "the mark taken off": ("PATCH", WILLING, {"metadata": {"annotations": dict.fromkeys(MARK)}}),
    "the start time taken off": ("PATCH", f"{PLAIN}/status", {"status": {"startTime": None}}),
    "a repair": ("POST", OWN, repair()),
    "its end": ("DELETE", JOBS.path("repair-0", SYSTEM)),
}


async def test_jobs_are_stopped_started_and_made_anew_where_they_ask_for_it(
    control_plane: ControlPlane,
) -> None:
    account = Resource("", "v1", "serviceaccounts", "ServiceAccount")
    plain = indexed_job("plain", suspend=True)
    async with fenced(control_plane) as (callers, controller):
        for path, body in (
            (HERE, plain),
            (HERE, job("willing")),
            (HERE, changed(job("hostly"), f"{POD}/hostNetwork", True)),
            (KUBE, changed(plain, "metadata/name", "system")),
            (OWN, changed(repair(), "metadata/name", "repair-0")),
            (account.path(namespace=NAMESPACE), {"metadata": {"name": "strong"}}),
        ):
            await callers.admin.does("POST", path, body)
        await strengthened(callers)

        assert await answers(controller, REFUSED) == dict.fromkeys(REFUSED, "fence-jobs")
        assert await answers(controller, ANEW_REFUSED) == dict.fromkeys(ANEW_REFUSED, "fence-anew")
        assert await answers(controller, ADMITTED) == dict.fromkeys(ADMITTED, "ok")
        assert await callers.admin.asks("DELETE", account.path("strong", NAMESPACE)) == "ok"


def of_roles(**worker: Any) -> Attempt:
    return ("PATCH", TORCH, {"spec": {"pytorchReplicaSpecs": {"Worker": worker}}})


def container(**fields: Any) -> Attempt:
    """Returns a patch of the workers' container: a client that patches one container writes the whole
    list."""
    (before,) = pytorchjob("torch", "Never")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"][
        "containers"
    ]
    return of_roles(template={"spec": {"containers": [{**before, **fields}]}})


TORCH = PYTORCHJOBS.path("torch", NAMESPACE)
SET = JOBSETS.path("set", NAMESPACE)
OURS = {"configMapRef": {"name": "torch-rekindle-pytorchjob", "optional": True}}
REFUSED_OF_KUBEFLOW: dict[str, Attempt] = {
    "an image": container(image="evil"),
    "a command": container(command=["id"]),
    "arguments": container(args=["--evil"]),
    "variables": container(env=[{"name": "LD_PRELOAD", "value": "/x.so"}]),
    "variables of a Secret": container(envFrom=[{"secretRef": {"name": "s"}}]),
    "variables of another ConfigMap": container(envFrom=[{"configMapRef": {"name": "theirs"}}]),
    "variables of a name like ours": container(envFrom=[{"configMapRef": {"name": "a-rekindle-b"}}]),
    "privileged": container(securityContext={"privileged": True}),
    "a mount": container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
    "another name": container(name="other"),
    "no containers": of_roles(template={"spec": {"containers": []}}),
    "init containers": of_roles(template={"spec": {"initContainers": [{"name": "i", "image": "evil"}]}}),
    "volumes": of_roles(template={"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
    "an account": of_roles(template={"spec": {"serviceAccountName": "strong"}}),
    "the network of the node": of_roles(template={"spec": {"hostNetwork": True}}),
    "the processes of the node": of_roles(template={"spec": {"hostPID": True}}),
    "a security context": of_roles(template={"spec": {"securityContext": {"runAsUser": 0}}}),
    "a node": of_roles(template={"spec": {"nodeName": "n1"}}),
    "labels of pods": of_roles(template={"metadata": {"labels": {"a": "b"}}}),
    "replicas": of_roles(replicas=9),
    "a restart policy": of_roles(restartPolicy="Always"),
    "a role": ("PATCH", TORCH, {"spec": {"pytorchReplicaSpecs": {"Worker": None}}}),
    "a limit of time": ("PATCH", TORCH, {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}}),
    "a status": ("PATCH", f"{TORCH}/status", {"status": {"replicaStatuses": {}}}),
    "deletion": ("DELETE", TORCH),
}
ADMITTED_OF_KUBEFLOW: dict[str, Attempt] = {
    "a stop": ("PATCH", TORCH, {**MARKED, "spec": {"runPolicy": {"suspend": True}}}),
    "our environment": container(envFrom=[OURS]),
    "nodes to avoid": of_roles(template={"spec": {"affinity": AFFINITY}}),
}
REFUSED_OF_SETS: dict[str, Attempt] = {
    "its Jobs": ("PATCH", SET, {"spec": {"replicatedJobs": []}}),
    "its failure policy": ("PATCH", SET, {"spec": {"failurePolicy": {"maxRestarts": 9}}}),
    "its time to live": ("PATCH", SET, {"spec": {"ttlSecondsAfterFinished": 0}}),
    "its end": ("PATCH", f"{SET}/status", {"status": {"restarts": 1, "terminalState": "Completed"}}),
    "many restarts": ("PATCH", f"{SET}/status", {"status": {"restarts": 7}}),
    "deletion": ("DELETE", SET),
}
ADMITTED_OF_SETS: dict[str, Attempt] = {
    "a stop": ("PATCH", SET, {**MARKED, "spec": {"suspend": True}}),
    "new Jobs": ("PATCH", f"{SET}/status", {"status": {"restarts": 1}}),
}


async def test_of_a_pytorchjob_it_changes_suspend_affinity_and_its_own_envfrom(
    training: ControlPlane,
) -> None:
    torch = changed(pytorchjob("torch", "Never"), "spec/runPolicy", {"suspend": True})
    async with fenced(training) as (callers, controller):
        await callers.admin.does("POST", PYTORCHJOBS.path(namespace=NAMESPACE), torch)

        refused = await answers(controller, REFUSED_OF_KUBEFLOW)

        assert refused == dict.fromkeys(REFUSED_OF_KUBEFLOW, "fence-jobs")
        admitted = await answers(controller, ADMITTED_OF_KUBEFLOW)
        assert admitted == dict.fromkeys(ADMITTED_OF_KUBEFLOW, "ok")


async def test_of_a_jobset_it_changes_suspend_and_asks_for_new_jobs(jobsets: ControlPlane) -> None:
    replicated = {"name": "train", "template": {"spec": indexed_job("set")["spec"]}}
    suspended = {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {"name": "set"},
        "spec": {"suspend": True, "replicatedJobs": [replicated]},
    }
    async with fenced(jobsets) as (callers, controller):
        await callers.admin.does("POST", JOBSETS.path(namespace=NAMESPACE), suspended)

        assert await answers(controller, REFUSED_OF_SETS) == dict.fromkeys(REFUSED_OF_SETS, "fence-jobs")
        assert await answers(controller, ADMITTED_OF_SETS) == dict.fromkeys(ADMITTED_OF_SETS, "ok")


async def test_a_job_that_uses_the_node_is_never_lost_and_its_recovery_says_why_it_is_not_made_anew(
    control_plane: ControlPlane,
) -> None:
    host = {"hostNetwork": True}
    async with raised(control_plane, nodes=4, settings=["mode=recover"], agents=0) as stage:
        waits = await trained(stage, indexed_job("waits", annotations=RECREATE, pod=host))
        final = indexed_job("final", backoffLimit=0, dying="143", annotations=RECREATE, pod=host)
        ended = await trained(stage, final)
        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode

        await asyncio.gather(stage.end(waits[0], exit_code=1), stage.end(ended[0], exit_code=1))

        async def told() -> bool:
            return any(
                "rekindle-fence-anew" in r["status"].get("message", "")
                for r in await recoveries(stage, "final")
            )

        await stage.until("the policy's words", told)
        await recovered(stage, "waits", waits)
        assert (await stage.get(JOBS, "final", NAMESPACE))["metadata"].get("deletionTimestamp") is None


async def strengthened(callers: Callers) -> None:
    """Lets the account `strong` read the namespace's Secrets."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "strong"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "strong", "namespace": NAMESPACE}],
    }
    resource = Resource(group, "v1", "rolebindings", "RoleBinding")
    await callers.admin.asks("POST", resource.path(namespace=NAMESPACE), binding)
