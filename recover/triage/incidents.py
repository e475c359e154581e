"""Opens Incidents, keeps them in step with the diagnosis, and closes them when nothing of the diagnosis is
left. Pure.

An Incident is written only when something in it changes: an idle cluster causes no writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from detectors.wire.contract import Fault, Origin
from detectors.wire.fitting import fitted, limit, refitted
from recover.api import (
    Act,
    ActionRecord,
    Answered,
    Blame,
    Evidence,
    Incident,
    IncidentPhase,
    IncidentSpec,
    IncidentStatus,
    Outcome,
)
from recover.api.reasons import EventReason, Reason
from recover.api.repair_state import RepairPhase
from recover.diagnose.answered import joined, known_of
from recover.diagnose.diagnosis import Diagnosis
from recover.diagnose.released import is_released
from recover.diagnose.set_aside import set_aside
from recover.k8s.bodies import body, builtins, merge_diff, regarding
from recover.k8s.kinds import INCIDENTS
from recover.model import World
from recover.model.actions import Action, Create, Emit, Patch
from recover.policy.faults import QuarantineLevel
from recover.triage.advice import Advice
from recover.triage.held_back import holds_back

__all__ = [
    "advised",
    "close",
    "closings",
    "create",
    "explain",
    "merged_records",
    "of_recoveries",
    "superseded",
    "update",
]

ADVICE_PER_NAMESPACE_MAX = 50
_BLAMED = {Fault.APPLICATION: Blame.APPLICATION, Fault.RESOURCES: Blame.RESOURCES}
_TOLD_MAX = limit(IncidentStatus, "victims")
"""Number of affected gangs that get an Event: as many as an Incident can list."""


def explain(world: World, diagnosis: Diagnosis, records: list[ActionRecord]) -> Iterator[Action]:
    """Creates the Incident of the diagnosis, or updates it."""
    existing = world.incidents.get(diagnosis.name)
    if existing is None:
        spec = fitted(
            IncidentSpec,
            fault=diagnosis.fault,
            node=diagnosis.node,
            gang=diagnosis.gang.ref if diagnosis.gang else None,
            detected_at=diagnosis.detected_at,
            boot_id=diagnosis.boot_id,
        )
        status = _status(world, IncidentStatus(), diagnosis, records)
        yield create(diagnosis.name, spec, status)
        yield from _announce(world, diagnosis)
    elif existing.status.phase is IncidentPhase.OPEN:
        status = _status(world, existing.status, diagnosis, records)
        if existing.status.known is None and refitted(status, known=None) == existing.status:
            return  # with an older definition of the kind, the API server drops the field at each write
        yield from update(existing, status, "explain-incident")


def _known(world: World, before: IncidentStatus, diagnosis: Diagnosis) -> Answered | None:
    """Returns the latest position in the kernel log that the Incident knows. After a person has ended the
    quarantine, and until Rekindle has written the end, the position stays as it was: the person did not know
    of later findings."""
    node = world.nodes.get(diagnosis.node)
    if diagnosis.known is None or (node is not None and is_released(node)):
        return before.known
    return joined(before.known, diagnosis.known)


def advised(world: World, found: Iterable[Advice], now: datetime) -> Iterator[tuple[Action, ...]]:
    """Yields an Incident and Events that tell each owner once what to change. An owner who ignores the advice
    is not told again. Each namespace has a limit, because anyone who may create pods in a namespace could
    otherwise crowd out all other Incidents."""
    news = [advice for advice in found if advice.name not in world.incidents]
    told = Counter(_advised_in(incident) for incident in world.incidents.values()) if news else Counter()
    for advice in news:
        told[advice.owner.namespace] += 1
        if told[advice.owner.namespace] <= ADVICE_PER_NAMESPACE_MAX:
            yield tuple(_advise(advice, now))


def _advised_in(incident: Incident) -> str:
    """Returns the namespace of the advised owner; empty for an Incident of another kind."""
    is_advice = any(record.action == Act.APPLY_RECIPE for record in incident.status.actions)
    return next((victim.namespace for victim in incident.status.victims), "") if is_advice else ""


def _advise(advice: Advice, now: datetime) -> Iterator[Action]:
    seen = fitted(
        Evidence,
        at=advice.at,
        origin=Origin.TENANT,
        code=f"recipe-{advice.recipe.name}",
        node=advice.pod.node,
        pod=advice.pod.name,
    )
    refused = fitted(
        ActionRecord,
        at=now,
        action=Act.APPLY_RECIPE,
        target=str(advice.owner),
        outcome=Outcome.REFUSED,
        reason=advice.reason,
        message=f"Advice to the owner of the job: {advice.words} ({advice.why_not})",
    )
    status = fitted(
        IncidentStatus,
        summary=advice.summary,
        blame=Blame.APPLICATION,
        evidence=[seen],
        victims=[advice.owner],
        actions=[refused],
    )
    yield create(advice.name, fitted(IncidentSpec, fault=Fault.APPLICATION, detected_at=advice.at), status)
    owner, pod = advice.owner, advice.pod
    for about in (
        regarding(owner.api_version, owner.kind, owner.name, owner.uid, owner.namespace),
        regarding("v1", "Pod", pod.name, pod.uid, pod.namespace),
    ):
        yield Emit(
            reason=EventReason.KNOWN_ISSUE,
            message=f"{advice.summary}. {advice.words} Incident {advice.name}",
            regarding=about,
            warning=True,
            key=advice.name,
        )


def _status(
    world: World, before: IncidentStatus, diagnosis: Diagnosis, records: list[ActionRecord]
) -> IncidentStatus:
    victims = {v.uid: v for v in [*before.victims, *(h.gang.ref for h in diagnosis.affected)]}
    blame = diagnosis.blame if diagnosis.settled else Blame.UNKNOWN
    return fitted(
        IncidentStatus,
        phase=IncidentPhase.OPEN,
        summary=diagnosis.summary,
        fault=diagnosis.fault,
        blame=blame,
        blamed_node=diagnosis.node if blame is Blame.NODE else "",
        evidence=_timed(before.evidence, diagnosis.evidence),
        suspects=list(diagnosis.suspects),
        victims=list(victims.values()),
        actions=merged_records(before.actions, records),
        members=before.members,
        cordoned_at=_cordoned_at(before, diagnosis, records),
        superseded_by=before.superseded_by,
        known=_known(world, before, diagnosis),
        repair=before.repair,
    )


def _cordoned_at(
    before: IncidentStatus, diagnosis: Diagnosis, records: list[ActionRecord]
) -> datetime | None:
    if any((r.action, r.reason) == (Act.QUARANTINE_NODE, Reason.WRITE_REFUSED) for r in records):
        return None  # the API server has refused the write that an earlier record called done
    if before.cordoned_at is not None or diagnosis.level is not QuarantineLevel.CORDON:
        return before.cordoned_at
    return next((r.at for r in records if (r.action, r.outcome) == (Act.QUARANTINE_NODE, Outcome.DONE)), None)


def merged_records(before: list[ActionRecord], records: list[ActionRecord]) -> list[ActionRecord]:
    """Returns the latest record of each action. An unchanged record keeps its time, so that no write is
    needed for it."""
    latest = {(r.action, r.target): r for r in before}
    for record in records:
        old = latest.get((record.action, record.target))
        if old is None or (old.outcome, old.reason) != (record.outcome, record.reason):
            latest[(record.action, record.target)] = record
    # Done actions come first, and the order is the same at every reconcile: otherwise each reconcile would
    # write.
    return sorted(latest.values(), key=lambda r: r.outcome is not Outcome.DONE)


def _timed(before: list[Evidence], found: Iterable[Evidence]) -> list[Evidence]:
    """Returns the evidence in the order of time. If the time of the loss of a rank is unknown, the evidence
    keeps the time at which Rekindle first saw the loss."""
    seen = {(e.code, e.node, e.pod): e.at for e in before if e.pod}
    timed = (msgspec.structs.replace(e, at=seen.get((e.code, e.node, e.pod), e.at)) for e in found)
    return sorted(timed, key=lambda e: e.at)


def of_recoveries(world: World, found: list[Diagnosis], now: datetime) -> Iterator[Action]:
    """Creates the Incidents of running recoveries that have none. A Recovery is written before its Incident.
    If the controller crashed in between, and the stop has since hidden the gang's own failure, the Recovery
    has the content for the Incident."""
    live = {diagnosis.name for diagnosis in found}
    for recovery in world.recoveries.values():
        spec = recovery.spec
        if not recovery.active or spec.incident in live or spec.incident in world.incidents:
            continue
        done = fitted(
            ActionRecord,
            at=now,
            action=Act.RESTART_GANG,
            target=str(spec.gang),
            outcome=Outcome.DONE,
            message=f"Recovery {recovery.metadata.name} restarts the whole gang",
        )
        status = fitted(
            IncidentStatus,
            summary=spec.summary,
            blame=_BLAMED.get(spec.fault, Blame.UNKNOWN),
            victims=[spec.gang],
            actions=[done],
        )
        about = fitted(IncidentSpec, fault=spec.fault, gang=spec.gang, detected_at=spec.detected_at)
        yield create(spec.incident, about, status)


def superseded(world: World, proved: Mapping[str, Diagnosis], now: datetime) -> Iterator[Action]:
    """Closes a gang's own Incident that proves to be a node's fault. The Incident then says so and points to
    the Incident of the node."""
    for name, fault in proved.items():
        incident = world.incidents[name]
        before = incident.status
        words = (
            f"{fault.summary[:256]}. This is the cause of the fault that was first described as: "
            f"{before.summary}"
        )
        status = refitted(
            before,
            phase=IncidentPhase.CLOSED,
            closed_at=before.closed_at or now,
            summary=words,
            blame=fault.blame,
            blamed_node=fault.node,
            superseded_by=fault.name,
        )
        yield from update(incident, status, "correct-blame")


def closings(
    world: World, live: Collection[str], found: Iterable[Diagnosis], now: datetime
) -> Iterator[Action]:
    """Closes Incidents of which nothing is left: they are not `live`, and have no quarantined node, no
    quarantine that is being written, and no running recovery or repair. A late watch may lead to two
    Incidents for one fault of a node. The close of the superfluous Incident does not settle the fault, since
    the other Incident continues. Nor does a close settle a fault while no agent reports from the node's
    boot."""
    judged = {world.incidents[name].spec.node for name in live if name in world.incidents}
    judged |= {diagnosis.node for diagnosis in found}
    quarantining = {n.quarantine.incident for n in world.subjects.nodes.values() if n.quarantine is not None}
    recovering = {
        name
        for recovery in world.recoveries.values()
        if recovery.active
        for name in (recovery.spec.incident, *(c.incident for c in recovery.status.causes))
    }
    for name, incident in world.incidents.items():
        if incident.status.phase is IncidentPhase.CLOSED or holds_back(incident) is not None:
            continue
        node = incident.spec.node
        if (
            name not in live
            and name not in quarantining
            and name not in recovering
            and node not in world.being_quarantined
            and (not node or node in world.nodes or world.has_no_node(node))
            and not _needed(world, incident)
            and not _is_unread(world, incident)
            and not _is_set_aside(world, incident, now)
        ):
            known = known_of(world.nodes[node], world.health.get(node)) if node in world.nodes else None
            is_answer = not node or (known is not None and node not in judged)
            yield from close(incident, now, known, unanswered=not is_answer)


def _needed(world: World, incident: Incident) -> bool:
    """Whether the Incident is still needed: by its repair, or by a person who was called to a node that is
    still silent."""
    repair = incident.status.repair
    if repair is None:
        return False
    node = world.nodes.get(incident.spec.node)
    return repair.active or (repair.phase is RepairPhase.HANDED_OVER and node is not None and not node.ready)


def _is_unread(world: World, incident: Incident) -> bool:
    """Whether nobody knows if the evidence of the Incident still counts: the NodeHealth of its node, in the
    same boot, is missing or was created again, and the agent has not reported since. A close would answer
    evidence that the agent is about to report again."""
    spec, node = incident.spec, world.nodes.get(incident.spec.node)
    if node is None or spec.fault is Fault.HOST or spec.boot_id != node.boot_id:
        return False
    is_released = node.released_at is not None and node.released_at >= spec.detected_at
    health = world.health.get(node.name)
    return not is_released and (health is None or not health.status.boot_id)


def _is_set_aside(world: World, incident: Incident, now: datetime) -> bool:
    """Whether the node of the Incident has findings that do not count while somebody works on the node's
    driver. The findings may count again, and a close would answer them."""
    name = incident.spec.node
    return any(set_aside(world.nodes.get(name), world.health.get(name), now))


# --- the writes -------------------------------------------------------------------------------------------


def create(name: str, spec: IncidentSpec, status: IncidentStatus, what: str = "open-incident") -> Create:
    return Create(
        what=what,
        resource=INCIDENTS,
        name=name,
        body=body(INCIDENTS, name, spec=spec),
        status=builtins(status),
    )


def update(incident: Incident, status: IncidentStatus, what: str) -> Iterator[Patch]:
    same = status == incident.status  # in a storm most are equal, and a comparison of structs is cheap
    change = {} if same else merge_diff(builtins(incident.status), builtins(status))
    if change:
        yield Patch(
            what=what,
            resource=INCIDENTS,
            name=incident.metadata.name,
            uid=incident.metadata.uid,
            version=incident.metadata.resource_version,
            subresource="status",
            body={"status": change},
        )


def close(
    incident: Incident, now: datetime, answered: Answered | None = None, *, unanswered: bool = False
) -> Iterator[Action]:
    change: dict[str, object] = {"phase": IncidentPhase.CLOSED, "closedAt": now.isoformat()}
    if unanswered:
        change["unanswered"] = True
    elif answered is not None:
        change["answered"] = builtins(answered)
    yield Patch(
        what="close-incident",
        resource=INCIDENTS,
        name=incident.metadata.name,
        uid=incident.metadata.uid,
        version=incident.metadata.resource_version,
        subresource="status",
        body={"status": change},
    )


def _announce(world: World, diagnosis: Diagnosis) -> Iterator[Emit]:
    node = world.nodes.get(diagnosis.node)
    about = []
    if node is not None:
        about.append(regarding("v1", "Node", node.name, node.uid))
    if diagnosis.fault is not Fault.HOST or diagnosis.gang is not None:
        about += [
            regarding(g.api_version, g.kind, g.name, g.uid, g.namespace)
            for g in (affected.gang.ref for affected in diagnosis.affected[:_TOLD_MAX])
        ]
    for reference in about:
        yield Emit(
            reason=EventReason.FAULT_DETECTED,
            message=f"{diagnosis.summary}. Incident {diagnosis.name}",
            regarding=reference,
            warning=True,
            key=diagnosis.name,
        )
