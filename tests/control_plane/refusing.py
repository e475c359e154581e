"""A cluster policy that refuses the controller's writes to some objects, as an administrator's policy may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS
from tests.control_plane.rights import CONTROLLER_USER
from tests.control_plane.stage import NAMESPACE, RealStage

__all__ = ["refusing"]

_GROUP = "admissionregistration.k8s.io"
_POLICIES = Resource(
    _GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
_BINDINGS = Resource(
    _GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
_NAME = "owners-only"
_PROBE = "is-the-policy-in-force"


@asynccontextmanager
async def refusing(
    stage: RealStage, resource: Resource, words: str, *, prefix: str, subresource: str = ""
) -> AsyncIterator[None]:
    """Refuses the controller's changes of objects whose names begin with the prefix, with these words. The
    block begins once the policy is in force, and ends once it no longer is."""
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    rules = [
        {
            "apiGroups": [resource.group],
            "apiVersions": [resource.version],
            "resources": [plural],
            "operations": ["UPDATE"],
        },
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]},
    ]
    refused = [
        f"request.resource.resource == '{resource.plural}'",
        f"request.userInfo.username == '{CONTROLLER_USER}'",
        f"object.metadata.name.startsWith('{prefix}')",
    ]
    expression = f"!({' && '.join(refused)} || object.metadata.name == '{_PROBE}')"
    denied = {"expression": expression, "message": words}
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [denied]}
    binding = {"policyName": _NAME, "validationActions": ["Deny"]}
    await stage.create(_POLICIES, {"metadata": {"name": _NAME}, "spec": policy})
    await stage.create(_BINDINGS, {"metadata": {"name": _NAME}, "spec": binding})
    try:
        await stage.until("policy in force", lambda: _is_refused(stage))
        yield
    finally:
        for kind in (_BINDINGS, _POLICIES):
            await stage.api.request("DELETE", kind.path(_NAME))
        await stage.until("end of the policy", lambda: _is_let_in(stage))


async def _is_refused(stage: RealStage) -> bool:
    """Whether the policy refuses a ConfigMap of that name. The request is a dry run."""
    body: dict[str, Any] = {"metadata": {"name": _PROBE}}
    try:
        path = CONFIGMAPS.path(namespace=NAMESPACE)
        await stage.api.request("POST", path, body=body, params={"dryRun": "All"})
    except ApiError as error:
        if error.status != 422:
            raise
        return True
    return False


async def _is_let_in(stage: RealStage) -> bool:
    return not await _is_refused(stage)
