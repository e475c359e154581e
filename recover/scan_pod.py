"""The pod that looks for the last complete checkpoint, where the gang's own ranks would look. Pure.

It runs in the job's namespace with only the volume that holds the checkpoints, as the gang's user, without
token, Secret or host path; read-only, unless the job allows a repair. It is created when the gang is stopped,
held by a scheduling gate, and released the moment the old pods have ended; without gates, created only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recover.actions import Create, Delete, Patch
from recover.api import CheckpointChoice, Recovery
from recover.checkpoints.annotation import (
    ANNOTATION,
    REPAIR,
    CheckpointLocation,
    LocationError,
    parse,
    parse_repair,
)
from recover.checkpoints.model import Repair
from recover.decode import AVOIDED, EXCLUDED, SCAN_OF
from recover.loading import unloadable
from recover.model import Gang, Mount, Pod, Template, Volume, VolumeKind, World
from recover.objects import shortened
from recover.resources import PODS
from recover.settings import Settings
from recover.workloads.wire import HOSTNAME

__all__ = [
    "MEMORY_LIMIT",
    "Place",
    "Unscannable",
    "create",
    "create_later",
    "is_outdated",
    "knew_too_little",
    "later_name",
    "location",
    "may_write",
    "mounted",
    "of_attempt",
    "release",
    "remove",
    "scan_label",
    "scan_name",
]

MEMORY_LIMIT = "4Gi"
"""What the largest index takes that is read; most need less than a tenth."""

_GATE = "rekindle.dev/old-pods-ended"
_MOUNTABLE = (VolumeKind.CLAIM, VolumeKind.NFS, VolumeKind.CSI)
_SHARE = 5 / 6
"""Of the deadline: the pod must start, too, and what is known by then is still handed over."""
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
    place = mounted(gang)
    if place.volume.kind not in _MOUNTABLE:
        raise Unscannable(
            f"{place.at.path} lies on a volume of kind {place.volume.kind}; a scan mounts "
            f"{', '.join(_MOUNTABLE)} only"
        )
    if place.mount.sub_path_expr:
        raise Unscannable(
            f"{place.at.path} is mounted with subPathExpr: {place.mount.sub_path_expr[:120]}; which folder "
            "of the volume that is, only the job's own pods know"
        )
    return place


def mounted(gang: Gang) -> Place:
    """The same, also of a volume that a scan cannot mount."""
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
                inside = f"{at.path}/".startswith(f"{mount.path.rstrip('/')}/")
                if inside and (best is None or len(mount.path) > len(best.mount.path)):
                    best = Place(at=at, volume=volume, mount=mount, template=template)
    if best is None:
        raise Unscannable(f"no volume of {gang.ref} is mounted at {at.path}")
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


def create(
    recovery: Recovery, gang: Gang, world: World, settings: Settings, avoided: Sequence[str]
) -> Create | None:
    """The scan pod of this attempt, gated where the API server can; None where nothing can be scanned.
    `avoided`: hosts of broken nodes."""
    gates = [{"name": _GATE}] if settings.scheduling_gates else []
    allowed = _allowed(gang)
    name = scan_name(recovery)
    return _create(name, recovery, gang, world, settings, avoided, gates=gates, allowed=allowed)


def create_later(
    recovery: Recovery, gang: Gang, world: World, settings: Settings, avoided: Sequence[str]
) -> Create | None:
    """A scan beside the running gang, where nothing is changed; None where nothing can be scanned."""
    return _create(later_name(recovery), recovery, gang, world, settings, avoided, gates=[], allowed=[])


def _create(
    name: str,
    recovery: Recovery,
    gang: Gang,
    world: World,
    settings: Settings,
    avoided: Sequence[str],
    *,
    gates: list[dict[str, str]],
    allowed: list[Repair],
) -> Create | None:
    try:
        place = location(gang)
    except Unscannable:
        return None
    exclude = unloadable(recovery, gang, world, settings)
    command = _command(place, recovery, exclude, allowed, settings.timing.scan_deadline_s * _SHARE)
    notes = {EXCLUDED: _told(exclude), REPAIR: ",".join(allowed), AVOIDED: ",".join(avoided)}
    spec = {**_spec(place, settings, command, writes=bool(allowed)), **_off(avoided)}
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
                "annotations": {note: text for note, text in notes.items() if text},
            },
            "spec": {**spec, "schedulingGates": gates},
        },
    )


def _off(avoided: Sequence[str]) -> dict[str, Any]:
    """The affinity that excludes broken nodes; empty if there are none."""
    if not avoided:
        return {}
    others = {"key": HOSTNAME, "operator": "NotIn", "values": list(avoided)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [others]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def is_outdated(
    pod: Pod, recovery: Recovery, gang: Gang, world: World, settings: Settings, avoided: Sequence[str]
) -> bool:
    """Whether the waiting scan pod must be replaced: since its creation an agent has reported that a
    checkpoint did not load, or that a further node is broken."""
    excluded = pod.annotations.get(EXCLUDED, "") != _told(unloadable(recovery, gang, world, settings))
    known = set(pod.annotations.get(AVOIDED, "").split(","))
    return pod.gated and (excluded or not known.issuperset(avoided))


def knew_too_little(pod: Pod, choice: CheckpointChoice) -> bool:
    """Whether the scan chose a checkpoint of which an agent has told only since then that it did not load."""
    told = pod.annotations.get(EXCLUDED, "").split(",")
    return choice.step in choice.excluded and str(choice.step) not in told


def _told(steps: list[int]) -> str:
    return ",".join(str(step) for step in steps)


def _allowed(gang: Gang) -> list[Repair]:
    """A word that nobody knows allows nothing; `rekindle why` tells of it."""
    try:
        return sorted(parse_repair(gang.annotations.get(REPAIR, "")))
    except ValueError:
        return []


def _command(
    place: Place, recovery: Recovery, exclude: list[int], allowed: list[Repair], time_s: float
) -> list[str]:
    command = ["rekindle", "checkpoints", "scan", place.at.path, "--message-file", _MESSAGE_FILE]
    command += ["--time", f"{time_s:g}"]
    for step in exclude:
        command += ["--exclude", str(step)]
    if place.at.digests:
        command.append("--digests")
    if place.at.format is not None:
        command += ["--format", place.at.format]
    if place.at.marker is not None:
        command += ["--marker", place.at.marker]
    if allowed:
        mark = f"{recovery.metadata.name}-{recovery.status.attempt}"
        command += ["--repair", ",".join(allowed), "--write", "--mark", mark]
    return command


def _spec(place: Place, settings: Settings, command: list[str], *, writes: bool) -> dict[str, Any]:
    who = {k: v for k, v in _security_context(place).items() if k in _OF_THE_GANG}
    if "fsGroup" in who:
        who["fsGroupChangePolicy"] = "OnRootMismatch"  # else every file is given to the group before the scan
    read_only = {} if writes else {"readOnly": True}
    volume = {place.volume.kind.value: {**place.volume.source, **read_only}}
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(settings.timing.scan_deadline_s) + 600,
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
                "image": settings.images.scan,
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
    """It was made to change what lies there, and has not ended: nothing else may begin to write there. Its
    gate proves nothing: our view of it may be older than our own release."""
    return REPAIR in pod.annotations and not pod.ended


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
