"""The RBAC rules and admission policies of the chart, installed on a control plane, and real tokens.

The tests run controller and agents with exactly these rules and policies.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import yaml

from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import Resource
from recover.k8s.kinds import INCIDENTS, LEASES

__all__ = [
    "AGENT",
    "AGENT_USER",
    "BINDINGS",
    "CONTROLLER_NAME",
    "CONTROLLER_USER",
    "ROLES",
    "SYSTEM",
    "install_rights",
    "manifests",
    "token",
]

SYSTEM = "rekindle-system"
AGENT = "rekindle-agent"
CONTROLLER_NAME = "rekindle-controller"
AGENT_USER = f"system:serviceaccount:{SYSTEM}:{AGENT}"
CONTROLLER_USER = f"system:serviceaccount:{SYSTEM}:{CONTROLLER_NAME}"
"""Users of agent and controller, as the policies and the audit log name them."""
IN_FORCE_S = 60.0
TOKEN_S = 24 * 3600

_FILES = Path(__file__).parents[2] / "charts" / "rekindle" / "files"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
ROLES = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


def _admission(kind: str, plural: str) -> Resource:
    return Resource(_ADMISSION, "v1", plural, kind, namespaced=False)


_KINDS = (
    _ACCOUNTS,
    LEASES,
    ROLES,
    BINDINGS,
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    _admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _admission("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    _admission("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    _admission("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
)
_OF_KIND = {(kind.api_version, kind.kind): kind for kind in _KINDS}


def manifests() -> list[dict[str, Any]]:
    """Returns all RBAC rules and policies from the chart's files."""
    files = [*sorted((_FILES / "rbac").iterdir()), *sorted((_FILES / "policies").iterdir())]
    return [body for file in files for body in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


async def install_rights(api: KubeApi) -> None:
    """Installs RBAC rules and policies. The namespace rekindle-system and the CRDs must exist. Returns when
    the policies refuse."""
    for body in manifests():
        kind = _OF_KIND[body["apiVersion"], body["kind"]]
        try:
            await api.request("POST", kind.path(namespace=body["metadata"].get("namespace", "")), body=body)
        except ApiError as error:
            if not error.exists:  # from an earlier test
                raise
    async with asyncio.timeout(IN_FORCE_S):
        while await _an_administrator_may_write(api):
            await asyncio.sleep(0.05)


async def _an_administrator_may_write(api: KubeApi) -> bool:
    body = {
        "apiVersion": INCIDENTS.api_version,
        "kind": INCIDENTS.kind,
        "metadata": {"name": "is-the-policy-in-force"},
        "spec": {"node": "n1", "fault": "host", "bootId": "", "detectedAt": "2026-01-01T00:00:00Z"},
    }
    try:
        await api.request("POST", INCIDENTS.path(), params={"dryRun": "All"}, body=body)
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


async def token(api: KubeApi, account: str, *, pod: Any = None) -> str:
    """Returns a token of that ServiceAccount in rekindle-system, as a kubelet requests one: bound to a pod,
    if a pod is given."""
    spec: dict[str, Any] = {"expirationSeconds": TOKEN_S}
    if pod is not None:
        meta = pod["metadata"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await api.request("POST", _ACCOUNTS.path(account, SYSTEM, "token"), body=body)
    return str(msgspec.json.decode(answer)["status"]["token"])
