"""Folds drafts into findings over time: repeats, consequences, verdicts, reset, boot. Pure.

The fold stands between the rules and the publisher. `Change` says what one line changed in the findings: only
an `EDGE` is written at once. The memory grows with the number of devices and codes, and not with the number
of lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

import msgspec

from detectors.rules.facts import Draft, Seen
from detectors.service.settings import Chain as ChainSettings
from detectors.wire.contract import (
    FINDINGS_MAX,
    Fault,
    Finding,
    FoldedFindings,
    Origin,
    Remedy,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.wire.fitting import fitted, refitted
from detectors.wire.sane import total

__all__ = ["Chain", "Change", "least", "repeats"]

_CHAIN_CODES_MAX = 16
_FOLDED_CODES_MAX = 64
_OPEN_KEYS_MAX = 4096
_APART = timedelta(minutes=1)
_REPEAT_MAX = timedelta(minutes=1)
"""Longest pause between two lines of a code that count as one finding (if `repeat_s` is longer, that value
applies). A graver line is always a new finding. Faults for which a gang may be stopped (`_may_stop`) have the
shorter `_FAULT_PAUSE_MAX` instead."""
_FAULT_PAUSE_MAX = timedelta(seconds=10)
"""The same for faults for which a gang may be stopped. It is short, because a person may have returned the
node to service between the two lines. A fault that occurs every few seconds costs at most one write in this
time."""
_MORE_THAN_A_NOTE = frozenset(Severity) - {Severity.INFO}
_VAGUE = frozenset({Fault.UNKNOWN, Fault.THERMAL, Fault.HOST, Fault.HANG, Fault.STRAGGLER})
_GRAVITY = {severity: number for number, severity in enumerate(Severity)}


class Change(Enum):
    NOTHING = auto()
    COUNT = auto()
    """Only counts or times changed. The change can wait for the coarse refresh."""
    EDGE = auto()


class _Open(msgspec.Struct):
    """A code that was seen on a subject, and the finding in which the code is counted."""

    finding: str
    last_seen: datetime
    pause: timedelta
    """Pause after which the code's next line is a new finding."""


