"""Diagnoses node faults: from the findings of the agents, from signals of other controllers on nodes
(signals.py), and from nodes that are not ready. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Fault, Finding, NodeHealth, Origin, Remedy, Severity
from detectors.wire.fitting import fitted, limit
from detectors.wire.open_findings import is_open
from recover.api import Blame, Evidence, Incident, IncidentPhase, IncidentStatus, Suspect
from recover.api.reasons import Reason
from recover.diagnose.answered import Answer, answers, as_news, latest_of, went_on_after
from recover.diagnose.awaited import Awaited, Awaiting
from recover.diagnose.caught import about_node, each
from recover.diagnose.diagnosis import AffectedGang, Diagnosis, incident_name
from recover.diagnose.due import affected_gang, due_at, first_of_the_worst, is_hardware, may_wait
from recover.diagnose.goes_on import shown_at
from recover.diagnose.holders import affecting, holders_on
from recover.diagnose.ranks import is_down
from recover.diagnose.released import answer_of_person, is_released
from recover.diagnose.set_aside import has_findings
from recover.diagnose.starts import ranks
from recover.diagnose.what_counts import incidents_by_node, open_findings, strength
from recover.model import Gang, Node, Pod, World
from recover.model.actions import Failure
from recover.policy.settings import Timing

__all__ = ["EVIDENCE_MAX", "comes_due", "node_faults", "not_ready"]

EVIDENCE_MAX = limit(IncidentStatus, "evidence")
"""Number of entries of evidence in an Incident."""


def node_faults(
    world: World, reports: Mapping[str, NodeHealth], dead: frozenset[str], timing: Timing, now: datetime
) -> tuple[list[Diagnosis], list[Failure]]:
    """Returns one diagnosis for each node with findings that may lead to actions, from the `reports` of
    agents by node name. `dead` has the uids of gangs that no longer train: they failed by themselves, or
    Rekindle stopped them."""
    by_node = incidents_by_node(world)
    inputs = _Inputs(world, dead, timing, now)
    with_findings = [
        (node, health)
        for name, health in reports.items()
        if (node := world.nodes.get(name)) is not None and has_findings(node, health)
    ]
    found, failures = each(
        with_findings,
        lambda one: about_node(one[0]),
        lambda one: _of_node(inputs, *one, by_node.get(one[0].name, [])),
    )
    return [diagnosis for diagnosis in found if diagnosis is not None], failures


class _Inputs:
    """The data by which the faults of all nodes are judged, and results that are needed for many of them."""

    def __init__(self, world: World, dead: frozenset[str], timing: Timing, now: datetime) -> None:
        self.world = world
        self.dead = dead
        self.timing = timing
        self.now = now
        self.saves = Awaiting(world)
        self._stopped_on: dict[str, list[Gang]] | None = None
        self._ranks: dict[str, dict[str, list[Pod]]] = {}

    def stopped_on(self, node: str) -> list[Gang]:
        """Returns the gangs whose ranks ran on the node, and which a recovery has stopped or is about to
        stop."""
        if self._stopped_on is None:
            self._stopped_on = _stopped_by_node(self.world)
        return self._stopped_on.get(node, [])

    def ranks_at(self, gang: Gang, node: str) -> list[Pod]:
        """Returns the gang's ranks on the node, including those that have been deleted. A large gang may be
        on hundreds of nodes that fail at once."""
        by_node = self._ranks.get(gang.ref.uid)
        if by_node is None:
            by_node = self._ranks[gang.ref.uid] = {}
            for rank in ranks(self.world, gang):
                by_node.setdefault(rank.node, []).append(rank)
        return by_node.get(node, [])


def _stopped_by_node(world: World) -> dict[str, list[Gang]]:
    found: dict[str, list[Gang]] = {}
    for recovery in world.recoveries.values():
        gang = world.gangs.get(recovery.gang_uid)
        if gang is not None and is_down(recovery, gang):
            for name in dict.fromkeys(recovery.nodes):
                found.setdefault(name, []).append(gang)
    return found


def _of_node(inputs: _Inputs, node: Node, health: NodeHealth, incidents: list[Incident]) -> Diagnosis | None:
    given = filters = answers(node, incidents)
    if is_released(node):
        # A person has ended the quarantine, and Rekindle has not recorded when: this answer has the time of
        # the reconcile. It only filters. If it dated findings, they would be younger at each reconcile.
        filters = (*given, answer_of_person(inputs.world, node, inputs.now).answer)
    findings = [_classed(f) for f in open_findings(node, health, filters, inputs.now)]
    return _diagnosis(inputs, node, findings, incidents, given) if findings else None


def _classed(finding: Finding) -> Finding:
    """Gives a finding of the class `host` the class `unknown`. The class `host` is for nodes that Kubernetes
    reports as not ready, and its Incident ends when the node is ready. If an agent reports this class, for
    example by a row that people have added to the catalogue, the real class is not known."""
    if finding.fault is not Fault.HOST:
        return finding
    return msgspec.structs.replace(finding, fault=Fault.UNKNOWN)


def comes_due(reports: Iterable[NodeHealth], now: datetime) -> Iterator[datetime]:
    """Yields a time for each finding that is dated into the future, because its node's clock is ahead of
    ours: the time at which the finding becomes current. Until then the end of a quarantine, or the close of
    an Incident, may hide it."""
    for health in reports:
        for finding in health.status.findings:
            if finding.last_seen > now and is_open(finding):
                yield finding.first_seen if finding.first_seen > now else finding.last_seen


def _diagnosis(
    inputs: _Inputs,
    node: Node,
    findings: list[Finding],
    incidents: list[Incident],
    given: Collection[Answer],
) -> Diagnosis:
    now = inputs.now
    open_one = next((i for i in incidents if _is_the_nodes_own(i, node)), None)
    known_since = open_one.metadata.creation_timestamp if open_one else None
    known = latest_of(findings)
    went_on = {f.id: again for f in findings if (again := went_on_after(f, given, now)) is not None}
    findings = [_not_later(as_news(f, given, now), now, known_since or now) for f in findings]
    findings.sort(key=lambda f: (f.first_seen, f.sequence, f.id))
    first = first_of_the_worst(findings)
    after = went_on.get(first.id)
    is_final = any(f.final and strength(f) == strength(first) for f in findings)
    settles_at = None if is_final else _settles_at(findings, inputs.timing)
    settled = settles_at is None or now >= settles_at
    hardware = is_hardware(first)
    name = open_one.metadata.name if open_one else _name(node, first, incidents, after)
    return Diagnosis(
        name=name,
        fault=first.fault,
        severity=first.severity,
        detected_at=open_one.spec.detected_at if open_one else first.first_seen,
        seen_at=max(shown_at(f) for f in findings if strength(f) == strength(first)),
        summary=_summary(node, first, findings, after),
        blame=Blame.NODE if hardware else Blame.UNKNOWN,
        settled=settled,
        settles_at=settles_at,
        node=node.name,
        boot_id=first.boot_id,
        finding=first.id,
        struck_at=first.first_seen,
        evidence=tuple(_evidence(node, f) for f in _shown(findings)),
        known=known,
        suspects=(fitted(Suspect, node=node.name, score=1.0 if hardware else 0.5, why=first.code),),
        affected=tuple(
            affected_gang(gang, its, due, awaited, now, is_dead=is_dead)
            for gang, is_dead, its in _victims(inputs, node, findings)
            for awaited in [inputs.saves.of(gang, name) if may_wait(its) else Awaited.UNTOLD]
            for due in [
                due_at(
                    inputs.world, node, gang, its, awaited, known_since or now, settles_at, inputs.timing, now
                )
            ]
        ),
        drain=any(f.remedy is Remedy.DRAIN_AND_RESET for f in findings),
    )


def _not_later(finding: Finding, now: datetime, known_since: datetime) -> Finding:
    """Limits the finding's times to the present. A node's clock may run ahead: a finding that is dated into
    the future counts from the time at which Rekindle first knew of it."""
    if finding.first_seen <= now and finding.last_seen <= now:
        return finding
    first, last = (known_since if at > now else at for at in (finding.first_seen, finding.last_seen))
    return msgspec.structs.replace(finding, first_seen=first, last_seen=last)


def _is_the_nodes_own(incident: Incident, node: Node) -> bool:
    """Whether the Incident is the node's open Incident. A node has one open Incident at a time, and later
    findings join it. The Incident of a quarantine that has ended is about to close, and nothing joins it.
    Neither does anything join an Incident whose repair ended because the Node was deleted: the node that has
    joined again needs a repair of its own."""
    note = node.quarantine
    ended = note.incident if note is not None and is_released(node) else node.released_from
    repair = incident.status.repair
    is_gone = repair is not None and repair.reason == Reason.NODE_GONE
    is_open = incident.status.phase is IncidentPhase.OPEN and incident.spec.fault is not Fault.HOST
    return is_open and not is_gone and incident.metadata.name != ended


def _name(node: Node, first: Finding, incidents: list[Incident], after: datetime | None) -> str:
    """Returns the name of the Incident. If the node is in quarantine for an Incident that somebody has
    deleted, the name is the name of that Incident. A fault that continued `after` its Incident was answered
    gets a different name, and so does a fault whose Incident is closed."""
    note = node.quarantine
    known = {incident.metadata.name for incident in incidents}
    if note is not None and note.incident not in known and note.fault != Fault.HOST:
        return note.incident
    again = () if after is None else (after.isoformat(),)
    name = incident_name(node.name, first.fault, first.boot_id, first.id, *again)
    if name not in known:
        return name
    closed = max((i.status.closed_at for i in incidents if i.status.closed_at is not None), default=None)
    return incident_name(node.name, first.fault, first.boot_id, first.id, str(closed))


def _settles_at(findings: list[Finding], timing: Timing) -> datetime:
    last = max(f.last_seen for f in findings)
    first = min(f.first_seen for f in findings)
    return min(last + timedelta(seconds=timing.settle_s), first + timedelta(seconds=timing.settle_max_s))


def _shown(findings: list[Finding]) -> list[Finding]:
    """Returns the findings that an Incident keeps: the strongest findings, in the order of their time."""
    kept = sorted(findings, key=strength, reverse=True)[:EVIDENCE_MAX]
    return [finding for finding in findings if finding in kept]


def _victims(
    inputs: _Inputs, node: Node, findings: list[Finding]
) -> Iterator[tuple[Gang, bool, list[Finding]]]:
    """Yields the gangs with ranks on the node, whether each no longer trains, and the findings that affect
    it. If a recovery is stopping or has stopped a gang whose ranks ran on the node, and has not started it
    again, all findings of the node affect the gang: the start then avoids the node."""
    holders = holders_on(inputs.world.health[node.name])
    there = _gangs_there(inputs, node)
    for gang in there:
        is_dead = gang.ref.uid in inputs.dead
        its = affecting(inputs.ranks_at(gang, node.name), findings, holders, inputs.timing, is_dead=is_dead)
        if its:
            yield gang, is_dead, its
    for stopped in inputs.stopped_on(node.name):
        if stopped not in there:
            yield stopped, True, findings


def _gangs_there(inputs: _Inputs, node: Node) -> list[Gang]:
    """Returns the gangs with a living pod on the node. For a dead gang, ended pods count as well, because its
    rank on this node may have been the first to end."""
    world = inputs.world
    gangs = {gang.ref.uid: gang for gang in world.gangs_living_on(node.name)}
    for uid in world.gangs_on.get(node.name, frozenset()) & inputs.dead:
        if inputs.ranks_at(world.gangs[uid], node.name):
            gangs[uid] = world.gangs[uid]
    return sorted(gangs.values(), key=lambda gang: str(gang.ref))


def _evidence(node: Node, finding: Finding) -> Evidence:
    followed = f", then {', '.join(finding.chain)}" if finding.chain else ""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    return fitted(
        Evidence,
        at=finding.first_seen,
        origin=finding.origin,
        code=finding.code,
        node=node.name,
        text=f"{finding.evidence[:180]}{times}{followed}",
    )


def _summary(node: Node, first: Finding, findings: list[Finding], after: datetime | None) -> str:
    device = first.subject.device or first.subject.pci
    where = f"{node.name}, device {device}" if device else node.name
    if first.confined:
        where += f", GPU instance {first.subject.gpu_instance}"
    others = len(findings) - 1
    more = f", and {others} more {'finding' if others == 1 else 'findings'}" if others else ""
    again = (
        f". The previous Incident of this fault was closed at {after:%H:%M:%S} UTC, but the fault continues"
        if after is not None
        else ""
    )
    return f"{first.code} on {where}: {first.fault}{more}{again}"


def not_ready(
    world: World, nodes: Iterable[Node], dead: frozenset[str], now: datetime
) -> Iterator[Diagnosis]:
    """Yields a diagnosis for each node that no longer reports to Kubernetes, while a gang has ranks there.

    Kubernetes itself keeps new pods off such a node. Rekindle does not stop a gang that still trains, because
    only the node's kubelet or the network between the node and the API server may be gone.
    """
    for node in nodes:
        at = node.ready_since
        if node.ready or at is None or not world.gangs_on.get(node.name):
            continue
        victims = ((gang, gang.ref.uid in dead) for gang in world.gangs_living_on(node.name))
        affected = tuple(
            AffectedGang(gang=gang, due=now if is_dead else None, dead=is_dead) for gang, is_dead in victims
        )
        if not affected:
            continue
        yield Diagnosis(
            name=incident_name(node.name, Fault.HOST, node.uid, at.isoformat()),
            fault=Fault.HOST,
            severity=Severity.FATAL,
            detected_at=at,
            seen_at=at,
            summary=f"{node.name} is NotReady: its kubelet does not report to Kubernetes",
            blame=Blame.NODE,
            settled=True,
            node=node.name,
            boot_id=node.boot_id,
            evidence=(fitted(Evidence, at=at, origin=Origin.KUBELET, code="node-not-ready", node=node.name),),
            suspects=(fitted(Suspect, node=node.name, score=0.8, why="not ready"),),
            affected=affected,
        )
