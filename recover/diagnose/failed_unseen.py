"""Finds jobs that their framework has failed although none of their pods shows a lost rank. Pure; for
gang_faults.py.

Usually the pod of the lost rank still exists and shows more. No such pod exists in these cases:

- The framework deletes all pods of a failed job (`cleanPodPolicy: All`), and no controller saw how
  they ended.
- Somebody resumed a job whose pods of the earlier start had not ended. A training operator takes such a pod
  for a failed rank if its restart policy is `Never`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from detectors.wire.contract import Fault, Origin, Severity
from detectors.wire.fitting import fitted
from recover.api import Blame, Evidence, Incident, Recovery
from recover.diagnose.diagnosis import JOB_FAILED, AffectedGang, Diagnosis, Loss, incident_name
from recover.diagnose.ranks import last_stop_or_start, resumed_at
from recover.model import Gang, Pod, World
from recover.policy.consent import OptIn, opt_in

__all__ = ["failed_unseen", "told_by_job"]

_RECENT = timedelta(hours=1)
"""Age beyond which a failure is ignored if it has no Incident: people have seen an older failure and have
left the job as it is. A failure that Rekindle saw gets its Incident long before."""


def failed_unseen(world: World, gang: Gang, pods: Iterable[Pod], now: datetime) -> Loss | None:
    """Returns the loss of a rank that only the job shows, or None if there is no such loss or the job's
    consent is `disabled`. `pods` are the existing pods of the gang's present start, and none of them is lost.
    While a pod has not ended, the result is None, because that pod will show more: the watch of pods is
    late."""
    terminal = gang.terminal
    if terminal is None or terminal.succeeded or terminal.at is None:
        return None
    if opt_in(gang, world.namespaces.get(gang.ref.namespace)) is OptIn.DISABLED:
        return None
    if not all(pod.ended for pod in pods):
        return None
    return Loss(
        pod="",
        pod_uid="",
        node="",
        at=min(terminal.at, now),
        reported_at=terminal.at,
        code=JOB_FAILED,
    )


def told_by_job(
    world: World, gang: Gang, loss: Loss, known: Incident | None, now: datetime
) -> Diagnosis | None:
    """Returns the diagnosis for a loss that only the job shows. `known` is the open Incident of the gang. The
    Incident stays open as long as the job stays failed, because a person who has stopped the restart may
    allow it later.

    Returns None if a recovery has stopped or started the job since, or if the failure is old and has no
    Incident.
    """
    history = world.history(gang.ref.uid)
    began = last_stop_or_start(history)
    if began is not None and loss.at < _first_second(began, history):
        return None
    if known is not None and (began is None or known.spec.detected_at > began):
        return _told_by_pods(gang, known, now) if _is_of_a_rank(known) else _unseen(world, gang, loss, now)
    return _unseen(world, gang, loss, now) if now - loss.at <= _RECENT else None


def _first_second(began: datetime, history: list[Recovery]) -> datetime:
    """Returns the first time at which a failure counts. Kubernetes writes whole seconds. A failure in the
    second of our stop came before the stop, and a failure in the second of our start came after the start."""
    is_start = any(resumed_at(recovery) == began for recovery in history)
    return began.replace(microsecond=0) if is_start else began


def _is_of_a_rank(incident: Incident) -> bool:
    """Whether the Incident has evidence of a lost rank from a pod. The pod may have been deleted since."""
    return incident.fault is not Fault.HANG and any(evidence.pod for evidence in incident.status.evidence)


def _told_by_pods(gang: Gang, known: Incident, now: datetime) -> Diagnosis:
    """Returns the diagnosis by what the pods showed before they were deleted. No later reconcile can find out
    more."""
    return Diagnosis(
        name=known.metadata.name,
        fault=known.fault,
        severity=Severity.FATAL,
        detected_at=known.spec.detected_at,
        seen_at=known.spec.detected_at,
        summary=known.status.summary,
        blame=known.status.blame,
        settled=True,
        gang=gang,
        evidence=tuple(known.status.evidence),
        suspects=tuple(known.status.suspects),
        affected=(AffectedGang(gang=gang, due=now, dead=True),),
        error=JOB_FAILED,
    )


def _unseen(world: World, gang: Gang, loss: Loss, now: datetime) -> Diagnosis:
    before = world.incidents.get(_name(gang, loss))
    again = (
        () if before is None or before.status.closed_at is None else (before.status.closed_at.isoformat(),)
    )
    reason = (gang.terminal.reason if gang.terminal is not None else "") or "it gave no reason"
    return Diagnosis(
        name=_name(gang, loss, *again),
        fault=Fault.UNKNOWN,
        severity=Severity.FATAL,
        detected_at=loss.at,
        seen_at=loss.at,
        summary=f"{gang.ref}: the framework's controller has marked the job as failed ({reason}). No pod of "
        "the job shows which rank failed, so there is no culprit",
        blame=Blame.UNKNOWN,
        settled=True,
        gang=gang,
        evidence=(fitted(Evidence, at=loss.at, origin=Origin.TENANT, code=loss.code),),
        affected=(AffectedGang(gang=gang, due=now, dead=True),),
        error=loss.code,
    )


def _name(gang: Gang, loss: Loss, *again: str) -> str:
    return incident_name(gang.ref.name, Fault.UNKNOWN, gang.ref.uid, loss.code, *again)
