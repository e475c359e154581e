"""The least rights with which the controller does its work. The tests run it with exactly these."""

from __future__ import annotations

from typing import Any

from detectors.resource import Resource

__all__ = ["BINDINGS", "CONTROLLER_RIGHTS", "ROLES", "binding"]

_GROUP = "rbac.authorization.k8s.io"
ROLES = Resource(_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_NAME = "rekindle-controller"


def _rule(group: str, resources: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


_READ = ("get", "list", "watch")
CONTROLLER_RIGHTS: dict[str, Any] = {
    "metadata": {"name": _NAME},
    "rules": [
        _rule("", "nodes", *_READ, "patch"),
        _rule("", "namespaces", *_READ),
        _rule("", "pods", *_READ, "create", "patch", "delete"),
        _rule("", "pods/status", "patch"),
        _rule("", "configmaps", "get", "create", "patch"),
        _rule("events.k8s.io", "events", "create"),
        _rule("batch", "jobs", *_READ, "patch"),
        _rule("kubeflow.org", "pytorchjobs", *_READ, "patch"),
        _rule("rekindle.dev", "nodehealths incidents recoveries", *_READ, "create", "patch", "delete"),
        _rule("rekindle.dev", "incidents/status recoveries/status", "patch"),
    ],
}


def binding(user: str) -> dict[str, Any]:
    return {
        "metadata": {"name": _NAME},
        "roleRef": {"apiGroup": _GROUP, "kind": ROLES.kind, "name": _NAME},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }
