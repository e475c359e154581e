"""Callers of the API server in test_rights.py, with real tokens: agent, controller, administrator, a team."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from detectors.agent.publish import patch_body
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.contract import NodeHealthStatus
from detectors.wire.resource import MergePatch, Resource, StrategicPatch
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, NAMESPACES, NODEHEALTHS, NODES, RECOVERIES
from tests.control_plane.agents import agent_pod
from tests.control_plane.clean import install_crds, wiped
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import AGENT, BINDINGS, CONTROLLER_NAME, SYSTEM, install_rights, token
from tests.control_plane.stage import ANSWERED_S

__all__ = ["ANY_STATUS", "NAMESPACE", "Caller", "Callers", "body", "calling", "incident", "recovery"]

NAMESPACE = "ml"
ANY_STATUS = patch_body(NodeHealthStatus(boot_id="b00t"))
TEAM = "nobody"
"""Name of a static user of the control plane."""
IN_FORCE_S = 60.0
_RBAC = "rbac.authorization.k8s.io"
ROLE_BINDINGS = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
POLICY = "ValidatingAdmissionPolicy"


class Caller:
    """One user. `asks` answers in a word: `ok`, or what refused the request."""

    def __init__(self, api: KubeApi) -> None:
        self.api = api

    async def asks(self, method: str, path: str, body: Any = None, **params: str) -> str:
        """Sends a request. Returns `ok`, `refused by RBAC`, `refused by policy`, or the error's status and
        reason."""
        try:
            await self.does(method, path, body, **params)
        except ApiError as error:
            if error.status != 403:
                return f"{error.status} {error.reason}"
            return "refused by policy" if POLICY in error.message else "refused by RBAC"
        return "ok"

    async def does(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """Sends a request and returns the answer. The method STRATEGIC is a patch that merges Kubernetes' own
        lists. Raises ApiError."""
        content_type = {"PATCH": MergePatch, "STRATEGIC": StrategicPatch}.get(method, "application/json")
        method = "PATCH" if method == "STRATEGIC" else method
        answer = await self.api.request(method, path, params=params, body=body, content_type=content_type)
        return msgspec.json.decode(answer)


class Callers:
    """The callers of a cluster with nodes n1 and n2, each with its NodeHealth, an Incident, and a Recovery in
    namespace ml."""

    def __init__(self, plane: ControlPlane, stack: AsyncExitStack, *, admin: Caller, team: Caller) -> None:
        self.admin = admin
        self.team = team
        """User without any permission."""
        self._plane = plane
        self._stack = stack

    async def account(self, name: str, *, pod: Any = None) -> Caller:
        """Returns a caller with a fresh token of one of Rekindle's ServiceAccounts."""
        text = await token(self.admin.api, name, pod=pod)
        credentials = Credentials(self._plane.url, token=text, ca_file=str(self._plane.ca_file))
        return Caller(await self._stack.enter_async_context(KubeApi(credentials, timeout_s=ANSWERED_S)))

    async def controller(self) -> Caller:
        return await self.account(CONTROLLER_NAME)

    async def agent(self) -> Caller:
        """Returns a caller with a token that is bound to a pod on n1."""
        return await self.account(AGENT, pod=await agent_pod(self.admin.api, "n1"))

    async def grant(self, role: str, to: Caller, *, account: str = "", namespace: str = "") -> None:
        """Binds a ClusterRole until the test ends: to the given account of Rekindle, or else to the team."""
        subject = {"kind": "User", "apiGroup": _RBAC, "name": TEAM}
        if account:
            subject = {"kind": "ServiceAccount", "namespace": SYSTEM, "name": account}
        name = f"widened-{role}"
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }
        resource = ROLE_BINDINGS if namespace else BINDINGS
        await self.admin.does("POST", resource.path(namespace=namespace), binding)
        self._stack.push_async_callback(self._revoked, resource.path(name, namespace), to, namespace)
        await self._until_listing(to, namespace, is_refused=False)

    async def _revoked(self, binding: str, to: Caller, namespace: str) -> None:
        await self.admin.asks("DELETE", binding)
        await self._until_listing(to, namespace, is_refused=True)

    async def _until_listing(self, caller: Caller, namespace: str, *, is_refused: bool) -> None:
        """Waits until the caller may list ConfigMaps, or no longer may: a binding, or its removal, is in
        force a moment later."""
        async with asyncio.timeout(IN_FORCE_S):
            while is_refused is (
                await caller.asks("GET", CONFIGMAPS.path(namespace=namespace or "default")) == "ok"
            ):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def calling(plane: ControlPlane) -> AsyncIterator[Callers]:
    """Yields the callers. Everything that the tests create is removed, however the block ends."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(KubeApi(plane.credentials(), timeout_s=ANSWERED_S))
        team = await stack.enter_async_context(KubeApi(plane.credentials(TEAM), timeout_s=ANSWERED_S))
        callers = Callers(plane, stack, admin=Caller(api), team=Caller(team))
        await install_crds(api)
        for name in (NAMESPACE, SYSTEM):
            await callers.admin.asks("POST", NAMESPACES.path(), {"metadata": {"name": name}})
        await install_rights(api)
        stack.push_async_callback(wiped, api)
        await _set(callers.admin, await callers.controller())
        yield callers


async def _set(admin: Caller, controller: Caller) -> None:
    for name in ("n1", "n2"):
        node = {"metadata": {"name": name, "labels": {"type": "kwok"}}}
        await admin.does("POST", NODES.path(), node)
        await controller.does("POST", NODEHEALTHS.path(), body(NODEHEALTHS, name))
    await controller.does("POST", INCIDENTS.path(), incident("first"))
    await controller.does("POST", RECOVERIES.path(namespace=NAMESPACE), recovery("first"))


def body(resource: Resource, name: str, **parts: Any) -> dict[str, Any]:
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**identity, "metadata": {"name": name}, **parts}


def incident(name: str) -> dict[str, Any]:
    spec = {"fault": "device-lost", "node": "n1", "detectedAt": "2026-11-21T10:00:00Z"}
    return body(INCIDENTS, name, spec=spec)


def recovery(name: str) -> dict[str, Any]:
    gang = {"apiVersion": "batch/v1", "kind": "Job", "namespace": NAMESPACE, "name": "llm", "uid": "u"}
    spec = {"gang": gang, "number": 1, "fault": "device-lost", "detectedAt": "2026-11-21T10:00:00Z"}
    return body(RECOVERIES, name, spec={**spec, "summary": "a test", "incident": "first"})