class Chain:
    """Keeps the live findings of one boot, oldest first."""

    def __init__(self, settings: ChainSettings, boot_id: str) -> None:
        self._repeat = timedelta(seconds=settings.repeat_s)
        """Pause after the first finding of a hardware fault: a line after this pause is a new finding. Each
        further finding of the same fault doubles the pause, so that a fault that occurs every few seconds
        costs at most one write in 10 s."""
        self._repeat_max = max(self._repeat, _REPEAT_MAX)
        self._fault_pause_max = max(self._repeat, _FAULT_PAUSE_MAX)
        self._consequence = timedelta(seconds=settings.consequence_s)
        self._boot_id = boot_id
        self._findings: dict[str, Finding] = {}
        self._folded: dict[str, FoldedFindings] = {}
        self._open: dict[tuple[str, Subject], _Open] = {}
        self._times: dict[tuple[str, Subject], list[datetime]] = {}
        """For drafts that become graver by repetition: the times at which they came, a minute or more
        apart."""

    @property
    def findings(self) -> list[Finding]:
        return list(self._findings.values())

    @property
    def folded(self) -> list[FoldedFindings]:
        return list(self._folded.values())

    @property
    def broken_devices(self) -> frozenset[str]:
        """PCI addresses of the devices with an open finding that is evidence on the hardware and more than a
        note."""
        return self._devices_with(_MORE_THAN_A_NOTE)

    @property
    def failed_devices(self) -> frozenset[str]:
        """PCI addresses of the devices with an open finding that is evidence on the hardware and fatal."""
        return self._devices_with((Severity.FATAL,))

    def _devices_with(self, severities: Collection[Severity]) -> frozenset[str]:
        return frozenset(
            finding.subject.pci
            for finding in self._findings.values()
            if finding.cleared_at is None
            and finding.severity in severities
            and finding.subject.kind is SubjectKind.DEVICE
            and _is_hardware(finding)
        )

    @property
    def device_broken(self) -> bool:
        return bool(self.broken_devices)

    def restore(self, findings: list[Finding], folded: list[FoldedFindings]) -> None:
        """Continues from a published status. Drops the findings of another boot."""
        for finding in findings:
            if finding.boot_id != self._boot_id or finding.id in self._findings:
                continue
            self._findings[finding.id] = finding
            if finding.cleared_at is None:
                known = self._open.get((finding.code, finding.subject))
                pause = self._pause_after(known, finding, finding.first_seen)
                joined = self._repeat if _may_stop(finding) else self._repeat_max
                for code in (finding.code, *finding.chain):
                    of_code = pause if code == finding.code else joined
                    self._open[(code, finding.subject)] = _Open(finding.id, finding.last_seen, of_code)
        self._folded = {entry.code: entry for entry in folded} | self._folded

    def new_boot(self, boot_id: str) -> Change:
        """Drops everything that was seen before this boot, since a boot clears the hardware."""
        if boot_id == self._boot_id:
            return Change.NOTHING
        had = bool(self._findings or self._folded)
        self._boot_id = boot_id
        self._findings.clear()
        self._folded.clear()
        self._open.clear()
        self._times.clear()
        return Change.EDGE if had else Change.NOTHING

    def is_open(self, code: str, subject: Subject) -> bool:
        """Whether an open finding has this code, also if the code is only a consequence in another
        finding."""
        return any(
            finding.cleared_at is None
            and code in (finding.code, *finding.chain)
            and (finding.subject == subject or _same_device(finding.subject, subject))
            for finding in self._findings.values()
        )

    def knows(self, draft: Draft) -> bool:
        """Whether an open finding on the same device already covers this draft: same fault class, and at
        least as grave."""
        return any(
            finding.cleared_at is None
            and _same_device(finding.subject, draft.subject)
            and finding.fault is draft.fault
            and _gravity(finding) >= _gravity(draft)
            and not (finding.confined and _spreads(draft, finding))
            for finding in self._findings.values()
        )

    def end(
        self, code: str, subject: Subject, at: datetime, why: str, *, with_prefix: str | tuple[str, ...]
    ) -> bool:
        """Ends the open findings whose own code is `code`; returns False if there is none. A finding with
        consequences of other kinds stays open, since these have not ended: their codes do not begin with
        `with_prefix`."""
        ended = [
            finding
            for finding in self._findings.values()
            if finding.cleared_at is None
            and finding.code == code
            and (finding.subject == subject or _same_device(finding.subject, subject))
            and all(followed.startswith(with_prefix) for followed in finding.chain)
        ]
        for finding in ended:
            self._findings[finding.id] = refitted(finding, cleared_at=at, cleared_by=why)
            self._open.pop((code, finding.subject), None)
        return bool(ended)

    def forget_repeats(self) -> None:
        """Forgets which codes are repeats, because a repair works, or has worked, on the devices: from now on
        each line is new evidence, however often it came before."""
        self._open.clear()

    def add(self, draft: Draft, line: Seen) -> Change:
        if draft.clears:
            return self._clear(draft, line)
        draft = self._as_repeated(draft, line)
        known = self._open.get((draft.code, draft.subject))
        if known is not None and self._repeats(known, draft, line):
            known.last_seen = max(known.last_seen, line.at)
            if known.finding in self._findings:
                return self._repeated(known.finding, draft, line)
            self._fold(draft.code, 1, line.at)
            return Change.COUNT
        head = self._head_of(draft, line)
        if head is not None:
            return self._joined_by_line(head, draft, line)
        return self._opened(draft, line, self._pause_after(known, draft, line.at))

    def _as_repeated(self, draft: Draft, line: Seen) -> Draft:
        """Returns the draft with a higher severity if the draft has come often enough. Lines that come close
        together count once, because one blocked processor blocks others."""
        often, key = draft.repeated, (draft.code, draft.subject)
        if often is None:
            return draft
        times = self._times.pop(key, [])
        if not times or abs(line.at - times[-1]) >= _APART:
            times.append(line.at)
        times = [at for at in times if line.at - at < timedelta(seconds=often.within_s)][-often.times :]
        if len(self._times) >= _OPEN_KEYS_MAX:
            del self._times[next(iter(self._times))]
        self._times[key] = times
        return msgspec.structs.replace(draft, severity=often.severity) if len(times) >= often.times else draft

    def _head_of(self, draft: Draft, line: Seen) -> Finding | None:
        """Returns the finding of which this line is a consequence: the first finding of the device that began
        less than `consequence_s` ago, unless the line is graver. A line that names a code of the finding as
        its cause may come up to a minute (`_repeat_max`) later. Returns None if there is no such finding."""
        for finding in self._findings.values():
            if finding.cleared_at is not None or not _same_device(finding.subject, draft.subject):
                continue
            named = bool(draft.caused_by) and draft.caused_by in (finding.code, *finding.chain)
            window = self._repeat_max if named else self._consequence
            if finding.code == draft.code or abs(line.at - finding.first_seen) >= window:
                continue
            if (draft.verdict and _says_what_broke(finding)) or _gravity(draft) <= _gravity(finding):
                return finding
        return None

    def _repeats(self, known: _Open, draft: Draft, line: Seen) -> bool:
        """Whether a line repeats a finding. A graver line of the same code is no repeat: an NVLink code may
        be harmless first and fatal later. A verdict raises the finding that it repeats."""
        pause = known.pause if _may_stop(draft) else self._repeat_max
        if abs(line.at - known.last_seen) >= pause:  # the clock may be set back
            return False
        finding = self._findings.get(known.finding)
        return finding is None or draft.verdict or _gravity(draft) <= _gravity(finding)

    def _pause_after(self, known: _Open | None, new: Draft | Finding, at: datetime) -> timedelta:
        """Returns the `pause` for a finding that begins now (`at`): the next line of its code that comes
        after this pause begins another finding. `known` is the entry of the code's last finding."""
        if not _may_stop(new):
            return self._repeat_max
        was_harmless = known is not None and known.pause > self._fault_pause_max
        if known is None or was_harmless or abs(at - known.last_seen) >= self._repeat_max:
            return self._repeat
        return min(2 * known.pause, self._fault_pause_max)

    def _opened(self, draft: Draft, line: Seen, pause: timedelta) -> Change:
        finding = fitted(
            Finding,
            id=self._id(line),
            code=draft.code,
            fault=draft.fault,
            origin=draft.origin,
            severity=draft.severity,
            subject=draft.subject,
            boot_id=self._boot_id,
            first_seen=line.since or line.at,
            last_seen=line.at,
            remedy=draft.remedy,
            final=draft.final,
            confined=draft.confined,
            sequence=line.sequence,
            evidence=line.text,
        )
        self._findings[finding.id] = finding
        self._track(draft, finding.id, line.at, pause)
        while len(self._findings) > FINDINGS_MAX:
            missed_least = least(self._findings.values())
            del self._findings[missed_least.id]
            self._fold(missed_least.code, missed_least.count, missed_least.last_seen)
        return Change.EDGE if finding.id in self._findings else Change.COUNT

    def _joined_by_line(self, head: Finding, draft: Draft, line: Seen) -> Change:
        self._track(draft, head.id, line.at, self._repeat if _may_stop(draft) else self._repeat_max)
        changes: dict[str, Any] = {"count": total(head.count, 1), "last_seen": max(head.last_seen, line.at)}
        if draft.code not in head.chain and len(head.chain) < _CHAIN_CODES_MAX:
            changes["chain"] = [*head.chain, draft.code]
        if head.confined and _spreads(draft, head):
            changes["confined"] = False
        if draft.verdict:
            changes |= _raised(head, draft)
        self._findings[head.id] = msgspec.structs.replace(head, **changes)
        return Change.EDGE if len(changes) > 2 else Change.COUNT

    def _repeated(self, finding_id: str, draft: Draft, line: Seen) -> Change:
        finding = self._findings[finding_id]
        # Evidence of a program does not renew a finding of the hardware; otherwise a program could do so at
        # will.
        renews = _is_hardware(draft) or not _is_hardware(finding)
        last_seen = max(finding.last_seen, line.at) if renews else finding.last_seen
        changes: dict[str, Any] = {"count": total(finding.count, 1), "last_seen": last_seen}
        if draft.verdict:
            changes |= _raised(finding, draft)
        self._findings[finding_id] = msgspec.structs.replace(finding, **changes)
        return Change.EDGE if len(changes) > 2 else Change.COUNT

    def _clear(self, draft: Draft, line: Seen) -> Change:
        """Ends all open findings of the device, because the vendor says that the device needs nothing any
        more."""
        change = Change.NOTHING
        for finding in self._findings.values():
            if finding.cleared_at is None and _same_device(finding.subject, draft.subject):
                self._findings[finding.id] = msgspec.structs.replace(
                    finding, cleared_at=line.at, cleared_by=f"{draft.code}: recovery action none"
                )
                change = Change.EDGE
        for tracked in [key for key in self._open if _same_device(key[1], draft.subject)]:
            del self._open[tracked]
        return change

    def _track(self, draft: Draft, finding_id: str, at: datetime, pause: timedelta) -> None:
        if len(self._open) >= _OPEN_KEYS_MAX:
            del self._open[next(iter(self._open))]
        self._open[(draft.code, draft.subject)] = _Open(finding_id, at, pause)

    def _fold(self, code: str, count: int, at: datetime) -> None:
        if code not in self._folded and len(self._folded) >= _FOLDED_CODES_MAX - 1:
            code = "other"
        before = self._folded.get(code)
        if before is not None:
            count, at = total(count, before.count), max(at, before.last_seen)
        self._folded[code] = FoldedFindings(code=code, count=count, last_seen=at)

    def _id(self, line: Seen) -> str:
        """Returns an id from the number of the kernel record. If the source has no numbers, or the record has
        already made a finding, the id is the first free one at that time."""
        before = f"{self._boot_id[:8] or 'noboot'}-{line.source}"
        if line.source is Source.KMSG and (id_ := f"{before}-{line.sequence}") not in self._findings:
            return id_
        at_ms = int(line.at.timestamp() * 1000)
        return next(id_ for n in itertools.count(at_ms) if (id_ := f"{before}-{n}") not in self._findings)


