"""Turns API objects into the typed records of records.py: one function for each. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import Finding, NodeHealth, Severity
from recover.api import ActionRecord, GangRef, Incident, Recovery
from recover.diagnose.set_aside import set_aside
from recover.diagnose.signals import doubts
from recover.k8s.kinds import NODES
from recover.model import Gang, Node
from recover.policy.settings import Budgets
from recover.stories.records import (
    DecisionRecord,
    IncidentRecord,
    JobRecord,
    NodeRecord,
    NodeState,
    RecoveryDetail,
    RecoveryRecord,
    RepairRecord,
    SignalRecord,
    SpareRecord,
    SpareState,
)
from recover.triage.spare_node import Spare

__all__ = [
    "decisions_of",
    "error_of",
    "incident_record",
    "is_current",
    "job_record",
    "node_record",
    "open_codes",
    "recovery_detail",
    "recovery_record",
    "repair_record",
    "since_of",
    "spare_record",
]


def job_record(ref: GangRef) -> JobRecord:
    return JobRecord(api_version=ref.api_version, kind=ref.kind, namespace=ref.namespace, name=ref.name)


def incident_record(incident: Incident) -> IncidentRecord:
    spec, status = incident.spec, incident.status
    return IncidentRecord(
        name=incident.metadata.name,
        phase=status.phase,
        fault=incident.fault,
        node=spec.node,
        job=job_record(spec.gang) if spec.gang is not None else None,
        blame=status.blame,
        blamed_node=status.blamed_node,
        detected_at=spec.detected_at,
        closed_at=status.closed_at,
        summary=one_line(status.summary),
    )


def decisions_of(name: str, actions: Iterable[ActionRecord]) -> list[DecisionRecord]:
    """Returns one record for each action of the Incident of that name."""
    return [
        DecisionRecord(
            incident=name,
            action=act.action,
            target=act.target,
            outcome=act.outcome,
            reason=act.reason,
            at=act.at,
            message=one_line(act.message),
        )
        for act in actions
    ]


def recovery_record(recovery: Recovery, gang: Gang | None = None) -> RecoveryRecord:
    """Returns the record of a Recovery. `gang` is its job, if the job could be read."""
    spec, status = recovery.spec, recovery.status
    return RecoveryRecord(
        name=recovery.metadata.name,
        job=job_record(spec.gang),
        number=spec.number,
        active=recovery.active,
        phase=status.phase,
        attempt=status.attempt,
        reason=status.reason,
        message=one_line(status.message),
        detected_at=spec.detected_at,
        since=since_of(recovery),
        fault=spec.fault,
        error=error_of(recovery),
        nodes=list(dict.fromkeys(cause.node for cause in status.causes if cause.node)),
        resumed_step=status.resumed_step,
        lost_steps=status.lost_steps,
        lost_gpu_s=status.lost_gpu_s,
        job_completed=gang.terminal is not None and gang.terminal.succeeded if gang is not None else None,
    )


def recovery_detail(recovery: Recovery, gang: Gang | None = None) -> RecoveryDetail:
    status = recovery.status
    return RecoveryDetail(
        **msgspec.structs.asdict(recovery_record(recovery, gang)),
        phases=status.phases,
        causes=status.causes,
        checkpoint=status.checkpoint,
        last_step=status.last_step,
        avoid_nodes=status.avoid_nodes,
        suspects=status.suspects,
    )


def error_of(recovery: Recovery) -> str:
    """Returns the code with which the job itself failed at the fault that began this Recovery; empty for a
    fault of a node."""
    causes = recovery.status.causes or recovery.spec.causes
    return next((one.error for one in causes if one.fault is recovery.spec.fault), "")


def since_of(recovery: Recovery) -> datetime:
    """Returns the time at which the present phase began."""
    phases = recovery.status.phases
    return phases[-1].at if phases else recovery.spec.detected_at


def repair_record(incident: Incident) -> RepairRecord | None:
    """Returns the record of the Incident's repair; None if there is no repair."""
    repair = incident.status.repair
    if repair is None:
        return None
    return RepairRecord(
        node=incident.spec.node,
        incident=incident.metadata.name,
        phase=repair.phase,
        since=repair.phases[-1].at if repair.phases else incident.spec.detected_at,
        reason=repair.reason,
        message=one_line(repair.message),
    )


def node_record(
    name: str,
    node: Node | None,
    report: NodeHealth | None,
    incidents: Collection[str] | None,
    now: datetime,
    hidden: Collection[str],
) -> NodeRecord:
    """Returns the record of a node. `incidents` are the names of the Incidents that exist; None if they may
    not be read."""
    quarantine = node.quarantine if node is not None else None
    incident = quarantine.incident if quarantine is not None else ""
    told = doubts(node, now) if node is not None else []
    signals = dict.fromkeys((one_line(signal.name), one_line(signal.by)) for signal in told)
    return NodeRecord(
        name=name,
        accelerated=node.is_accelerated if node is not None else None,
        states=_states(node, hidden),
        quarantined_at=quarantine.at if quarantine is not None else None,
        not_ready_since=node.ready_since if node is not None and not node.ready else None,
        incident=incident,
        incident_missing=bool(incident) and incidents is not None and incident not in incidents,
        findings=open_codes(report),
        signals=[SignalRecord(name=signal, by=by) for signal, by in signals],
        driver_work=next((work.what for _, work in set_aside(node, report, now)), ""),
    )


def _states(node: Node | None, hidden: Collection[str]) -> list[NodeState]:
    if node is None:
        return [NodeState.NOT_SHOWN if NODES.plural in hidden else NodeState.GONE]
    states = []
    if node.quarantine is not None:
        states.append(NodeState.QUARANTINED)
    elif node.unschedulable:
        states.append(NodeState.CORDONED)
    if not node.ready:
        states.append(NodeState.NOT_READY)
    return states


def open_codes(report: NodeHealth | None) -> list[str]:
    """Returns the codes of the open findings, each once."""
    if report is None:
        return []
    return list(dict.fromkeys(f.code for f in report.status.findings if is_current(f, report)))


def is_current(finding: Finding, health: NodeHealth) -> bool:
    """Whether the finding is open, of this boot, and more than a note."""
    return (
        finding.cleared_at is None
        and finding.severity is not Severity.INFO
        and finding.boot_id == health.status.boot_id
    )


def spare_record(spare: Spare, trouble: str) -> SpareRecord:
    """Returns the record of a spare. The pool comes from the label in the default settings. `trouble` says
    why the spare cannot replace a node now."""
    if spare.lent:
        state = SpareState.LENT
    elif spare.taken:
        state = SpareState.TAKEN
    elif not spare.in_reserve:
        state = SpareState.NOT_KEPT
    else:
        state = SpareState.UNUSABLE if trouble else SpareState.FREE
    return SpareRecord(
        node=spare.name,
        pool=spare.node.labels.get(Budgets().pool_label, ""),
        state=state,
        since=spare.kept.at if spare.lent and spare.kept is not None else None,
        instead_of=spare.instead_of if spare.lent else "",
        incident=spare.incident if spare.lent else "",
        trouble=trouble if state is SpareState.UNUSABLE else "",
    )
