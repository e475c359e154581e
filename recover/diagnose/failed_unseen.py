"""A job that its framework has failed, and none of its pods tells of a lost rank. Pure; for gang_faults.py.

Usually the pod of the lost rank is still there and tells more. No such pod is there in these cases:

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
from recover.api import Blame, Evidence, IncidentPhase
from recover.diagnose.diagnosis import JOB_FAILED, AffectedGang, Diagnosis, Loss, incident_name
from recover.diagnose.ranks import since
from recover.model import Gang, Pod, World
from recover.policy.consent import OptIn, opt_in

__all__ = ["failed_unseen", "told_by_job"]

_RECENT = timedelta(hours=1)
"""People have seen an older failure and have left the job as it is. A failure has an Incident long before."""


def failed_unseen(gang: Gang, pods: Iterable[Pod], now: datetime) -> Loss | None:
    """Returns the loss of a rank of which only the job tells. `pods` are those of the gang's present start
    that are there, and none of them is lost. A pod that has not ended will tell more: its watch is late."""
    terminal = gang.terminal
    if terminal is None or terminal.succeeded or terminal.at is None:
        return None
    if not all(pod.ended for pod in pods):
        return None
    return Loss(
        pod="",
        pod_uid="",
        node="",
        at=min(terminal.at, now),
        told_at=terminal.at,
        code=JOB_FAILED,
    )


def told_by_job(world: World, gang: Gang, loss: Loss, now: datetime) -> Diagnosis | None:
    """None if nobody asked for the recovery of the job, if a recovery has stopped or started it since, if the
    failure is old and has no Incident, or if another Incident tells of it: pods were there then, and told
    more."""
    name = incident_name(gang.ref.name, Fault.UNKNOWN, gang.ref.uid, loss.code)
    began = since(world.history(gang.ref.uid))
    if opt_in(gang, world.namespaces.get(gang.ref.namespace)) is OptIn.DISABLED:
        return None
    if began is not None and loss.at < began.replace(microsecond=0):  # Kubernetes writes whole seconds
        return None
    own = world.incidents.get(name)
    is_open = own is not None and own.status.phase is IncidentPhase.OPEN
    if not is_open and (now - loss.at > _RECENT or _is_told(world, gang, name, loss.at, began)):
        return None
    reason = (gang.terminal.reason if gang.terminal is not None else "") or "it gave no reason"
    return Diagnosis(
        name=name,
        fault=Fault.UNKNOWN,
        severity=Severity.FATAL,
        detected_at=loss.at,
        seen_at=loss.at,
        summary=f"{gang.ref}: the framework has marked the job as failed ({reason}). No pod of "
        "the job shows which rank failed, so there is no culprit",
        blame=Blame.UNKNOWN,
        settled=True,
        gang=gang,
        evidence=(fitted(Evidence, at=loss.at, origin=Origin.TENANT, code=loss.code),),
        affected=(AffectedGang(gang=gang, due=now, dead=True),),
        error=loss.code,
    )


def _is_told(world: World, gang: Gang, name: str, at: datetime, began: datetime | None) -> bool:
    """An older Incident is about something else, which the gang has outlived."""
    since_then = at - _RECENT if began is None else max(began, at - _RECENT)
    return any(
        about.uid == gang.ref.uid
        and incident.metadata.name != name
        and incident.spec.detected_at > since_then
        for incident in world.incidents.values()
        if (about := incident.spec.gang) is not None
    )
