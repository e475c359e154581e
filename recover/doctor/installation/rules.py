"""Reads which definitions, permissions and policies are in force. I/O only; inspect.py uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from detectors.wire.resource import Resource
from recover.doctor.installation import shipped
from recover.doctor.installation.installed import Part, Right
from recover.doctor.installation.reader import Reader
from recover.doctor.installation.release_objects import Version
from recover.policy.settings import Settings

__all__ = ["definitions", "denied", "policies"]

_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)


class _Since(msgspec.Struct, frozen=True):
    """A kind of admission policy, and the first minor version of Kubernetes that serves it as v1."""

    part: Part
    minor: int
    kind: str
    plural: str

    @property
    def resource(self) -> Resource:
        return Resource("admissionregistration.k8s.io", "v1", self.plural, self.kind, namespaced=False)


_ADMISSION = (
    _Since(Part.POLICIES, 30, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _Since(Part.POLICIES, 30, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    _Since(Part.ENVIRONMENT, 36, "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    _Since(Part.ENVIRONMENT, 36, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
)


class _Allowed(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Allowed = msgspec.field(default_factory=_Allowed)


async def definitions(reader: Reader, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns the definitions that exist, by name."""
    found = {name: await reader.one(Part.DEFINITIONS, _DEFINITIONS, name, dict[str, Any]) for name in names}
    return {name: body for name, body in found.items() if body is not None}


async def policies(reader: Reader, server: Version) -> dict[str, dict[str, Any]]:
    """Returns all policies of the cluster by `Kind/name`, including those of other people."""
    found: dict[str, dict[str, Any]] = {}
    for kind in _ADMISSION:
        if server.is_before(1, kind.minor):
            reader.unread[kind.part] = f"Kubernetes {server.said} has no {kind.kind}"
            continue
        for body in await reader.every(kind.part, kind.resource, _decoded) or ():
            found[f"{kind.kind}/{body['metadata']['name']}"] = body
    return found


def _decoded(raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(raw, type=dict[str, Any])


async def denied(reader: Reader, namespace: str, settings: Settings | None) -> tuple[Right, ...]:
    """Returns the permissions that the API server denies to Rekindle's accounts. The person needs the
    permission to ask for the permissions of others."""
    first, *rest = shipped.rights(namespace, settings)
    answers = [await _may(reader, first, namespace)]
    if Part.RIGHTS not in reader.unread:
        answers += await asyncio.gather(*(_may(reader, right, namespace) for right in rest))
    return tuple(right for right, may in zip((first, *rest), answers, strict=False) if not may)


async def _may(reader: Reader, right: Right, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    asked = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    body = {
        "apiVersion": _REVIEWS.api_version,
        "kind": _REVIEWS.kind,
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{right.account}",
            "groups": groups,
            "resourceAttributes": {name: value for name, value in asked.items() if value},
        },
    }
    answer = await reader.ask(Part.RIGHTS, "the rights of others", _REVIEWS.path(), body, _Review)
    return answer is not None and answer.status.allowed
