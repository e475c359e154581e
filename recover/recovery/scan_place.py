"""Reads from a gang's pod template where its checkpoints are, and decides whether a scan may mount the
volume. Pure.

The template is a tenant's: everything that could lead a scan to a Secret or to the node's own files is
refused here.
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
"""Fields that say what is mounted, for each kind of volume. No other field of a volume's source reaches the
scan pod."""


class Unscannable(Exception):
    """Raised with the reason why no scan is possible. The framework's own logic then chooses the
    checkpoint."""


class Place(msgspec.Struct, frozen=True):
    at: CheckpointLocation
    volume: Volume
    mount: Mount
    template: Template


def location(gang: Gang) -> Place:
    """Returns where the checkpoints are and on which volume. Raises Unscannable, with the reason in plain
    words."""
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
    """Returns the same, even for a volume that a scan cannot mount. Raises Unscannable."""
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
