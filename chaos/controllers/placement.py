"""Decides whether a pod may run on a node: taints, selectors, node affinity, devices. Pure; scheduler.py
calls it.

Source: kube-scheduler's filter plugins, the parts that concern a GPU gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from chaos.apiserver.kinds import Object

__all__ = ["GPU", "devices_of_node", "devices_of_pod", "preference", "refusal", "tolerates"]

GPU = "nvidia.com/gpu"


def devices_of_pod(pod: Object) -> Counter[str]:
    """Returns how much of each extended resource the pod's containers request."""
    asked: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        asked.update(_devices({**resources.get("requests", {}), **resources.get("limits", {})}))
    return asked


def devices_of_node(node: Object) -> Counter[str]:
    return Counter(_devices(node.get("status", {}).get("allocatable", {})))


def _devices(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(quantity) for name, quantity in quantities.items() if "/" in name}


def refusal(pod: Object, node: Object, free: Mapping[str, int]) -> str | None:
    """Returns why the node does not fit, in the scheduler's words. Returns None if it fits. `free` has the
    free devices by resource."""
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
    missing = (name for name, count in sorted(devices_of_pod(pod).items()) if count > free.get(name, 0))
    short_of = next(missing, None)
    return f"Insufficient {short_of}" if short_of else None


def preference(pod: Object, node: Object) -> tuple[int, int]:
    """Returns the preference for the node. Smaller is better. Soft taints count first, because they weigh
    more in the default scheduler than preferred affinity."""
    taints = [t for t in node.get("spec", {}).get("taints", []) if t["effect"] == "PreferNoSchedule"]
    disliked = sum(1 for taint in taints if not tolerates(pod, taint))
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    labels, fields = node["metadata"].get("labels", {}), {"metadata.name": node["metadata"]["name"]}
    wanted = sum(
        int(term["weight"])
        for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        if _meets(term["preference"], labels, fields)
    )
    return disliked, -wanted


def tolerates(pod: Object, taint: Mapping[str, Any]) -> Object | None:
    """Returns the first toleration that covers the taint. Returns None if there is none."""
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
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_meets(term, labels, fields) for term in terms)


def _meets(term: Object, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """Whether the node meets all of the term. An empty term matches nothing, as in Kubernetes."""
    asked = [(expression, labels) for expression in term.get("matchExpressions", [])]
    asked += [(expression, fields) for expression in term.get("matchFields", [])]
    return bool(asked) and all(_holds(expression, values) for expression, values in asked)


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
