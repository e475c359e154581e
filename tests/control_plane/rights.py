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
from recover.k8s.kinds import CONFIGMAPS, LEASES

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

_MUTATED, _REFUSED = "mutated-by-the-last-policy", "refused-by-the-last-policy"
_NAME = "object.metadata.?name.orValue('')"
"""An object whose name the API server makes up has no name yet."""
_NEW_MAPS = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    ]
}
_LABEL = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"
_LAST: tuple[tuple[Resource, dict[str, Any]], ...] = tuple(
    (_OF_KIND[f"{_ADMISSION}/v1", kind], {"metadata": {"name": name}, "spec": spec})
    for kind, name, spec in (
        (
            "MutatingAdmissionPolicy",
            _MUTATED,
            {
                "reinvocationPolicy": "Never",
                "matchConstraints": _NEW_MAPS,
                "matchConditions": [{"name": "it", "expression": f"{_NAME} == '{_MUTATED}'"}],
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _LABEL}}],
            },
        ),
        ("MutatingAdmissionPolicyBinding", _MUTATED, {"policyName": _MUTATED}),
        (
            "ValidatingAdmissionPolicy",
            _REFUSED,
            {
                "matchConstraints": _NEW_MAPS,
                "validations": [{"expression": f"{_NAME} != '{_REFUSED}'"}],
            },
        ),
        (
            "ValidatingAdmissionPolicyBinding",
            _REFUSED,
            {"policyName": _REFUSED, "validationActions": ["Deny"]},
        ),
    )
)
"""Policies by which `install_rights` sees that all policies are in force."""


def manifests() -> list[dict[str, Any]]:
    """Returns all RBAC rules and policies from the chart's files."""
    files = [*sorted((_FILES / "rbac").iterdir()), *sorted((_FILES / "policies").iterdir())]
    return [body for file in files for body in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


async def install_rights(api: KubeApi) -> None:
    """Installs RBAC rules and policies. The namespace rekindle-system and the CRDs must exist. Returns when
    every policy is in force."""
    is_new = False
    for body in manifests():
        kind = _OF_KIND[body["apiVersion"], body["kind"]]
        try:
            await api.request("POST", kind.path(namespace=body["metadata"].get("namespace", "")), body=body)
            is_new = True
        except ApiError as error:
            if not error.exists:  # from an earlier test
                raise
    if is_new:
        await _until_every_policy_is_in_force(api)


async def _until_every_policy_is_in_force(api: KubeApi) -> None:
    """Installs two more policies, waits until they are in force, and removes them. An API server reads
    policies in the order in which they were created, so then the earlier ones are in force, too."""
    for kind, body in _LAST:
        await api.request("POST", kind.path(), body=body)
    async with asyncio.timeout(IN_FORCE_S):
        while "labels" not in (await _admitted(api, _MUTATED) or {}):
            await asyncio.sleep(0.05)
        while await _admitted(api, _REFUSED):
            await asyncio.sleep(0.05)
    for kind, body in _LAST:
        await api.request("DELETE", kind.path(body["metadata"]["name"]))


async def _admitted(api: KubeApi, name: str) -> Any:
    """Returns the metadata with which a ConfigMap of that name would be stored, or None if it is refused."""
    path, body = CONFIGMAPS.path(namespace="default"), {"metadata": {"name": name}}
    try:
        raw = await api.request("POST", path, params={"dryRun": "All"}, body=body)
    except ApiError as error:
        if error.status != 422:
            raise
        return None
    return msgspec.json.decode(raw)["metadata"]


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
