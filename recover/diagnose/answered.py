"""Decides which of a node's findings are answered: by the end of a quarantine, by the end of a repair, or
by a closed Incident. Pure.

An answer is about the findings that were known when it was given. The numbers that the node's own log gives
its records show how far that knowledge went: a later record is new, even if the node's clock is hours behind
or ahead. Times are compared only for faults that continue, and for an answer that an earlier version of
Rekindle wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Fault, Finding, NodeHealth
from recover.api import Answered, Incident
from recover.api.repair_state import RepairPhase
from recover.diagnose.goes_on import CLOCKS_APART, SETTLED, is_shown_after, shown_at
from recover.model import Node

__all__ = [
    "Answer",
    "answered",
    "answers",
    "as_news",
    "joined",
    "known_of",
    "latest_of",
    "went_on_after",
]

_UNTOLD = timedelta(seconds=660)
"""Time for which an agent's knowledge may be unpublished. An agent may delay for 600 s the report that a
known fault continues (`publishing.refresh_s`); then it writes."""


_AHEAD_MAX = timedelta(days=1)
"""Time after an answer beyond which a finding counts as unknown at the answer, whatever the numbers of a log
say: the numbers come from the agent, and anyone who has its token could name a number that the log never
reaches. No clock is so far ahead for long."""


class Answer(msgspec.Struct, frozen=True):
    at: datetime
    known: Answered | None = None

    def covers(self, finding: Finding, now: datetime) -> bool:
        """Whether the answer covers the finding, as the finding is known now."""
        if self.known is None or not finding.sequence:
            return not is_shown_after(finding, self.at, now)
        return self.knew(finding, now) and not _goes_on(finding, self.at, self.known, now)

    def knew(self, finding: Finding, now: datetime) -> bool:
        """Whether the finding had begun before the answer, as far as anybody knew."""
        if self.known is None or not finding.sequence:
            return finding.first_seen <= self.at
        if finding.boot_id != self.known.boot_id or finding.sequence > self.known.sequence:
            return False
        return finding.first_seen > now or finding.first_seen <= _last_word(self.at, self.known)


def _last_word(at: datetime, known: Answered) -> datetime:
    """Returns the time of the agent's last report before the answer."""
    return min(known.last_seen or at, at + _AHEAD_MAX)


def _goes_on(finding: Finding, at: datetime, known: Answered, now: datetime) -> bool:
    """Whether the known finding was shown again. The node's clock and ours are compared only if the agent's
    last report before the answer fits our time of the answer. Otherwise the finding must be later than all
    reports that the agent may have held back by then."""
    last_word = _last_word(at, known)
    is_in_time = last_word <= at <= last_word + _UNTOLD
    shown = shown_at(finding)
    return (is_in_time and at < shown and finding.last_seen <= now) or last_word + _UNTOLD < shown


def answers(node: Node, incidents: Iterable[Incident] = ()) -> tuple[Answer, ...]:
    """Returns the answers to the node's findings: the last end of its quarantine, by a person or after a
    repair, and each close of one of its Incidents.

    An Incident answers nothing if it closed although the fault may still be present (`unanswered`), for
    example because its Node object was deleted, or if its fault proved to be that of another Incident
    (`superseded_by`). A close without known position in the log does not answer findings that were
    shown just before it: an agent may be about to report something new, by a clock that is a little behind.
    The close by a repair does answer them, as does the end of the quarantine after the repair.
    """
    released = () if node.released_at is None else (Answer(node.released_at, node.answered),)
    closes = tuple(
        Answer(i.status.closed_at - _tolerance(i), i.status.answered)
        for i in incidents
        if i.status.closed_at is not None
        and i.spec.fault is not Fault.HOST
        and not i.status.unanswered
        and not i.status.superseded_by
    )
    return released + closes


def _tolerance(incident: Incident) -> timedelta:
    repair = incident.status.repair
    is_repaired = repair is not None and repair.phase is RepairPhase.RETURNED
    return timedelta() if is_repaired or incident.status.answered is not None else CLOCKS_APART


def answered(finding: Finding, given: Iterable[Answer], now: datetime) -> bool:
    return any(answer.covers(finding, now) for answer in given)


def known_of(node: Node, health: NodeHealth | None) -> Answered | None:
    """Returns how far the log of the node's present boot is known, or None if no agent reports."""
    status = health.status if health is not None else None
    if status is None or not status.boot_id or status.boot_id != (node.boot_id or status.boot_id):
        return None
    mine = [finding for finding in status.findings if finding.boot_id == status.boot_id]
    read = status.kmsg.sequence if status.kmsg is not None and status.kmsg.boot_id == status.boot_id else 0
    times = [finding.last_seen for finding in mine]
    if status.observed_at is not None:
        times.append(status.observed_at)
    return Answered(
        boot_id=status.boot_id,
        sequence=max([read, *(finding.sequence for finding in mine)]),
        last_seen=max(times, default=None),
    )


def latest_of(findings: Collection[Finding]) -> Answered | None:
    """Returns how far these findings of one boot reach, or None if there is no finding."""
    if not findings:
        return None
    return Answered(
        boot_id=max(findings, key=lambda finding: finding.last_seen).boot_id,
        sequence=max(finding.sequence for finding in findings),
        last_seen=max(finding.last_seen for finding in findings),
    )


def joined(before: Answered | None, now: Answered) -> Answered:
    """Returns how far the findings are known if they were known as far as `before`, and now as far as
    `now`."""
    if before is None or before.boot_id != now.boot_id:
        return now
    times = [known.last_seen for known in (before, now) if known.last_seen is not None]
    sequence = max(before.sequence, now.sequence)
    return Answered(boot_id=now.boot_id, sequence=sequence, last_seen=max(times, default=None))


def went_on_after(finding: Finding, given: Collection[Answer], now: datetime) -> datetime | None:
    """Returns the time of the last answer to the open finding, if the finding was shown again since; None for
    a new finding."""
    return max((answer.at for answer in given if answer.knew(finding, now)), default=None)


def as_news(finding: Finding, given: Collection[Answer], now: datetime) -> Finding:
    """Returns the finding as if it had begun after the last answer. A finding that was known at the answer,
    and was shown again, begins SETTLED after the answer. A new finding that the node's clock, because it is
    behind, dates before the answer begins at the answer."""
    again = went_on_after(finding, given, now)
    if again is not None:
        return msgspec.structs.replace(finding, first_seen=again + SETTLED)
    since = max((answer.at for answer in given if answer.known is not None), default=None)
    if since is None or not finding.sequence or finding.first_seen >= since:
        return finding
    return msgspec.structs.replace(finding, first_seen=since, last_seen=max(since, finding.last_seen))
