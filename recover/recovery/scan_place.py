"""Where a gang's checkpoints lie, as its pod template tells, and whether a scan may mount that. Pure.

The template is a tenant's: what could lead a scan to a Secret or to the node's own files is refused here.
"""

from __future__ import annotations

import msgspec

from recover.checkpoints.annotation import ANNOTATION, CheckpointLocation, LocationError, parse
from recover.model import Gang, Mount, Template, Volume, VolumeKind

__all__ = ["MOUNTABLE", "Place", "Unscannable", "location", "mounted"]

MOUNTABLE = {
    VolumeKind.CLAIM: ("claimName",),
    VolumeKind.NFS: ("server", "path"),
}
"""The fields that say what is mounted; no other field of a volume's source reaches the scan pod."""


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
    if place.volume.kind is VolumeKind.CSI:
        raise Unscannable(
            f"{place.at.path} is on an inline volume of the CSI driver "
            f"{str(place.volume.source.get('driver'))[:80]!a}. A scan does not mount inline "
            "volumes: the driver creates one for each pod, and may put Secrets there. Use a "
            "persistentVolumeClaim of that driver"
        )
    if place.volume.kind not in MOUNTABLE:
        raise Unscannable(
            f"{place.at.path} is on a volume of kind {place.volume.kind}; a scan mounts only "
            f"{', '.join(MOUNTABLE)}"
        )
    if place.mount.sub_path_expr:
        raise Unscannable(
            f"{place.at.path} is mounted with subPathExpr: {place.mount.sub_path_expr[:120]}; only "
            "the job's own pods know which folder of the volume that is"
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
