"""Gangs that only print a step every second, for tests of the surroundings of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.cases import until
from tests.cluster.cluster import Cluster
from tests.cluster.images import BASE
from tests.cluster.install import listed

__all__ = [
    "CAREFUL",
    "NAMESPACE",
    "OPTED_IN",
    "STEPS",
    "TENANT",
    "namespace",
    "ranks",
    "steppers",
    "stepping",
]

NAMESPACE = "ml"
CAREFUL = "careful"
"""Name of a namespace in which the settings allow Rekindle only to observe."""
TENANT = "tenant"
OPTED_IN = {"rekindle.dev/auto-recovery": "enabled"}
STARTED_S = 120.0
STEPS = """
import itertools, os, time
print("gpus", os.environ.get("NVIDIA_VISIBLE_DEVICES"), flush=True)
for step in itertools.count(1):
    print(f"step {step} loss 0.25", flush=True)
    time.sleep(1)
"""


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def steppers(
    name: str,
    *,
    namespace: str = NAMESPACE,
    count: int = 2,
    gpus: int = 1,
    program: str = STEPS,
    labels: Mapping[str, str] = OPTED_IN,
    nodes: Sequence[str] = (),
    only_on: str = "",
) -> dict[str, Any]:
    """Returns an Indexed Job with no two ranks on one node, on `nodes` if they have room. Without `labels`
    Rekindle may not touch the job."""
    container = {
        "name": "train",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", program],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    selector = {"matchLabels": {"steppers": name}}
    apart = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    affinity: dict[str, Any] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
    }
    if nodes:
        wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
        preferred = {"weight": 100, "preference": {"matchExpressions": [wanted]}}
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "affinity": affinity,
        "containers": [container],
        **({"nodeSelector": {"kubernetes.io/hostname": only_on}} if only_on else {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "template": {"metadata": {"labels": {"steppers": name}}, "spec": pod},
        },
    }


def ranks(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Returns the running pods of that gang that are not being deleted, by rank."""
    pods = listed(cluster, "pods", f"--selector=steppers={name}", "--field-selector=status.phase=Running")
    alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return sorted(alive, key=lambda pod: str(pod["metadata"]["name"]))


def stepping(cluster: Cluster, name: str, count: int = 2) -> list[dict[str, Any]]:
    """Returns the gang's pods, once the agents have published steps of each."""

    def told() -> bool:
        uids = {pod["metadata"]["uid"] for pod in ranks(cluster, name)}
        healths = listed(cluster, "nodehealths.rekindle.dev")
        published = [pod for health in healths for pod in health.get("status", {}).get("pods", [])]
        return len(uids) == count and uids <= {pod["uid"] for pod in published if "firstStep" in pod}

    until(f"steps of {name}", told, STARTED_S)
    return ranks(cluster, name)
