"""Decides which findings a person has answered who ended the quarantine of a node. Pure.

If a controller runs, it sees the person's change at once, and the person has answered everything that is
known then. If no controller ran, or the API server refused its write, the node may have broken again since.
Nobody records when the person ended the quarantine. So the person has answered what an Incident showed by
then, and Rekindle acts on later findings: they may be newer than the person's change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Finding
from recover.api import Answered, Incident
from recover.api.marks import UNHEALTHY
from recover.diagnose.answered import Answer, answers, joined, known_of
from recover.diagnose.what_counts import open_findings
from recover.model import Node, World

__all__ = ["PersonsAnswer", "answer_of_person", "is_released"]

_MOMENT = timedelta(seconds=1)


class PersonsAnswer(msgspec.Struct, frozen=True):
    answer: Answer
    news: tuple[Finding, ...] = ()
    """Open findings of the node that the person has not answered."""


def is_released(node: Node) -> bool:
    """Whether a person has ended the quarantine of the node, by an uncordon or by the removal of our taint,
    and Rekindle has not completed that yet."""
    note = node.quarantine
    if note is None:
        return False
    uncordoned = note.cordoned and not node.unschedulable
    untainted = not any(taint.key == UNHEALTHY for taint in node.taints)
    return uncordoned or untainted


def answer_of_person(world: World, node: Node, now: datetime) -> PersonsAnswer:
    """Returns the answer of a person who has ended the quarantine of the node. Incidents of an earlier
    version do not say how far the findings were known: then the answer covers all present findings."""
    health = world.health.get(node.name)
    about = [incident for incident in world.incidents.values() if incident.spec.node == node.name]
    found = open_findings(node, health, answers(node, about), now)
    shown = _shown_by(about, {node.boot_id, *(finding.boot_id for finding in found)})
    news = tuple(finding for finding in found if shown is not None and not _was_shown(finding, shown))
    if not news:
        # While no agent reports from the present boot, nobody can know a fault of that boot.
        return PersonsAnswer(Answer(now, known_of(node, health) or shown))
    # Only times decide about findings without a number: the answer must be earlier than they are.
    unnumbered = (finding.first_seen - _MOMENT for finding in news if not finding.sequence)
    return PersonsAnswer(Answer(min([now, *unnumbered]), shown), news)


def _shown_by(incidents: Iterable[Incident], boots: Collection[str]) -> Answered | None:
    """Returns how far the Incidents of the node showed its findings: in one of these boots if an Incident has
    shown that boot, and otherwise in an earlier boot."""
    shown: Answered | None = None
    for incident in incidents:
        known = incident.status.known
        if known is not None and (shown is None or known.boot_id in boots):
            shown = joined(shown, known)
    return shown


def _was_shown(finding: Finding, shown: Answered) -> bool:
    """Whether an Incident has shown the finding. Both times are from the clock of the node."""
    if finding.boot_id != shown.boot_id:
        return False
    if finding.sequence:
        return finding.sequence <= shown.sequence
    return shown.last_seen is not None and finding.first_seen <= shown.last_seen
