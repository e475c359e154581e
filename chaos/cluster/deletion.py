"""Deleting in the simulated API server: what a delete asks for, when it is refused, who is waited for. Pure;
called by store.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chaos.cluster import refusals
from chaos.cluster.kinds import Kind, Object
from detectors.kubeapi import Resource

__all__ = ["FOREGROUND", "Deletion", "check_preconditions", "grace_s_of", "may_go"]

FOREGROUND = "foregroundDeletion"
"""The finalizer of an owner that waits for its dependents; the garbage collector takes it off."""


class Deletion(msgspec.Struct, frozen=True):
    """What a delete asks for; empty fields mean no precondition, and the object's own grace."""

    uid: str = ""
    resource_version: str = ""
    grace_s: int | None = None
    foreground: bool = False


def check_preconditions(resource: Resource, meta: dict[str, Any], options: Deletion) -> None:
    """Raises ApiError 409."""
    if options.uid and options.uid != meta["uid"]:
        raise refusals.precondition_failed(resource, meta["name"], "UID", options.uid, meta["uid"])
    if options.resource_version and options.resource_version != meta["resourceVersion"]:
        raise refusals.precondition_failed(
            resource, meta["name"], "ResourceVersion", options.resource_version, meta["resourceVersion"]
        )


def grace_s_of(kind: Kind, body: Object, options: Deletion) -> int:
    """Only a pod that a kubelet may still be running is given time."""
    if not kind.graceful or not body["spec"].get("nodeName"):
        return 0
    if body.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    own_s = int(body["spec"].get("terminationGracePeriodSeconds", 30))
    return own_s if options.grace_s is None else options.grace_s


def may_go(kind: Kind, body: Object) -> bool:
    """Being deleted, and nobody is waited for any more."""
    meta = body["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return not kind.graceful or meta.get("deletionGracePeriodSeconds", 0) == 0
