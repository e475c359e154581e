"""The pod that looks for the last complete checkpoint, where the gang's own ranks would look. Pure.

It runs in the job's namespace with only the volume that holds the checkpoints, as the gang's user, without
token, Secret or host path; read-only, unless the job allows a repair. It is created when the gang is stopped,
held by a scheduling gate, and released the moment the old pods have ended.
"""

from __future__ import annotations

from typing import Any

import msgspec

from recover.actions import Create, Delete, Patch
from recover.api import Recovery
from recover.checkpoints.annotation import (
    ANNOTATION,
    REPAIR,
    CheckpointLocation,
    LocationError,
    parse,
    parse_repair,
)
from recover.checkpoints.model import Repair
from recover.decode import SCAN_OF
from recover.model import Gang, Mount, Pod, Template, Volume, VolumeKind, World
from recover.objects import shortened
from recover.resources import PODS

__all__ = [
    "MEMORY_LIMIT",
    "Unscannable",
    "create",
    "create_later",
    "later_name",
    "location",
    "may_write",
    "of_attempt",
    "release",
    "remove",
    "scan_label",
    "scan_name",
]

MEMORY_LIMIT = "1Gi"

_GATE = "rekindle.dev/old-pods-ended"
_MOUNTABLE = (VolumeKind.CLAIM, VolumeKind.NFS, VolumeKind.CSI)
_MESSAGE_FILE = "/dev/termination-log"
_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "64Mi"},
    # One thread never needs more than one CPU, and a quota on limits refuses pods that have none.
    "limits": {"cpu": "1", "memory": MEMORY_LIMIT},
}
_OF_THE_GANG = frozenset(
    {"runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "supplementalGroups", "seLinuxOptions"}
)
"""Who may read the gang's files, and what a namespace may ask of all its pods."""


class Unscannable(Exception):
    """Why no scan can be made: the framework's own logic decides then."""


class Place(msgspec.Struct, frozen=True):
    at: CheckpointLocation
    volume: Volume
    mount: Mount
    template: Template


def location(gang: Gang) -> Place:
    """Where the checkpoints lie and on which volume. Raises Unscannable, in plain words."""
    value = gang.annotations.get(ANNOTATION)
    if value is None:
        raise Unscannable(f"{gang.ref} has no annotation {ANNOTATION}")
    try:
        at = parse(value)
    except LocationError as error:
        raise Unscannable(str(error)) from error
    best: Place | None = None
    for template in gang.templates.values():
        for volume in template.volumes:
            for mount in volume.mounts:
                inside = at.path == mount.path or at.path.startswith(mount.path.rstrip("/") + "/")
                if inside and (best is None or len(mount.path) > len(best.mount.path)):
                    best = Place(at=at, volume=volume, mount=mount, template=template)
    if best is None:
        raise Unscannable(f"no volume of {gang.ref} is mounted at {at.path}")
    if best.volume.kind not in _MOUNTABLE:
        raise Unscannable(
            f"{at.path} lies on a volume of kind {best.volume.kind}; a scan mounts "
            f"{', '.join(_MOUNTABLE)} only"
        )
    return best


def scan_name(recovery: Recovery) -> str:
    return f"{recovery.metadata.name}-scan-{recovery.status.attempt}"


def later_name(recovery: Recovery) -> str:
    """Of the scan after the resume, where only a newer checkpoint can prove progress."""
    return f"{scan_name(recovery)}-later"


def of_attempt(world: World, recovery: Recovery) -> list[Pod]:
    """The scan pods of the recovery's present attempt that are there."""
    names = (scan_name(recovery), later_name(recovery))
    found = (world.scans.get(f"{recovery.metadata.namespace}/{name}") for name in names)
    return [pod for pod in found if pod is not None]


def scan_label(recovery: Recovery) -> str:
    """Which recovery a scan pod works for, as the value of a label."""
    return shortened(recovery.metadata.name, 63)


def create(recovery: Recovery, gang: Gang, image: str, deadline_s: float) -> Create | None:
    """The gated scan pod of this attempt; None where nothing can be scanned."""
    return _create(scan_name(recovery), recovery, gang, image, deadline_s, gates=[{"name": _GATE}])


def create_later(recovery: Recovery, gang: Gang, image: str, deadline_s: float) -> Create | None:
    """A scan beside the running gang; None where nothing can be scanned."""
    return _create(later_name(recovery), recovery, gang, image, deadline_s, gates=[])


def _create(
    name: str, recovery: Recovery, gang: Gang, image: str, deadline_s: float, gates: list[dict[str, str]]
) -> Create | None:
    try:
        place = location(gang)
    except Unscannable:
        return None
    allowed = _allowed(gang) if gates else []  # beside running ranks nothing is changed
    command = _command(place, recovery, allowed)
    spec = _spec(place, image, deadline_s, command, writes=bool(allowed))
    return Create(
        what="create-scan",
        resource=PODS,
        name=name,
        namespace=gang.ref.namespace,
        body={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": gang.ref.namespace,
                "labels": {SCAN_OF: scan_label(recovery)},
                **({"annotations": {REPAIR: ",".join(allowed)}} if allowed else {}),
            },
            "spec": {**spec, "schedulingGates": gates},
        },
    )


