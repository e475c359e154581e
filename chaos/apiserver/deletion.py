"""Deleting in the simulated API server: what a delete asks for, when it is refused, who is waited for. Pure;
called by store.py.
"""

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
"""The finalizer of an owner that waits until all that it owns has gone. The garbage collector takes it off,
like that of the next line."""
ORPHAN = "orphan"
"""The finalizer of an owner that waits until nothing names it as its owner any more."""


class Propagation(StrEnum):
    """What becomes of all that the deleted object owns: it goes afterwards, it goes first, it stays."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


_FINALIZERS = {
    Propagation.BACKGROUND: [],
    Propagation.FOREGROUND: [FOREGROUND],
    Propagation.ORPHAN: [ORPHAN],
}


class Deletion(msgspec.Struct, frozen=True):
    """What a delete asks for; empty fields mean no precondition, the object's own grace, and what its kind
    does by default with what it owns."""

    uid: str = ""
    resource_version: str = ""
    grace_s: int | None = None
    propagation: Propagation | None = None


def check_preconditions(resource: Resource, meta: dict[str, Any], options: Deletion) -> None:
    """Raises ApiError 409."""
    if options.uid and options.uid != meta["uid"]:
        raise refusals.precondition_failed(resource, meta["name"], "UID", options.uid, meta["uid"])
    if options.resource_version and options.resource_version != meta["resourceVersion"]:
        raise refusals.precondition_failed(
            resource, meta["name"], "ResourceVersion", options.resource_version, meta["resourceVersion"]
        )


def finalizers_of(kind: Kind, meta: dict[str, Any], options: Deletion) -> list[str]:
    """Others' are left as they are. Of ours stand those of the last delete that said what it wants."""
    ours = [one for one in meta.get("finalizers", []) if one in (FOREGROUND, ORPHAN)]
    others = [one for one in meta.get("finalizers", []) if one not in ours]
    if options.propagation is not None:
        return others + _FINALIZERS[options.propagation]
    return others + (ours or ([ORPHAN] if kind.orphans else []))


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
