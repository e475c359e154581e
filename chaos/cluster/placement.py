"""May this pod run on that node: taints, selectors, node affinity, GPUs. Pure; scheduler.py asks it.

Source: kube-scheduler's filter plugins, the parts that a GPU gang meets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.cluster.kinds import Object

__all__ = ["GPU", "gpus_of_node", "gpus_of_pod", "refusal", "tolerates"]

GPU = "nvidia.com/gpu"


def gpus_of_pod(pod: Object) -> int:
    total = 0
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        quantity = resources.get("limits", {}).get(GPU, resources.get("requests", {}).get(GPU, 0))
        total += int(quantity)
    return total


def gpus_of_node(node: Object) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get(GPU, 0))


def refusal(pod: Object, node: Object, free_gpus: int) -> str | None:
    """Why the node will not do, in the scheduler's words; None if it will."""
    spec = node.get("spec", {})
    if spec.get("unschedulable") and not tolerates(pod, {"key": "node.kubernetes.io/unschedulable"}):
        return "node(s) were unschedulable"
    for taint in spec.get("taints", []):
        if taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    ready = next((c for c in node.get("status", {}).get("conditions", []) if c["type"] == "Ready"), None)
    if ready is None or ready["status"] != "True":
        return "node(s) were not ready"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if gpus_of_pod(pod) > free_gpus:
        return f"Insufficient {GPU}"
    return None


def tolerates(pod: Object, taint: Mapping[str, Any]) -> Object | None:
    """The first toleration that covers the taint."""
    tolerations: list[Object] = pod["spec"].get("tolerations", [])
    return next((toleration for toleration in tolerations if _covers(toleration, taint)), None)


def _covers(toleration: Object, taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect", "") not in ("", taint.get("effect", "NoSchedule")):
        return False
    key, exists = toleration.get("key", ""), toleration.get("operator", "Equal") == "Exists"
    if not key:
        return bool(exists)
    return bool(key == taint["key"] and (exists or toleration.get("value", "") == taint.get("value", "")))


def _selected(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels", {})
    selector = pod["spec"].get("nodeSelector", {})
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    if terms is None:
        return True
    return any(_meets(term.get("matchExpressions", []), labels) for term in terms)


def _meets(expressions: list[Object], labels: Mapping[str, str]) -> bool:
    """All of them; an empty term matches nothing, as in Kubernetes."""
    return bool(expressions) and all(_holds(expression, labels) for expression in expressions)


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(expression["values"][0])
        case "Lt":
            return value is not None and int(value) < int(expression["values"][0])
        case _:
            return False
