"""Folds samples of the volumes of a node's pods: which volumes show a fault now, and which no longer do.
Pure.

states.py makes findings from the observations. With the packaged rows all of them are notes; a row of a user
may have another severity. Each note is published at once, since a rank that has no room for its checkpoint
ends within moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from detectors.folds.chain import Chain
from detectors.folds.states import Folded, States
from detectors.rules.facts import Observation
from detectors.rules.volume_rows import (
    VOLUME_BROKEN,
    VOLUME_FULL,
    VOLUME_INODES,
    VOLUME_SILENT,
    VolumeRow,
    draft,
    subject_of,
)
from detectors.rules.volume_states import (
    Volume,
    VolumeSample,
    broken,
    bytes_left,
    described,
    has_bytes,
    has_inodes,
    inodes_left,
    is_bad,
    lacks_bytes,
    lacks_inodes,
)
from detectors.service.settings import Volumes as Settings
from detectors.wire.contract import Source, Subject

__all__ = ["VolumeFold"]

_CODE_PREFIX = "volume-"
_OPEN_MAX = 12
"""Number of findings of volumes that may be open at once. A file server that is gone must not crowd out other
findings."""
_IN_USER_SPACE = "fuse"
"""Prefix of the types of file systems in user space. The program behind such a file system may report
anything, for example that it never has room. So such a volume counts as full only after it was seen with
room."""


class VolumeFold:
    def __init__(self, settings: Settings, rows: Mapping[str, VolumeRow]) -> None:
        """Takes the rows by code."""
        self._settings = settings
        self._rows = rows
        # The kernel log names servers and devices, and no pod, so no known finding hides a state of a volume.
        self._states = States(
            Source.VOLUMES, _CODE_PREFIX, samples_to_end=1, unless_known=False, notes_at_once=True
        )
        self._took_writes: frozenset[Subject] = frozenset()
        """Volumes whose file system accepted writes in an earlier sample."""
        self._had_room: frozenset[Subject] = frozenset()

    def fold(self, chain: Chain, sample: VolumeSample, at: datetime) -> Folded:
        """Begins and ends findings from one sample."""
        open_ones = {
            (finding.code, finding.subject)
            for finding in chain.findings
            if finding.cleared_at is None and finding.code in self._rows and finding.subject.volume
        }
        ended = list(self._gone(sample, open_ones))
        room = _OPEN_MAX - len(open_ones)
        shown = []
        for one in self.observations(sample):
            is_news = bool(one.text) and (one.draft.code, one.draft.subject) not in open_ones
            if not is_news or room > 0:
                shown.append(one)
            room -= is_news
        folded = self._states.fold(chain, [*ended, *shown], at)
        self._remember(sample)
        return folded

    def observations(self, sample: VolumeSample) -> Iterator[Observation]:
        """Yields what this sample shows, compared with earlier samples."""
        for volume in sample.volumes:
            subject = subject_of(volume)
            yield from self._room(volume, subject)
            yield from self._service(volume, subject)

    def _room(self, volume: Volume, subject: Subject) -> Iterator[Observation]:
        limits = self._settings
        may_judge = not volume.type.startswith(_IN_USER_SPACE) or subject in self._had_room
        if may_judge and lacks_bytes(volume, limits):
            yield self._in_state(VOLUME_FULL, subject, described(volume, bytes_left(volume)))
        elif has_bytes(volume, limits):
            yield self._over(VOLUME_FULL, subject, "the volume has room")
        if may_judge and lacks_inodes(volume, limits):
            yield self._in_state(VOLUME_INODES, subject, described(volume, inodes_left(volume)))
        elif has_inodes(volume, limits):
            yield self._over(VOLUME_INODES, subject, "the volume has room for files")

    def _service(self, volume: Volume, subject: Subject) -> Iterator[Observation]:
        if volume.silent_s:
            text = described(volume, f"has not answered within {volume.silent_s:g} s")
            yield self._in_state(VOLUME_SILENT, subject, text)
            return
        if volume.errno or volume.bytes is not None:
            yield self._over(VOLUME_SILENT, subject, "the volume answers")
        if why := broken(volume):
            yield self._in_state(VOLUME_BROKEN, subject, described(volume, why))
        elif volume.is_read_only and subject in self._took_writes:
            text = described(volume, "took writes in this boot and is read-only now")
            yield self._in_state(VOLUME_BROKEN, subject, text)
        elif volume.bytes is not None and not volume.is_read_only:
            yield self._over(VOLUME_BROKEN, subject, "the volume answers and takes writes")

    def _gone(self, sample: VolumeSample, open_ones: set[tuple[str, Subject]]) -> Iterator[Observation]:
        mounted = {subject_of(volume) for volume in sample.volumes}
        for code, subject in sorted(open_ones, key=str):
            if subject.pod not in sample.pods:
                yield self._over(code, subject, "its pod is no longer on the node")
            elif subject not in mounted:
                yield self._over(code, subject, "the volume is no longer mounted")

    def _remember(self, sample: VolumeSample) -> None:
        """Remembers which of the mounted volumes accepted writes and had room. A volume that was unmounted is
        forgotten. A volume that is silent or broken keeps what was known."""
        before_writes, before_room = self._took_writes, self._had_room
        writes, room = set(), set()
        for volume in sample.volumes:
            subject = subject_of(volume)
            if subject in before_writes or not (volume.is_read_only or is_bad(volume)):
                writes.add(subject)
            if subject in before_room or has_bytes(volume, self._settings):
                room.add(subject)
        self._took_writes, self._had_room = frozenset(writes), frozenset(room)

    def _in_state(self, code: str, subject: Subject, text: str) -> Observation:
        return Observation(draft=draft(self._rows[code], subject), text=text)

    def _over(self, code: str, subject: Subject, why: str) -> Observation:
        return Observation(draft=draft(self._rows[code], subject), ended_by=why)
