"""Gives an overview of the whole cluster: what is wrong, what is done, what was refused, and where Rekindle
is blind. Pure.

`overview` gathers the facts as a StatusAnswer, and shows them in tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import CoverageState, NodeHealth, Source
from detectors.wire.fitting import refitted
from detectors.wire.training import Edge
from recover.api import GangRef, Incident, IncidentPhase, Outcome, Recovery
from recover.api.repair_state import RepairPhase
from recover.diagnose.coverage import silence_of
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES
from recover.model import AgentPod, Gang, NamespaceView, Node
from recover.stories.facts import (
    decisions_of,
    incident_record,
    node_record,
    recovery_record,
    repair_record,
    since_of,
    spare_record,
)
from recover.stories.groups import largest
from recover.stories.hold_words import HoldRecord, holds_on_job, holds_on_namespaces, holds_on_nodes
from recover.stories.incident_words import newest_first
from recover.stories.installation import Installed, installation_lines, installation_record
from recover.stories.overview_tables import Table, source_words, state_words, tables, verdict
from recover.stories.records import (
    BlindRecord,
    DecisionRecord,
    NodeRecord,
    SpareRecord,
    StatusAnswer,
)
from recover.stories.words import Command, Line, some
from recover.triage.held_back import refusals
from recover.triage.spare_node import spare_of

__all__ = ["Jobs", "Overview", "StatusFacts", "overview", "recent"]

_RECENT = timedelta(hours=24)


_Key = tuple[str, str, str]


class Jobs(msgspec.Struct, frozen=True):
    """Jobs that the overview needs. `gangs` and `gone` are the jobs of Recoveries. The job of a Recovery that
    is in neither could not be read."""

    gangs: tuple[Gang, ...] = ()
    gone: tuple[GangRef, ...] = ()
    """Jobs that were deleted, or whose kind the cluster does not serve."""
    listed: tuple[Gang, ...] = ()
    """Jobs that were read for their holds. Plain batch Jobs without the label `auto-recovery` are not among
    them."""


class StatusFacts(msgspec.Struct, frozen=True):
    """The objects from which the overview is made."""

    nodes: Mapping[str, Node] = {}
    health: Mapping[str, NodeHealth] = {}
    """NodeHealths by the node's name."""
    incidents: Sequence[Incident] = ()
    recoveries: Sequence[Recovery] = ()
    """Recoveries of `namespace`, if one is given. The overview leaves out ended Recoveries of deleted
    jobs."""
    namespaces: Sequence[NamespaceView] = ()
    """Namespaces that were read for their holds."""
    hidden: Collection[str] = ()
    """Kinds that may not be read, by their plural."""
    agents: Mapping[str, AgentPod] | None = None
    """Pods of agents by node; None if agents are no pods, or cannot be read."""
    installed: Installed | None = None
    """None if nothing of the installation was read."""
    jobs: Jobs = Jobs()
    namespace: str = ""


class Overview(msgspec.Struct, frozen=True):
    answer: StatusAnswer
    """The overview for programs."""
    head: tuple[Line, ...]
    """Lines about the state of Rekindle itself; its problems come first."""
    verdict: Line
    tables: tuple[Table, ...]
    commands: tuple[Command, ...]


def overview(facts: StatusFacts, now: datetime, *, wide: bool = False) -> Overview:
    """Returns what `rekindle status` shows."""
    answer = _answer(facts, now)
    count = answer.accelerator_nodes
    standing = answer.installation
    return Overview(
        answer=answer,
        head=installation_lines(standing, count, now) if standing is not None else (),
        verdict=verdict(answer),
        tables=tables(answer, now, wide=wide),
        commands=tuple(answer.commands),
    )


def _answer(facts: StatusFacts, now: datetime) -> StatusAnswer:
    nodes, hidden, jobs, incidents = facts.nodes, facts.hidden, facts.jobs, facts.incidents
    gangs = {_key(gang.ref): gang for gang in jobs.gangs}
    gone = set(map(_key, jobs.gone))
    still_open = newest_first(i for i in incidents if i.status.phase is IncidentPhase.OPEN)
    known = None if INCIDENTS.plural in hidden else {i.metadata.name for i in incidents}
    shown = recent((r for r in facts.recoveries if r.active or _key(r.spec.gang) not in gone), now)
    repairs = [found for i in still_open if (found := repair_record(i)) is not None]
    can_see_nodes = NODES.plural not in hidden
    blind = list(_blind(facts, now))
    silent = [name for one in blind if one.source is None for name in one.nodes]
    count = sum(node.is_accelerated for node in nodes.values()) if can_see_nodes else None
    sees_health = NODEHEALTHS.plural not in hidden
    return StatusAnswer(
        at=now,
        namespace=facts.namespace,
        hidden=sorted(hidden),
        installation=installation_record(facts.installed, count, silent, now, sees_health=sees_health)
        if facts.installed is not None
        else None,
        accelerator_nodes=count,
        quarantined_nodes=sum(n.quarantine is not None for n in nodes.values()) if can_see_nodes else None,
        nodes=list(_nodes(facts, known, now)),
        recoveries=[recovery_record(r, gangs.get(_key(r.spec.gang))) for r in shown],
        repairs=[one for one in repairs if one.phase is not RepairPhase.RETURNED],
        incidents=[incident_record(incident) for incident in still_open],
        not_done=[one for incident in still_open for one in _not_done(incident)],
        holds=[
            *holds_on_nodes(nodes.values(), now),
            *holds_on_namespaces(facts.namespaces, now),
            *_holds_on_jobs(gangs, jobs.listed, now),
        ],
        spares=list(_spares(facts, now)),
        blind=blind,
        commands=list(_commands(nodes, still_open, shown)),
    )


