"""Whether the checkpoints outlive the job's failures, and can be verified. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from recover.checkpoints.annotation import ANNOTATION, REPAIR, LocationError, parse
from recover.doctor.case import Case, Finding, Place, Severity
from recover.model import Gang, VolumeKind
from recover.recovery.scan_place import Place as ScanPlace
from recover.recovery.scan_place import Unscannable, location, mounted
from recover.recovery.scan_spec import user_of

__all__ = ["annotation", "claim", "claim_of", "volume"]

_UNVERIFIED = (
    "no checkpoint is verified: the framework's own logic decides where it resumes, and one that a crash has "
    "cut short may be what it takes"
)
_UNSCANNED = {
    VolumeKind.EMPTY_DIR: (
        "checkpoints-in-empty-dir",
        Severity.FAILS,
        "it goes with its pod: the job starts from its first step at each restart",
    ),
    VolumeKind.HOST_PATH: (
        "checkpoints-on-host-path",
        Severity.RISKS,
        "no checkpoint is verified; and unless all nodes share that folder, a rank that moves has none",
    ),
}
_A_CLAIM = "volumes: [{name: ckpt, persistentVolumeClaim: {claimName: NAME}}] of a claim that all nodes mount"
_PATH = ", PATH being absolute in the containers, as /ckpt"
_LASTING = frozenset({VolumeKind.CLAIM, VolumeKind.NFS, VolumeKind.CSI})
_LIKELY = ("ckpt", "checkpoint", "output", "save")
_SHARED_BY_NODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_ONE_POD = "ReadWriteOncePod"


def annotation(case: Case) -> Iterator[Finding]:
    value = case.gang.annotations.get(ANNOTATION)
    if value is None:
        yield Finding(
            name="no-checkpoint-annotation",
            severity=Severity.RISKS,
            what="nothing says where the checkpoints lie",
            where=case.at(f"metadata.annotations[{ANNOTATION}]"),
            means=_UNVERIFIED,
            fix=_proposal(case),
        )
        return
    try:
        parse(value)
    except LocationError as error:
        yield Finding(
            name="checkpoint-annotation-unusable",
            severity=Severity.RISKS,
            what=str(error),
            where=case.at(f"metadata.annotations[{ANNOTATION}]", value),
            means=_UNVERIFIED,
            fix=case.set_annotation(ANNOTATION, "PATH") + _PATH,
        )


def _proposal(case: Case) -> str:
    """The path of the volume that probably holds the checkpoints, if the template mounts one."""
    found = [
        mount.path
        for template in case.gang.templates.values()
        for volume in template.volumes
        if volume.kind in _LASTING
        for mount in volume.mounts
    ]
    paths = list(dict.fromkeys(found))
    likely = [path for path in paths if any(word in path.lower() for word in _LIKELY)]
    best = likely[:1] or (paths if len(paths) == 1 else [])
    if not best:
        return case.set_annotation(ANNOTATION, "PATH") + _PATH
    return f"{case.set_annotation(ANNOTATION, best[0])}, if the checkpoints lie in the volume mounted there"


def claim_of(gang: Gang) -> str:
    """The name of the volume claim with its checkpoints; empty where they lie on none."""
    try:
        found = mounted(gang).volume
    except Unscannable:
        return ""
    return str(found.source.get("claimName", "")) if found.kind is VolumeKind.CLAIM else ""


def volume(case: Case) -> Iterator[Finding]:
    """Of an annotation that can be read; one that cannot has been told."""
    value = case.gang.annotations.get(ANNOTATION, "")
    try:
        path = parse(value).path
    except LocationError:
        return
    where = case.at(f"metadata.annotations[{ANNOTATION}]", value)
    try:
        kind = mounted(case.gang).volume.kind
    except Unscannable:
        yield Finding(
            name="checkpoints-on-no-volume",
            severity=Severity.FAILS,
            what=f"no volume is mounted at {path}",
            where=where,
            means="it goes with its container: the job starts from its first step at each restart",
            fix=f"{_A_CLAIM}, and in the containers volumeMounts: [{{name: ckpt, mountPath: {path}}}]",
        )
        return
    try:
        place = location(case.gang)
    except Unscannable as why:
        name, severity, means = _UNSCANNED.get(kind, ("checkpoints-not-scanned", Severity.RISKS, _UNVERIFIED))
        yield Finding(
            name=name, severity=severity, what=str(why), where=where, means=means, fix=f"{_A_CLAIM}, or nfs"
        )
        return
    yield from _repair(case, place)


def _repair(case: Case, place: ScanPlace) -> Iterator[Finding]:
    """A scan never runs as root, and what root has made only root may change."""
    allowed = case.gang.annotations.get(REPAIR, "")
    if allowed.strip() in ("", "none") or user_of(place) is not None:
        return
    yield Finding(
        name="repair-by-another-user",
        severity=Severity.RISKS,
        what="its containers run as root or as their image's user, and a scan never runs as root",
        where=case.at(f"metadata.annotations[{REPAIR}]", allowed),
        means="the scan may not change what that user has written, so the repair does not happen",
        fix="securityContext: {runAsUser: ID} in the pod template, or an fsGroup that may write there",
    )


def claim(case: Case) -> Iterator[Finding]:
    """It is there, and pods on several nodes need one that several nodes can mount."""
    modes = case.access_modes
    if modes is None:
        namespace, _, name = case.claim.partition("/")
        yield Finding(
            name="claim-missing",
            severity=Severity.FAILS,
            what="the claim that its checkpoints lie on is not there",
            where=Place(f"PersistentVolumeClaim {case.claim}", "metadata.name"),
            means="neither a rank nor a scan starts: pods that mount it are not scheduled",
            fix=f"kubectl -n {namespace} get pvc  # and create {name}, or name one that is there",
        )
        return
    if case.gang.size < 2 or not modes or not _SHARED_BY_NODES.isdisjoint(modes):
        return
    only_one_pod = set(modes) == {_ONE_POD}
    yield Finding(
        name="claim-of-one-pod" if only_one_pod else "claim-of-one-node",
        severity=Severity.FAILS if only_one_pod else Severity.RISKS,
        what=f"{case.gang.size} ranks share a claim that one {'pod' if only_one_pod else 'node'} can mount",
        where=Place(f"PersistentVolumeClaim {case.claim}", "spec.accessModes", ", ".join(modes)),
        means="the other ranks do not start"
        if only_one_pod
        else "all ranks must find room on one node together, and after a node has died the volume moves only "
        "when that node is proven to be off",
        fix="spec.accessModes: [ReadWriteMany], in a new claim of a storage class that has it",
    )
