"""Checks whether all ranks of a job have the same folder of checkpoints, and no other job has this folder.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from recover.checkpoints.annotation import ANNOTATION, CheckpointLocation, LocationError, parse
from recover.doctor.case import Case, Finding, Severity
from recover.model import Mount, Template, Volume, VolumeKind
from recover.recovery.scan_place import MOUNTABLE, Unscannable, location
from recover.stories.words import some

__all__ = ["same", "with_sharers"]

_LASTING = frozenset({VolumeKind.CLAIM, VolumeKind.NFS, VolumeKind.CSI, VolumeKind.HOST_PATH})
_KEEPS_NOTHING = frozenset(
    {
        VolumeKind.EMPTY_DIR,
        VolumeKind.EPHEMERAL,
        VolumeKind.CONFIG_MAP,
        VolumeKind.SECRET,
        VolumeKind.PROJECTED,
        VolumeKind.DOWNWARD_API,
    }
)
"""Volumes that end with the pod, or to which no rank can write. Of a kind that is in neither set, such as
cephfs, nothing is known."""


class _Folder(msgspec.Struct, frozen=True):
    """A folder of a volume. Two equal folders are the same folder; two unequal folders may be the same one
    under two names."""

    kind: VolumeKind
    source: tuple[str, ...]
    namespace: str
    """Namespace of the claim; empty for other volumes."""
    path: str
    """Path in the volume."""

    def __str__(self) -> str:
        named = f"the {'claim' if self.kind is VolumeKind.CLAIM else self.kind} {':'.join(self.source)}"
        return named if self.path == "/" else f"the folder {self.path} of {named}"


def _folder(volume: Volume, mount: Mount, path: str, namespace: str) -> _Folder | None:
    """Returns the folder that a container has at this path below the mount; None if that is not certain."""
    whole = PurePosixPath(path)
    if volume.kind not in MOUNTABLE or mount.sub_path_expr or not whole.is_relative_to(mount.path):
        return None
    return _Folder(
        kind=volume.kind,
        source=tuple(str(volume.source.get(field, "")) for field in MOUNTABLE[volume.kind]),
        namespace=namespace if volume.kind is VolumeKind.CLAIM else "",
        path=str(PurePosixPath("/", mount.sub_path.strip("/"), whole.relative_to(mount.path))),
    )


def same(case: Case) -> Iterator[Finding]:
    """Reports ranks, and other jobs, whose folders cannot be right. The checks before this one have reported
    an annotation that cannot be read, and a path at which no volume is mounted."""
    value = case.gang.annotations.get(ANNOTATION, "")
    try:
        at = parse(value)
    except LocationError:
        return
    yield from _of_ranks(case, at)
    yield from _of_others(case, at)


def _of_ranks(case: Case, at: CheckpointLocation) -> Iterator[Finding]:
    found = {
        name: folder
        for name, template in case.gang.templates.items()
        if (folder := _in_template(template, at.path, case.gang.ref.namespace)) is not None
    }
    if len(set(found.values())) < 2:
        yield from _without_folder(case, at)
        return
    yield Finding(
        name="checkpoint-folders-differ",
        severity=Severity.RISKS,
        what=f"at {at.path}, " + ", and ".join(f"{name} has {folder}" for name, folder in found.items()),
        where=case.at(", ".join(f"{case.spec.template_field(name)}.spec.volumes" for name in found)),
        means="a scan reads one of these folders only, and knows nothing about checkpoints, or parts of "
        "checkpoints, that ranks save into another",
        fix=f"mount the same volume at {at.path} in all pod templates",
    )


def _without_folder(case: Case, at: CheckpointLocation) -> Iterator[Finding]:
    """Reports templates that mount nothing at the path, or a volume that keeps nothing, if another template
    mounts a lasting volume there. Ranks of a template that mounts nothing may need no checkpoints,
    as the ranks of a coordinator."""
    kinds = {name: _kind_at(template, at.path) for name, template in case.gang.templates.items()}
    lasting = [name for name, kind in kinds.items() if kind in _LASTING]
    for name in (name for name in kinds if lasting and name not in lasting):
        kind, field = kinds[name], f"{case.spec.template_field(name)}.spec"
        if kind is not None and kind not in _KEEPS_NOTHING:
            continue
        if kind is not None:
            yield Finding(
                name="checkpoint-folder-lost",
                severity=Severity.FAILS,
                what=f"at {at.path} the pods of {name} have a volume of the kind {kind}, and the pods of "
                f"{some(lasting)} have a lasting volume",
                where=case.at(f"{field}.volumes"),
                means=f"a rank of {name} cannot save there, or what it saves is lost at each restart",
                fix=f"mount the volume of {lasting[0]} at {at.path} in {field}",
            )
            continue
        yield Finding(
            name="checkpoint-folder-missing",
            severity=Severity.ADVICE,
            what=f"the pods of {name} mount no volume at {at.path}",
            where=case.at(f"{field}.containers"),
            means=f"a rank of {name} cannot load the checkpoint from which the other ranks resume, and loses "
            "what it saves there",
            fix=f"nothing, if the ranks of {name} neither save nor load checkpoints; otherwise mount the "
            f"volume of the checkpoints at {at.path} in {field}",
        )


def _kind_at(template: Template, path: str) -> VolumeKind | None:
    """Returns the kind of the volume that the template mounts at the path; None if it mounts none."""
    mounts = [
        (len(PurePosixPath(mount.path).parts), volume.kind)
        for volume in template.volumes
        for mount in volume.mounts
        if PurePosixPath(path).is_relative_to(mount.path)
    ]
    return max(mounts)[1] if mounts else None


def _in_template(template: Template, path: str, namespace: str) -> _Folder | None:
    """Returns the folder that the containers of a template have at this path. None if there is no such
    folder, or if containers differ."""
    mounts = [
        (volume, mount)
        for volume in template.volumes
        for mount in volume.mounts
        if PurePosixPath(path).is_relative_to(mount.path)
    ]
    deepest = max((len(PurePosixPath(mount.path).parts) for _, mount in mounts), default=0)
    folders = {
        _folder(volume, mount, path, namespace)
        for volume, mount in mounts
        if len(PurePosixPath(mount.path).parts) == deepest
    }
    return folders.pop() if len(folders) == 1 else None


def _of_others(case: Case, at: CheckpointLocation) -> Iterator[Finding]:
    if not case.sharers:
        return
    value = case.gang.annotations[ANNOTATION]
    _, semicolon, options = value.partition(";")
    own = PurePosixPath(at.path, case.gang.ref.name or case.generate_name.strip("-"))
    yield Finding(
        name="checkpoint-folder-shared",
        severity=Severity.RISKS,
        what=f"{some(case.sharers)} {'has' if len(case.sharers) == 1 else 'have'} the same folder of "
        "checkpoints",
        where=case.at(f"metadata.annotations[{ANNOTATION}]", value),
        means="a scan for this job also finds the checkpoints of the other jobs, and may choose one of them",
        fix=f"{case.set_annotation(ANNOTATION, f'{own}{semicolon}{options}')}, and save the checkpoints of "
        "this job there",
    )


def with_sharers(cases: Sequence[Case]) -> list[Case]:
    """Returns the cases, each with the other jobs that have the same folder of checkpoints."""
    places = [(case, _of_job(case)) for case in cases]
    return [
        msgspec.structs.replace(
            case,
            sharers=tuple(
                other.called
                for other, theirs in places
                if other is not case
                and not (case.gang.ref.name and other.gang.ref == case.gang.ref)
                and _is_shared(mine, theirs)
            ),
        )
        for case, mine in places
    ]


_Place = tuple[_Folder, CheckpointLocation] | None


def _of_job(case: Case) -> _Place:
    try:
        place = location(case.gang)
    except Unscannable:
        return None
    folder = _folder(place.volume, place.mount, place.at.path, case.gang.ref.namespace)
    return None if folder is None else (folder, place.at)


def _is_shared(mine: _Place, theirs: _Place) -> bool:
    """Whether a scan of one job takes checkpoints of the other for its own. A different marker or a different
    format keeps the checkpoints of two jobs apart."""
    if mine is None or theirs is None:
        return False
    (my_folder, my), (their_folder, their) = mine, theirs
    return (
        my_folder == their_folder
        and my.marker == their.marker
        and (my.format == their.format or None in (my.format, their.format))
    )
