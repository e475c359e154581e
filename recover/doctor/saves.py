"""Checks whether the checkpoints outlive the job's failures, and can be verified. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from recover.checkpoints.annotation import (
    ANNOTATION,
    REPAIR,
    LocationError,
    ObjectStoreError,
    parse,
    parse_repair,
)
from recover.doctor.case import Case, Finding, Place, Severity
from recover.k8s.pod_specs import Mounts
from recover.model import Gang, Template, Volume, VolumeKind
from recover.recovery.scan_place import MOUNTABLE, Unscannable, location, mounted
from recover.recovery.scan_place import Place as ScanPlace
from recover.recovery.scan_spec import user_of
from recover.stories.words import some

__all__ = ["annotation", "claim", "claim_of", "volume"]

_UNVERIFIED = (
    "no checkpoint is verified: the framework chooses the checkpoint, and may choose an incomplete one"
)
_READ_ONLY_KINDS = (
    VolumeKind.CONFIG_MAP,
    VolumeKind.SECRET,
    VolumeKind.PROJECTED,
    VolumeKind.DOWNWARD_API,
)
_UNSCANNED: dict[VolumeKind, tuple[str, Severity, str]] = {
    **{
        kind: (
            name,
            Severity.FAILS,
            "Kubernetes deletes the volume with the pod: the job starts from its first step at each restart",
        )
        for kind, name in (
            (VolumeKind.EMPTY_DIR, "checkpoints-in-empty-dir"),
            (VolumeKind.EPHEMERAL, "checkpoints-on-ephemeral-volume"),
        )
    },
    VolumeKind.HOST_PATH: (
        "checkpoints-on-host-path",
        Severity.RISKS,
        "no checkpoint is verified; and a rank that moves to another node has no checkpoint, "
        "unless all nodes share that folder",
    ),
    **dict.fromkeys(
        _READ_ONLY_KINDS,
        (
            "checkpoints-on-read-only-volume",
            Severity.FAILS,
            "Kubernetes mounts such a volume read-only: no rank can save a checkpoint there",
        ),
    ),
}
_FROM_STORE = "the training then loads its newest checkpoint from the store by itself"
_A_CLAIM = (
    "write `volumes: [{name: ckpt, persistentVolumeClaim: {claimName: NAME}}]` into the pod template, where "
    "NAME is a claim that all nodes can mount"
)
_PATH = (
    ", where PATH is absolute in the containers, for example /ckpt; if the checkpoints are in an object "
    "store, leave the annotation out"
)
_LASTING = frozenset({VolumeKind.CLAIM, VolumeKind.NFS, VolumeKind.CSI})
_LIKELY = ("ckpt", "checkpoint", "output", "save")
_SHARED_BY_NODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_ONE_POD = "ReadWriteOncePod"


class _WrittenMount(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    mount_path: str = ""
    read_only: object = False
    """Only true makes the mount read-only. The API server refuses values that are not boolean."""


class _WrittenMounts(msgspec.Struct, rename="camel", frozen=True):
    volume_mounts: list[_WrittenMount] = []


def annotation(case: Case) -> Iterator[Finding]:
    value = case.gang.annotations.get(ANNOTATION)
    if value is None:
        yield Finding(
            name="no-checkpoint-annotation",
            severity=Severity.RISKS,
            what="no annotation names the folder of the checkpoints",
            where=case.at(f"metadata.annotations[{ANNOTATION}]"),
            means=_UNVERIFIED,
            fix=case.misnamed(ANNOTATION) or _proposal(case),
        )
        return
    try:
        parse(value)
    except LocationError as error:
        is_store = isinstance(error, ObjectStoreError)
        yield Finding(
            name="checkpoint-annotation-unusable",
            severity=Severity.RISKS,
            what=error.why,
            where=case.at(f"metadata.annotations[{ANNOTATION}]", value),
            means=_UNVERIFIED,
            fix=f"remove the annotation {ANNOTATION}: {_FROM_STORE}"
            if is_store
            else f"write for example {case.set_annotation(ANNOTATION, error.example)}",
        )


def _proposal(case: Case) -> str:
    """Returns the annotation with the path of the volume that probably has the checkpoints, if the template
    mounts one."""
    paths = list(_lasting(case.gang, writable=True))
    likely = [path for path in paths if any(word in path.lower() for word in _LIKELY)]
    best = likely[:1] or (paths if len(paths) == 1 else [])
    if not best:
        return case.set_annotation(ANNOTATION, "PATH") + _PATH
    own = PurePosixPath(best[0], case.gang.ref.name or case.generate_name.strip("-"))
    return (
        f"{case.set_annotation(ANNOTATION, best[0])}, if the checkpoints are directly in this folder; if "
        f"they are in a folder below it, write the path of that folder, such as {own}"
    )


def _lasting(gang: Gang, *, writable: bool = False) -> dict[str, str]:
    """Returns the paths at which the templates mount volumes that outlive a pod, each with the name of the
    volume. With `writable`, mounts are left out to which no container may write."""
    return {
        mount.path: f"the claim {volume.source.get('claimName')}"
        if volume.kind is VolumeKind.CLAIM
        else f"the volume {volume.name}"
        for template in gang.templates.values()
        for volume in template.volumes
        if volume.kind in _LASTING
        for mount in volume.mounts
        if not writable or _is_writable(template, volume, mount.path)
    }


def _is_writable(template: Template, volume: Volume, path: str = "") -> bool:
    """Whether a container of the template may write to the volume, at this path if there is one."""
    mounts = [
        mount
        for container in template.containers
        for mount in msgspec.convert(container, _WrittenMounts).volume_mounts
    ]
    return volume.source.get("readOnly") is not True and any(
        mount.name == volume.name and path in ("", mount.mount_path) and mount.read_only is not True
        for mount in mounts
    )


def _mounting(case: Case, value: str, path: str) -> str:
    """Returns how to mount a volume at the path, or how to name a path at which one is mounted already."""
    at_path = f"volumeMounts: [{{name: ckpt, mountPath: {path}}}]"
    mounted_at = _lasting(case.gang, writable=True)
    if not mounted_at:
        return f"{_A_CLAIM}, and `{at_path}` into its containers"
    _, semicolon, options = value.partition(";")
    others = (
        f"; or, if they are in {volume}: `{case.set_annotation(ANNOTATION, f'{where}{semicolon}{options}')}`"
        for where, volume in mounted_at.items()
    )
    return f"mount the volume of the checkpoints at {path}{''.join(others)}"


def claim_of(gang: Gang) -> str:
    """Returns the name of the volume claim with the checkpoints; empty if the checkpoints are not on a
    claim."""
    try:
        found = mounted(gang).volume
    except Unscannable:
        return ""
    return str(found.source.get("claimName", "")) if found.kind is VolumeKind.CLAIM else ""


def volume(case: Case) -> Iterator[Finding]:
    """Reports a volume that does not suit the annotation. The check `checkpoint-annotation` has reported an
    annotation that cannot be read."""
    value = case.gang.annotations.get(ANNOTATION, "")
    try:
        path = parse(value).path
    except LocationError:
        return
    where = case.at(f"metadata.annotations[{ANNOTATION}]", value)
    try:
        found = mounted(case.gang)
    except Unscannable:
        yield _missing_volume(case, path) or Finding(
            name="checkpoints-on-no-volume",
            severity=Severity.FAILS,
            what=_no_volume(case.gang, path),
            where=where,
            means="the folder is deleted with the container: the job starts from its first step at each "
            "restart",
            fix=_mounting(case, value, path),
        )
        return
    try:
        place = location(case.gang)
    except Unscannable as why:
        name, severity, means = _UNSCANNED.get(
            found.volume.kind, ("checkpoints-not-scanned", Severity.RISKS, _UNVERIFIED)
        )
        yield Finding(
            name=name,
            severity=severity,
            what=str(why),
            where=where,
            means=means,
            fix=_scannable(found),
        )
        return
    same = [
        _is_writable(template, one)
        for template in case.gang.templates.values()
        for one in template.volumes
        if (one.kind, _without_mode(one)) == (place.volume.kind, _without_mode(place.volume))
    ]
    if not any(same):
        yield Finding(
            name="checkpoints-read-only",
            severity=Severity.FAILS,
            what=f"no container may write to the volume of the checkpoints, which is mounted at "
            f"{place.mount.path}",
            where=where,
            means="no rank can save a checkpoint: each restart begins from the same checkpoint",
            fix=f"remove readOnly from the volume {place.volume.name} and from its volumeMount",
        )
        return
    yield from _repair(case, place)


def _without_mode(volume: Volume) -> dict[str, object]:
    """Returns the source of the volume without its field readOnly: two volumes with the same result are the
    same storage."""
    return {name: value for name, value in volume.source.items() if name != "readOnly"}


def _scannable(place: ScanPlace) -> str:
    """Returns how a scan could mount the volume."""
    if place.volume.kind in MOUNTABLE:
        return f"mount the volume {place.volume.name} with subPath instead of subPathExpr"
    if place.volume.kind in _READ_ONLY_KINDS:
        return f"{_A_CLAIM}, and mount it at {place.at.path}"
    name = place.volume.name
    return (
        f"in the pod template, make the volume {name} a claim that all nodes can mount: "
        f"`{{name: {name}, persistentVolumeClaim: {{claimName: NAME}}}}`; or use nfs"
    )


def _missing_volume(case: Case, path: str) -> Finding | None:
    """Reports a mount at the path that names a volume that the template does not have."""
    for name, template in case.gang.templates.items():
        volumes = [volume.name for volume in template.volumes]
        field = f"{case.spec.template_field(name)}.spec"
        for container in template.containers:
            called = str(container.get("name", ""))
            for mount in msgspec.convert(container, Mounts).volume_mounts:
                at = mount.mount_path.rstrip("/")
                if mount.name in volumes or not f"{path}/".startswith(f"{at}/"):
                    continue
                return Finding(
                    name="checkpoints-on-missing-volume",
                    severity=Severity.FAILS,
                    what=f"container {called} mounts the volume {mount.name!r} at {at}, and the pod template "
                    f"has no volume of that name; its volumes: {some(volumes) or 'none'}",
                    where=case.at(f"{field}.containers[{called}].volumeMounts", mount.name),
                    means="the API server refuses the pods of the job",
                    fix=f"add the volume {mount.name} to {field}.volumes, or correct the name in the "
                    "volumeMount",
                )
    return None


def _no_volume(gang: Gang, path: str) -> str:
    """Returns what the templates mount instead of a volume at the path."""
    if not any(template.containers for template in gang.templates.values()):
        return "the pod template has no containers, so no volume is mounted"
    places = [f"{what} at {where}" for where, what in _lasting(gang).items()]
    others = f"; the pod template mounts {some(places)}" if places else ""
    return f"no volume is mounted at {path}{others}"


def _repair(case: Case, place: ScanPlace) -> Iterator[Finding]:
    """Reports checkpoints that the scan may not repair. A scan never runs as root, and only root may change
    files of root. The check `annotations` has reported a value that cannot be read."""
    allowed = case.gang.annotations.get(REPAIR, "")
    try:
        repairs = parse_repair(allowed)
    except ValueError:
        return
    if not repairs or user_of(place) is not None:
        return
    yield Finding(
        name="repair-by-another-user",
        severity=Severity.RISKS,
        what="the containers run as root or as the user of their image, and a scan never runs as root",
        where=case.at(f"metadata.annotations[{REPAIR}]", allowed),
        means="the scan has no permission to change the files of that user, so Rekindle does not repair "
        "the checkpoints",
        fix="securityContext: {runAsUser: ID} in the pod template, or an fsGroup that may write there",
    )


def claim(case: Case) -> Iterator[Finding]:
    """Reports a claim that does not exist, or that only one node or pod can mount while the job has several
    ranks."""
    modes = case.access_modes
    if modes is None:
        namespace, _, name = case.claim.partition("/")
        yield Finding(
            name="claim-missing",
            severity=Severity.FAILS,
            what="the PersistentVolumeClaim of the checkpoints does not exist",
            where=Place(f"PersistentVolumeClaim {case.claim}", "metadata.name"),
            means="Kubernetes does not schedule a rank or a scan that mounts this claim",
            fix=f"kubectl -n {namespace} get pvc  # and create {name}, or name an existing claim",
        )
        return
    ranks = _ranks_with(case.gang, claim_of(case.gang))
    if ranks < 2 or not modes or not _SHARED_BY_NODES.isdisjoint(modes):
        return
    only_one_pod = set(modes) == {_ONE_POD}
    yield Finding(
        name="claim-of-one-pod" if only_one_pod else "claim-of-one-node",
        severity=Severity.FAILS if only_one_pod else Severity.RISKS,
        what=f"{ranks} ranks share a claim that only one {('pod' if only_one_pod else 'node')} can mount",
        where=Place(f"PersistentVolumeClaim {case.claim}", "spec.accessModes", ", ".join(modes)),
        means=f"only one of the {ranks} ranks that mount the claim starts"
        if only_one_pod
        else "these ranks must find room together on one node, and after a node has died the volume moves "
        "only when that node is proven to be off",
        fix="spec.accessModes: [ReadWriteMany], in a new claim of a storage class that supports this mode",
    )


def _ranks_with(gang: Gang, claim: str) -> int:
    """Returns the number of ranks that mount the claim."""
    return sum(
        template.count
        for template in gang.templates.values()
        if any(volume.source.get("claimName") == claim and volume.mounts for volume in template.volumes)
    )
