"""Reads API objects and the audit log after a run: the timeline's numbers, and the checks of a verdict.

Pure over plain objects; the controller's own account of the run is not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import Audit
from chaos.scenarios.stage import CONTROLLER
from recover.api import Outcome, Phase, Recovery

__all__ = [
    "Check",
    "PhaseSpan",
    "all_ok",
    "cordoned",
    "job_writes",
    "recoveries_of",
    "refused",
    "resumed_where_chosen",
    "sha256",
    "spans",
    "writes_to",
]


class Check(msgspec.Struct, frozen=True):
    """One line of a verdict."""

    ok: bool
    words: str


class PhaseSpan(msgspec.Struct, frozen=True):
    phase: str
    attempt: int
    seconds: float


def recoveries_of(objects: Iterable[Object]) -> list[Recovery]:
    """Returns the recoveries in the order in which they began."""
    found = [msgspec.convert(o, Recovery, strict=False) for o in objects]
    return sorted(found, key=lambda r: r.spec.number)


def spans(recovery: Recovery, began: datetime) -> list[PhaseSpan]:
    """Returns how long each phase took. The first span is from `began` (the fault) to the stop."""
    entered = recovery.status.phases
    if not entered:
        return []
    result = [PhaseSpan("Detected and decided", 1, (entered[0].at - began).total_seconds())]
    for this, following in pairwise(entered):
        result.append(PhaseSpan(this.phase, this.attempt, (following.at - this.at).total_seconds()))
    return result


def cordoned(nodes: Iterable[Object]) -> set[str]:
    return {n["metadata"]["name"] for n in nodes if n.get("spec", {}).get("unschedulable")}


def writes_to(audit: Iterable[Audit], plurals: Sequence[str]) -> int:
    """Returns the number of the controller's writes that changed an object of these kinds."""
    return sum(
        1
        for entry in audit
        if entry.user == CONTROLLER and entry.changed and entry.resource.plural in plurals
    )


def refused(incidents: Iterable[Object]) -> list[str]:
    """Returns the reasons of all actions that were refused or only described, each once."""
    reasons = {
        record["reason"]
        for incident in incidents
        for record in incident.get("status", {}).get("actions", [])
        if record["outcome"] != Outcome.DONE
    }
    return sorted(reasons)


def job_writes(audit: Iterable[Audit], plural: str, name: str) -> int:
    """Returns the number of the controller's writes that changed the job: one stop and one resume for each
    attempt, and, if a start has put something into the job, one that removes it after the recovery."""
    return sum(
        1
        for entry in audit
        if entry.user == CONTROLLER
        and entry.resource.plural == plural
        and entry.name == name
        and entry.changed
    )


def resumed_where_chosen(recovery: Recovery) -> Check:
    """Checks that the first new step is the one after the chosen checkpoint's."""
    status = recovery.status
    chosen = status.checkpoint.step if status.checkpoint else None
    ok = status.phase is Phase.SUCCEEDED and chosen is not None and status.resumed_step == chosen + 1
    return Check(
        ok,
        f"recovery {recovery.spec.number}: {status.phase}, checkpoint step {chosen}, "
        f"first new step {status.resumed_step}",
    )


def all_ok(checks: Sequence[Check]) -> bool:
    return all(check.ok for check in checks)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