def _same_device(a: Subject, b: Subject) -> bool:
    """Whether both subjects are the same device. A subject without a place on the PCI bus, such as the node
    itself, is no device: two faults of such a subject may have nothing to do with each other."""
    return bool(a.pci) and a.kind == b.kind and a.pci == b.pci


def _is_hardware(item: Draft | Finding) -> bool:
    return item.origin is not Origin.TENANT and item.fault is not Fault.APPLICATION


def _may_stop(item: Draft | Finding) -> bool:
    """Whether a gang may be stopped for the fault. After a person has returned the node to service, the next
    line about such a fault must soon count as new."""
    return _is_hardware(item) and item.severity in (Severity.PENDING, Severity.FATAL)


def _says_what_broke(finding: Finding) -> bool:
    """Whether a verdict may raise this finding. If its class takes no node out of service, the verdict
    becomes a finding of its own, which people would not see otherwise."""
    return _is_hardware(finding) and finding.fault not in _VAGUE


def _gravity(item: Draft | Finding) -> tuple[bool, int, bool]:
    """Returns a sort key: evidence on the hardware above evidence of an application, then severity, then a
    final verdict."""
    return _is_hardware(item), _GRAVITY[item.severity], item.final


def _spreads(draft: Draft, confined: Finding) -> bool:
    """Whether the draft follows a finding that is confined to one GPU instance, and harms work outside of
    that instance. A draft that is only a note or a suspicion harms no work."""
    stays = draft.confined and draft.subject == confined.subject
    return _is_hardware(draft) and draft.severity in (Severity.PENDING, Severity.FATAL) and not stays