def _unloadable(fruitless: list[int]) -> list[int]:
    """Steps from which two attempts began and none moved on: they look complete, and do not load."""
    return sorted({step for step in fruitless if fruitless.count(step) >= 2})


def _allowed(gang: Gang) -> list[Repair]:
    """A word that nobody knows allows nothing; `rekindle why` tells of it."""
    try:
        return sorted(parse_repair(gang.annotations.get(REPAIR, "")))
    except ValueError:
        return []


def _command(place: Place, recovery: Recovery, allowed: list[Repair]) -> list[str]:
    command = ["rekindle", "checkpoints", "scan", place.at.path, "--message-file", _MESSAGE_FILE]
    for step in _unloadable(recovery.status.fruitless):
        command += ["--exclude", str(step)]
    if place.at.format is not None:
        command += ["--format", place.at.format]
    if place.at.marker is not None:
        command += ["--marker", place.at.marker]
    if allowed:
        mark = f"{recovery.metadata.name}-{recovery.status.attempt}"
        command += ["--repair", ",".join(allowed), "--write", "--mark", mark]
    return command


def _spec(place: Place, image: str, deadline_s: float, command: list[str], *, writes: bool) -> dict[str, Any]:
    who = {k: v for k, v in _security_context(place).items() if k in _OF_THE_GANG}
    if "fsGroup" in who:
        who["fsGroupChangePolicy"] = "OnRootMismatch"  # else every file is given to the group before the scan
    read_only = {} if writes else {"readOnly": True}
    volume = {place.volume.kind.value: {**place.volume.source, **read_only}}
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(deadline_s) + 600,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1 if writes else 0,
        "securityContext": {**who, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": list(place.template.tolerations),
        "imagePullSecrets": [{"name": name} for name in place.template.image_pull_secrets],
        "volumes": [{"name": "checkpoints", **volume}],
        "containers": [
            {
                "name": "scan",
                "image": image,
                "command": command,
                "terminationMessagePath": _MESSAGE_FILE,
                "resources": _RESOURCES,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{**_mount(place.mount), **read_only}],
            }
        ],
    }


def _security_context(place: Place) -> dict[str, Any]:
    """The pod's, and over it that of the container that mounts the checkpoints."""
    merged = dict(place.template.security_context)
    for container in place.template.containers:
        match container:
            case {"securityContext": dict(own), "volumeMounts": [*mounts]} if any(
                isinstance(mount, dict) and mount.get("name") == place.volume.name for mount in mounts
            ):
                return merged | own
    return merged


def _mount(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "checkpoints", "mountPath": mount.path}
    return {**found, "subPath": mount.sub_path} if mount.sub_path else found


def release(pod: Pod) -> Patch:
    """Lifts the gate: the old pods have ended."""
    return Patch(
        what="release-scan",
        resource=PODS,
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        body={"spec": {"schedulingGates": None}},
    )


def may_write(pod: Pod) -> bool:
    """It was made to change what lies there, and may run: nothing else may begin to write there."""
    return REPAIR in pod.annotations and not pod.gated and not pod.ended


def remove(pod: Pod) -> Delete:
    """One that may write stays until its kubelet has said that it has ended."""
    grace_s = None if may_write(pod) else 0
    return Delete(
        what="remove-scan",
        resource=PODS,
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        grace_s=grace_s,
    )
