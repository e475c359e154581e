"""Checks before `rekindle cleanup` does anything: is Rekindle installed, and may this account remove it? I/O
only.

Without these checks, a missing namespace or permission would show only as a lease that never becomes free, as
if a controller still held it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.cli.cleanup_requests import Requests, metadata_of
from recover.cli.cleanup_undo import undo
from recover.k8s.kinds import CONFIGMAPS, JOBS, LEASES, NAMESPACES, NODES, PODS
from recover.kube.cluster import Cluster
from recover.kube.lease import LEASE
from recover.model import decode
from recover.runtime.mode_keeper import STATE
from recover.stories.words import some

__all__ = ["CONTROLLER", "DEPLOYMENTS", "CannotCleanUpError", "NoAnswerError", "look"]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLER = "rekindle-controller"
"""Name of the controller's Deployment in the chart."""
_OURS = "app.kubernetes.io/name=rekindle"
_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


class CannotCleanUpError(Exception):
    """The clean-up cannot start or finish. The message says what is left and what to do, one line for
    each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


class NoAnswerError(Exception):
    """The cluster does not answer, or Rekindle is not installed there."""


async def look(requests: Requests, cluster: Cluster, namespace: str) -> None:
    """Checks that the removal can begin, and changes nothing. Raises NoAnswerError, CannotCleanUpError."""
    elsewhere = await _other_releases(requests, namespace)
    if elsewhere:
        raise CannotCleanUpError(
            f"namespace {namespace} has no controller; this cluster's controller is in {some(elsewhere)}: "
            f"run this command with --set namespace={elsewhere[0]}"
        )
    spaces = {one.name: one async for one in requests.every(NAMESPACES, metadata_of)}
    nodes = [node async for node in _nodes(requests)]
    told = [node.name for node in nodes if node.told is not None]
    marked = [node.name for node in nodes if node.name in told or undo(node) is not None]
    space = spaces.get(namespace)
    if space is None:
        if not marked:
            raise NoAnswerError(
                f"Rekindle is not installed there: there is no namespace {namespace}, and no node carries "
                "anything of Rekindle"
            )
        raise CannotCleanUpError(
            f"there is no namespace {namespace}, so the controllers' lease cannot be taken; these nodes "
            f"still carry what Rekindle wrote: {some(marked)}",
            "if Rekindle was installed in another namespace, run this command with --set namespace=NAME; if "
            f"that namespace was deleted: kubectl create namespace {namespace}, and run this command again",
        )
    has_lease = await requests.get(LEASES, LEASE, namespace) is not None
    if space.deletion_timestamp is not None and not has_lease:
        raise CannotCleanUpError(
            f"namespace {namespace} is being deleted, so the controllers' lease cannot be taken there",
            f"once the namespace is gone: kubectl create namespace {namespace}, and run this command again",
        )
    remembers = await requests.get(CONFIGMAPS, STATE, namespace) is not None
    if not (has_lease or remembers or marked or await _has_controller(requests, namespace)):
        raise NoAnswerError(
            f"Rekindle is not installed there: namespace {namespace} has no Deployment {CONTROLLER}, no "
            f"Lease {LEASE} and no ConfigMap {STATE}, and no node carries anything of Rekindle"
        )
    denied = [what async for what in _denied(cluster, namespace, has_lease=has_lease, told=bool(told))]
    if denied:
        raise CannotCleanUpError(f"nothing was changed: this account has no permission to {some(denied)}")


async def _nodes(requests: Requests) -> AsyncIterator[Any]:
    async for node in requests.every(NODES, lambda raw: decode.node(raw, ())):
        yield node


async def _other_releases(requests: Requests, namespace: str) -> list[str]:
    """Returns the namespaces of other controllers, if `namespace` has no controller. An account that may not
    list Deployments, such as the account of the chart's Job, gets an empty list; the chart's Job belongs to
    the release itself."""
    try:
        found = {
            one.namespace
            async for one in requests.every(DEPLOYMENTS, metadata_of, labels=_OURS)
            if one.name == CONTROLLER
        }
    except ApiError:
        return []
    return [] if namespace in found else sorted(found)


async def _has_controller(requests: Requests, namespace: str) -> bool:
    """Whether the namespace has a controller. Also True if the account may not read the Deployment."""
    try:
        return await requests.get(DEPLOYMENTS, CONTROLLER, namespace) is not None
    except ApiError:
        return True


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def _denied(cluster: Cluster, namespace: str, *, has_lease: bool, told: bool) -> AsyncIterator[str]:
    """Yields, in words, each permission that the removal needs and this account lacks. If the API server does
    not answer a question, no further permission counts as denied; the write itself then shows a missing
    permission."""
    lease = ("patch", LEASES, LEASE) if has_lease else ("create", LEASES, "")
    asked: list[tuple[str, Resource, str, str, str]] = [
        (*lease, namespace, ""),
        ("patch", NODES, "", "", ""),
        *([("patch", NODES, "", "", "status")] if told else []),
        ("delete", DEPLOYMENTS, CONTROLLER, namespace, ""),
        ("delete", CONFIGMAPS, "", "", ""),
        ("delete", PODS, "", "", ""),
        ("delete", JOBS, "", namespace, ""),
    ]
    for verb, resource, name, where, subresource in asked:
        attributes = {
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "subresource": subresource,
            "name": name,
            "namespace": where,
        }
        body = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        try:
            answer = msgspec.json.decode(await cluster.create(_REVIEWS, body), type=_Review)
        except (ApiError, ReplyLost, msgspec.MsgspecError):
            return
        if not answer.status.allowed:
            what = f"{resource.plural}/{subresource}" if subresource else resource.plural
            yield f"{verb} {what}" + (f" in namespace {where}" if where else "")
