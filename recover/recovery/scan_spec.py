"""Builds the spec of a scan pod: its command, its volume, and the user as which it reads. Pure; for
scan_pod.py.

The pod fits Pod Security's profile `restricted` whatever the job's template says, except for a volume of kind
nfs, which that profile forbids. The job's template is a tenant's: the pod takes from the template the volume
and the folder in the volume, the ids of the user and of groups, the SELinux level, tolerations and the names
of pull secrets, and nothing else.
"""

from __future__ import annotations

from typing import Any

from recover.api import Recovery
from recover.checkpoints.scan_result import Repair
from recover.model import Mount
from recover.policy.settings import Settings
from recover.recovery.scan_place import MOUNTABLE, Place

__all__ = [
    "CONTAINER",
    "MEMORY_LIMIT",
    "MESSAGE_FILE",
    "PROGRAM",
    "VOLUME",
    "command_of",
    "spec_of",
    "user_of",
]

CONTAINER = "scan"
MEMORY_LIMIT = "4Gi"
"""Memory that the largest index takes that is read; most indexes need less than a tenth."""
PROGRAM = "/opt/rekindle/bin/rekindle"
"""Path at which the Dockerfile installs the program. The path is absolute, so that no PATH decides what
runs."""
VOLUME = "/rekindle/volume"
"""Path at which the scan pod mounts the volume. Our image has nothing there. The job's own path may equal the
path of our program, or of the files that it loads."""
MESSAGE_FILE = "/dev/termination-log"
GROUPS_MAX = 32

_SHARE = 5 / 6
"""Share of the deadline that the scan itself gets: the pod must start, too, and the results so far must still
be handed over."""
_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "64Mi"},
    # One thread never needs more than one CPU, and a quota on limits.cpu refuses pods without a limit.
    "limits": {"cpu": "1", "memory": MEMORY_LIMIT},
}


def command_of(
    place: Place, recovery: Recovery, exclude: list[int], allowed: list[Repair], scan_deadline_s: float
) -> list[str]:
    command = [PROGRAM, "checkpoints", "scan", place.at.path, "--message-file", MESSAGE_FILE]
    command += [
        "--volume",
        VOLUME,
        "--mounted-at",
        place.mount.path,
        "--time",
        f"{scan_deadline_s * _SHARE:g}",
    ]
    if user_of(place) is None:
        command.append("--other-user")
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


def spec_of(place: Place, settings: Settings, command: list[str], *, writes: bool) -> dict[str, Any]:
    read_only = {} if writes else {"readOnly": True}
    kind, source = place.volume.kind, place.volume.source
    volume = {field: source[field] for field in MOUNTABLE[kind] if field in source}
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(settings.timing.scan_deadline_s) + 600,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1 if writes else 0,
        "securityContext": _whole_pod(place),
        "tolerations": list(place.template.tolerations),
        "imagePullSecrets": [{"name": name} for name in place.template.image_pull_secrets],
        "volumes": [{"name": "checkpoints", kind.value: {**volume, **read_only}}],
        "containers": [
            {
                "name": CONTAINER,
                "image": settings.images.scan,
                "command": command,
                "terminationMessagePath": MESSAGE_FILE,
                "resources": _RESOURCES,
                "securityContext": {
                    **_who(place),
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{**_mount(place.mount), **read_only}],
            }
        ],
    }


def _mount(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "checkpoints", "mountPath": VOLUME}
    return {**found, "subPath": mount.sub_path} if mount.sub_path else found


# --- as whom ----------------------------------------------------------------------------------------------


def _who(place: Place) -> dict[str, int]:
    """Returns the user and group of the container. The pod itself names none: its sandbox, unlike a
    container, does not get the user of an image, and containerd refuses a group without a user."""
    user, group = user_of(place), _id(_security_context(place).get("runAsGroup"))
    who = {}
    if user is not None:  # else the image's user, or the user that the namespace's admission sets
        who["runAsUser"] = user
    if group is not None or user is None:
        # Files of a training that runs as root belong to root's group, which gives no permission except on
        # these files.
        who["runAsGroup"] = group or 0
    return who


def _whole_pod(place: Place) -> dict[str, Any]:
    """Returns the security context of the pod: settings for its volumes, and what Pod Security's profile
    `restricted` requires."""
    asked = _security_context(place)
    who: dict[str, Any] = {"runAsNonRoot": True}
    fs_group = _id(asked.get("fsGroup"))
    if fs_group is not None:
        who["fsGroup"] = fs_group
        who["fsGroupChangePolicy"] = "OnRootMismatch"  # else the kubelet first changes the group of each file
    match asked:
        case {"supplementalGroups": [*given]} if groups := [g for g in map(_id, given) if g is not None]:
            who["supplementalGroups"] = groups[:GROUPS_MAX]
    match asked:
        case {"seLinuxOptions": {"level": str(level)}}:
            who["seLinuxOptions"] = {
                "level": level
            }  # the level decides which files a pod sees; no type, e.g. spc_t
    return {**who, "seccompProfile": {"type": "RuntimeDefault"}}


def user_of(place: Place) -> int | None:
    """Returns the gang's user, or None if the user is root or only the image names it."""
    return _id(_security_context(place).get("runAsUser")) or None


def _security_context(place: Place) -> dict[str, Any]:
    """Returns the pod's security context, overridden by that of the container that mounts the checkpoints."""
    merged = dict(place.template.security_context)
    for container in place.template.containers:
        match container:
            case {"securityContext": dict(own), "volumeMounts": [*mounts]} if any(
                isinstance(mount, dict) and mount.get("name") == place.volume.name for mount in mounts
            ):
                return merged | own
    return merged


def _id(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
