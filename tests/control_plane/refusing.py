"""A policy of the cluster that refuses our controller's writes to some objects, as an administrator's may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from detectors.kubeapi import ApiError, Credentials, KubeApi, MergePatch
from detectors.resource import Resource
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import CONTROLLER_NAME, CONTROLLER_USER, token
from tests.control_plane.stage import RealStage

__all__ = ["refusing"]

_GROUP = "admissionregistration.k8s.io"
_POLICIES = Resource(
    _GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
_BINDINGS = Resource(
    _GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
_NAME = "owners-only"


@asynccontextmanager
async def refusing(
    stage: RealStage, plane: ControlPlane, resource: Resource, words: str, *, name: str, namespace: str = ""
) -> AsyncIterator[None]:
    """The object of that name takes no change by our controller, which is told these words. The block begins
    once the policy is in force, and ends once it no longer is: a dry run by the controller's account tells.
    """
    rule = {"apiGroups": [resource.group], "apiVersions": [resource.version]}
    rule |= {"resources": [resource.plural], "operations": ["UPDATE"]}
    ours = f"request.userInfo.username == '{CONTROLLER_USER}'"
    denied = {"expression": f"!({ours} && object.metadata.name == '{name}')", "message": words}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [denied]}
    binding = {"policyName": _NAME, "validationActions": ["Deny"]}
    credentials = Credentials(
        plane.url, token=await token(stage.api, CONTROLLER_NAME), ca_file=str(plane.ca_file)
    )
    async with KubeApi(credentials) as controller:

        async def is_in_force() -> bool:
            return await _is_refused(controller, resource.path(name, namespace), words)

        async with _policy(stage, policy, binding, is_in_force):
            yield


@asynccontextmanager
async def _policy(
    stage: RealStage, policy: Any, binding: Any, is_in_force: Callable[[], Awaitable[bool]]
) -> AsyncIterator[None]:
    async def is_over() -> bool:
        return not await is_in_force()

    await stage.create(_POLICIES, {"metadata": {"name": _NAME}, "spec": policy})
    await stage.create(_BINDINGS, {"metadata": {"name": _NAME}, "spec": binding})
    try:
        await stage.until("policy in force", is_in_force)
        yield
    finally:
        for resource in (_BINDINGS, _POLICIES):
            await stage.api.request("DELETE", resource.path(_NAME))
        await stage.until("end of the policy", is_over)


async def _is_refused(controller: KubeApi, path: str, words: str) -> bool:
    probe = {"metadata": {"labels": {"probe": ""}}}
    try:
        await controller.request("PATCH", path, body=probe, content_type=MergePatch, params={"dryRun": "All"})
    except ApiError as error:
        return words in error.message
    return False
