"""Lists what a complete kernel log, and one sample of the node, show: each code on each subject, and the code
that caused it. Pure; agent/scan.py prints the list.

The agent folds consequences into the finding that caused them, since only changes are worth a write. A report
for people and scripts keeps each code as a separate entry, and names its cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from detectors.folds.chain import Chain
from detectors.rules.facts import Draft, Seen
from detectors.service.settings import Chain as ChainSettings
from detectors.wire.contract import Fault, Finding, Origin, Remedy, Severity, Subject, SubjectKind
from detectors.wire.fitting import fit

__all__ = ["Entry", "EntrySubject", "entries"]


class EntrySubject(msgspec.Struct, frozen=True):
    kind: SubjectKind
    pci: str = ""
    uuid: str = ""
    gpu_instance: int | None = None
    pod: str = ""
    volume: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The lines with one code on one subject."""

    code: str
    fault: Fault
    severity: Severity
    origin: Origin
    remedy: Remedy = msgspec.field(name="action")
    """The recommendation of the code's source: `remedy` of the catalogue's row."""
    subject: EntrySubject
    count: int
    first_at: datetime
    last_at: datetime
    evidence: str
    """The first line among the gravest."""
    caused_by: str = ""
    """The code on the same subject that caused this one; empty if none is known."""


class _Seen(msgspec.Struct):
    draft: Draft
    shown: Seen
    """The first line among the gravest."""
    first_at: datetime
    last_at: datetime
    count: int = 1
    caused_by: str = ""


def entries(found: Iterable[tuple[Seen, Draft]], settings: ChainSettings, boot_id: str = "") -> list[Entry]:
    """Returns the entries in the order in which they were seen first. A code that becomes graver keeps its
    gravest severity."""
    chain = Chain(settings, boot_id)
    seen: dict[tuple[str, Subject], _Seen] = {}
    for line, draft in found:
        chain.add(draft, line)
        key = (draft.code, draft.subject)
        known = seen.get(key)
        if known is None:
            seen[key] = _Seen(draft, line, line.at, line.at, caused_by=_cause(chain, draft))
        else:
            known.count += 1
            known.last_at = max(known.last_at, line.at)
            if _RANK[draft.severity] > _RANK[known.draft.severity]:
                known.draft, known.shown = draft, line
    return [_entry(one) for one in seen.values()]


_RANK = {severity: number for number, severity in enumerate(Severity)}


def _cause(chain: Chain, draft: Draft) -> str:
    for finding in chain.findings:
        if draft.code in finding.chain and finding.subject.pci == draft.subject.pci:
            return finding.code
    return draft.caused_by


def _entry(one: _Seen) -> Entry:
    draft, subject = one.draft, one.draft.subject
    return Entry(
        code=draft.code,
        fault=draft.fault,
        severity=draft.severity,
        origin=draft.origin,
        remedy=draft.remedy,
        subject=EntrySubject(
            kind=subject.kind,
            pci=subject.pci,
            uuid=subject.device,
            gpu_instance=subject.gpu_instance,
            pod=subject.pod,
            volume=subject.volume,
        ),
        count=one.count,
        first_at=one.first_at,
        last_at=one.last_at,
        evidence=fit(Finding, "evidence", one.shown.text),
        caused_by=one.caused_by,
    )
