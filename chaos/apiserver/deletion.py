"""Deletion in the simulated API server: the options of a delete, when it is refused, and what the deletion
waits for. Pure; called by store.py."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from chaos.apiserver import refusals
from chaos.apiserver.kinds import Kind, Object
from detectors.wire.resource import Resource

__all__ = [
    "FOREGROUND",
    "ORPHAN",
    "Deletion",
    "Propagation",
    "check_preconditions",
    "finalizers_of",
    "grace_s_of",
    "may_go",
]

FOREGROUND = "foregroundDeletion"
"""Finalizer of an owner that waits until all objects that it owns have gone. The garbage collector removes
this finalizer and the next one."""
ORPHAN = "orphan"
"""Finalizer of an owner that waits until no object names it as its owner any more."""


class Propagation(StrEnum):
    """The fate of all objects that the deleted object owns: they are deleted after it, before it, or not at
    all."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


_FINALIZERS = {
    Propagation.BACKGROUND: [],
    Propagation.FOREGROUND: [FOREGROUND],
    Propagation.ORPHAN: [ORPHAN],
}


class Deletion(msgspec.Struct, frozen=True):
    """The options of a delete. Empty fields mean no precondition, the object's own grace, and the kind's
    default for what the object owns."""

    uid: str = ""
    resource_version: str = ""
    grace_s: int | None = None
    propagation: Propagation | None = None


def check_preconditions(resource: Resource, meta: dict[str, Any], options: Deletion) -> None:
    """Raises ApiError 409 if a precondition is not met."""
    if options.uid and options.uid != meta["uid"]:
        raise refusals.precondition_failed(resource, meta["name"], "UID", options.uid, meta["uid"])
    if options.resource_version and options.resource_version != meta["resourceVersion"]:
        raise refusals.precondition_failed(
            resource, meta["name"], "ResourceVersion", options.resource_version, meta["resourceVersion"]
        )


def finalizers_of(kind: Kind, meta: dict[str, Any], options: Deletion) -> list[str]:
    """Returns the finalizers that the object has after the delete. Finalizers of others stay as they are.
    FOREGROUND and ORPHAN follow the last delete that named a propagation; if none did, the kind's default
    applies."""
    ours = [one for one in meta.get("finalizers", []) if one in (FOREGROUND, ORPHAN)]
    others = [one for one in meta.get("finalizers", []) if one not in ours]
    if options.propagation is not None:
        return others + _FINALIZERS[options.propagation]
    return others + (ours or ([ORPHAN] if kind.orphans else []))


def grace_s_of(kind: Kind, body: Object, options: Deletion) -> int:
    """Returns the grace in seconds. Only a pod that a kubelet may still be running gets a grace."""
    if not kind.graceful or not body["spec"].get("nodeName"):
        return 0
    if body.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    own_s = int(body["spec"].get("terminationGracePeriodSeconds", 30))
    return own_s if options.grace_s is None else options.grace_s


def may_go(kind: Kind, body: Object) -> bool:
    """Whether the object is being deleted, and nothing has to be awaited any more."""
    meta = body["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return not kind.graceful or meta.get("deletionGracePeriodSeconds", 0) == 0