def _raised(finding: Finding, draft: Draft) -> dict[str, Any]:
    """Returns what the vendor's verdict changes in the finding. The verdict names the remedy, and never
    lowers the severity of the first line."""
    changes: dict[str, Any] = {}
    if not finding.final:
        changes["final"] = True
    if draft.remedy not in (Remedy.NONE, finding.remedy):
        changes["remedy"] = draft.remedy
    if _GRAVITY[draft.severity] > _GRAVITY[finding.severity]:
        changes["severity"] = draft.severity
    return changes


def repeats(findings: Iterable[Finding]) -> frozenset[str]:
    """Returns the ids of findings that are neither the first nor the last of the findings with the same code,
    severity and subject. These findings say only that the fault went on."""
    rows: dict[tuple[str, Severity, Subject], list[str]] = {}
    for finding in findings:
        if finding.cleared_at is None:
            rows.setdefault((finding.code, finding.severity, finding.subject), []).append(finding.id)
    return frozenset(id_ for ids in rows.values() for id_ in ids[1:-1])


def least(findings: Collection[Finding]) -> Finding:
    """Returns the finding whose loss does the least harm. `findings` are oldest first. The order is: findings
    that have ended, then findings that only repeat others (`repeats`), then findings of the least gravity,
    then the oldest that was not the first on its subject. The first finding on a subject is kept longest,
    since it is the likeliest cause of all later ones."""
    in_row = repeats(findings)
    first_of: dict[Subject, str] = {}
    for finding in findings:
        first_of.setdefault(finding.subject, finding.id)

    def worth(numbered: tuple[int, Finding]) -> tuple[bool, bool, tuple[bool, int, bool], bool, int]:
        number, finding = numbered
        was_first = first_of[finding.subject] == finding.id
        return (
            finding.cleared_at is None,
            finding.id not in in_row,
            _gravity(finding),
            was_first,
            -number if was_first else number,
        )

    return min(enumerate(findings), key=worth)[1]