def _holds_on_jobs(gangs: Mapping[_Key, Gang], listed: Iterable[Gang], now: datetime) -> Iterator[HoldRecord]:
    """Yields the holds on jobs, the jobs of Recoveries first. A job that has completed is left out: its hold
    has no effect."""
    for gang in {**gangs, **{_key(one.ref): one for one in listed}}.values():
        if gang.terminal is None or not gang.terminal.succeeded:
            yield from holds_on_job(gang, {}, now)


def _key(ref: GangRef) -> _Key:
    """Identifies a job by name, not by uid: a job that was submitted again keeps its history."""
    return ref.kind, ref.namespace, ref.name


def recent(recoveries: Iterable[Recovery], now: datetime) -> list[Recovery]:
    """Returns active Recoveries first, then those that ended within a day, newest first."""
    shown = [r for r in recoveries if r.active or now - since_of(r) < _RECENT]
    return sorted(shown, key=lambda r: (not r.active, now - since_of(r)))


def _nodes(facts: StatusFacts, incidents: Collection[str] | None, now: datetime) -> Iterator[NodeRecord]:
    """Yields the nodes that are quarantined, cordoned, not ready, or have an open finding or a signal of
    another controller."""
    nodes, health = facts.nodes, facts.health
    for name in sorted(nodes.keys() | health.keys()):
        found = node_record(name, nodes.get(name), health.get(name), incidents, now, facts.hidden)
        if found.findings or found.signals or (found.states and name in nodes):
            yield found


def _not_done(incident: Incident) -> list[DecisionRecord]:
    """Returns the actions of an Incident that were not taken. An Incident about many nodes counts as one
    refusal for each of them. These refusals have no message: the Incident's summary, which is listed once,
    speaks for all of them."""
    members = [refitted(one, message="") for one in refusals(incident)]
    others = [act for act in incident.status.actions if act.outcome is not Outcome.DONE]
    return decisions_of(incident.metadata.name, [*members, *others])


def _spares(facts: StatusFacts, now: datetime) -> Iterator[SpareRecord]:
    for name, node in sorted(facts.nodes.items()):
        spare = spare_of(node)
        if spare is not None and spare.labelled:
            health = facts.health.get(name)
            found = node_record(name, node, health, None, now, facts.hidden)
            trouble = state_words(found, now) or some(found.findings, 3) or _training_on(health)
            yield spare_record(spare, trouble)


def _training_on(health: NodeHealth | None) -> str:
    """Returns which trainings run on the node, by the node's agent. The overview reads no pods."""
    pods = health.status.pods if health is not None else ()
    running = sorted({f"{pod.namespace}/{pod.name}" for pod in pods if pod.edge is not Edge.ENDED})
    return f"used by {some(running, 2)}" if running else ""


def _blind(facts: StatusFacts, now: datetime) -> Iterator[BlindRecord]:
    """Yields one record for all nodes that are blind for the same reason: usually that is the whole pool.
    Without permission to read NodeHealths it is not known which nodes are blind."""
    if NODEHEALTHS.plural in facts.hidden:
        return
    said: dict[Source | None, list[tuple[str, str]]] = defaultdict(list)
    for name, node in sorted(facts.nodes.items()):
        report = facts.health.get(name)
        if report is None or not report.status.coverage:
            if node.is_accelerated:
                said[None].append(("no agent reports from the node", name))
            continue
        if node.is_accelerated and (silent := silence_of(name, report, facts.agents, now)) is not None:
            said[None].append((silent.kind, name))
            continue
        for coverage in report.status.coverage:
            if coverage.state is CoverageState.BLIND:
                said[coverage.source].append((one_line(coverage.why), name))
    for source, whys in sorted(said.items(), key=lambda one: source_words(one[0])):
        for group in largest(whys):
            yield BlindRecord(source=source, nodes=list(group.names), why=group.why)


def _commands(
    nodes: Mapping[str, Node], incidents: list[Incident], recoveries: list[Recovery]
) -> tuple[Command, ...]:
    commands = [
        Command(
            f"rekindle why {r.spec.gang.namespace}/{r.spec.gang.name}", "to see what happened to that job"
        )
        for r in recoveries[:1]
    ]
    out = next((name for name, node in sorted(nodes.items()) if node.quarantine is not None), "")
    if out:
        commands.append(Command(f"rekindle why node/{out}", "to see why that node is out"))
    if incidents:
        commands.append(
            Command(
                f"kubectl describe incident {incidents[0].metadata.name}",
                "to see the newest Incident as an API object",
            )
        )
    return (*commands, Command("kubectl get rekindle -A", "to list every object of Rekindle"))
