"""The whole cluster at a glance: what is wrong, what is done, what was refused, where we are blind. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import CoverageState, NodeHealth
from recover.api import Act, Incident, IncidentPhase, Outcome, Recovery
from recover.api.reasons import Reason
from recover.diagnose.coverage import silence_of
from recover.diagnose.set_aside import set_aside
from recover.diagnose.signals import doubts
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES
from recover.model import AgentPod, Node
from recover.policy.settings import Budgets
from recover.stories.groups import largest
from recover.stories.incident_words import newest_first
from recover.stories.recovery_words import PHASE_WORDS
from recover.stories.repair_words import repaired
from recover.stories.spare_words import FREE, in_short
from recover.stories.why_node import is_current
from recover.stories.words import FAULTS, SOURCES, Command, Line, Tone, ago, counted, explained, some
from recover.triage.spare_node import spare_of

__all__ = ["Overview", "Table", "overview"]

_RECENT = timedelta(hours=24)


class Table(msgspec.Struct, frozen=True):
    """Rows of plain text. A table without rows is not shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Overview(msgspec.Struct, frozen=True):
    verdict: Line
    tables: tuple[Table, ...]
    commands: tuple[Command, ...]


def overview(
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    incidents: Iterable[Incident],
    recoveries: Iterable[Recovery],
    now: datetime,
    *,
    hidden: Collection[str] = (),
    agents: Mapping[str, AgentPod] | None = None,
) -> Overview:
    """What `rekindle status` shows. Nodes, health and agents are by node name; of hidden kinds (by their
    plural) nothing is known. `agents` is None where they are no pods, or cannot be read."""
    every = list(incidents)
    still_open = newest_first(i for i in every if i.status.phase is IncidentPhase.OPEN)
    known = None if INCIDENTS.plural in hidden else {i.metadata.name for i in every}
    shown = _recent(recoveries, now)
    spares = tuple(_spares(nodes, health, now))
    tables = (
        Table(
            "Nodes",
            ("NODE", "STATE", "FINDINGS", "INCIDENT"),
            tuple(_nodes(nodes, health, known, now, hidden)),
        ),
        Table(
            "Recoveries", ("JOB", "PHASE", "SINCE", "AFTER", "STEPS", "NOW"), tuple(_recoveries(shown, now))
        ),
        Table("Repairs", ("NODE", "PHASE", "SINCE", "REASON", "NOW"), tuple(repaired(still_open, now))),
        Table(
            "Open incidents",
            ("INCIDENT", "FAULT", "BLAME", "SINCE", "WHAT"),
            tuple(_incidents(still_open, now)),
        ),
        Table(
            "Not done, and why",
            ("ACT", "TARGET", "REASON", "SINCE", "MEANING"),
            tuple(_refused(still_open, now)),
        ),
        Table("Spares", ("NODE", "POOL", "STATE"), spares),
        Table("Blind", ("SOURCE", "NODES", "WHY"), tuple(_blind(nodes, health, agents, now, hidden))),
    )
    return Overview(
        verdict=_verdict(nodes, still_open, shown, hidden, [state for _, _, state in spares]),
        tables=tuple(table for table in tables if table.rows),
        commands=_commands(nodes, still_open, shown),
    )


def _recent(recoveries: Iterable[Recovery], now: datetime) -> list[Recovery]:
    """Active ones first, then those that ended within a day, newest first."""
    shown = [r for r in recoveries if r.active or now - _since(r) < _RECENT]
    return sorted(shown, key=lambda r: (not r.active, now - _since(r)))


def _since(recovery: Recovery) -> datetime:
    phases = recovery.status.phases
    return phases[-1].at if phases else recovery.spec.detected_at


def _verdict(
    nodes: Mapping[str, Node],
    incidents: list[Incident],
    recoveries: list[Recovery],
    hidden: Collection[str],
    spares: list[str],
) -> Line:
    out = sum(1 for node in nodes.values() if node.quarantine is not None)
    active = sum(1 for r in recoveries if r.active)
    accelerated = counted(sum(1 for node in nodes.values() if node.is_accelerated), "accelerator node")
    told = {
        "nodes": f"{accelerated}, {out} quarantined",
        "recoveries": counted(active, "active recovery", "active recoveries"),
        "incidents": counted(len(incidents), "open incident"),
    }
    parts = [f"{kind} unknown" if kind in hidden else words for kind, words in told.items()]
    if spares:
        parts.append(f"{spares.count(FREE)} of {counted(len(spares), 'spare')} free")
    is_calm = not (out or active or incidents or hidden)
    return Line(", ".join(parts), Tone.GOOD if is_calm else Tone.WAITING)


def _nodes(
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    incidents: Collection[str] | None,
    now: datetime,
    hidden: Collection[str],
) -> Iterable[tuple[str, ...]]:
    """Those that are quarantined, not ready, or have an open finding. Which incidents there are may not be
    known."""
    for name in sorted(nodes.keys() | health.keys()):
        node, report = nodes.get(name), health.get(name)
        codes = [*_codes(report), *_signals(node, now)]
        state = "not shown" if node is None and NODES.plural in hidden else _state(node, now)
        if codes or (state and node is not None):
            incident = node.quarantine.incident if node is not None and node.quarantine is not None else ""
            if incident and incidents is not None and incident not in incidents:
                incident = f"{incident} (missing: the controller creates it again)"
            aside = next((work.what for _, work in set_aside(node, report, now)), "")
            under = f", {aside} under way" if aside else ""
            yield name, (state or "in service") + under, some(codes, 3), incident


def _codes(report: NodeHealth | None) -> list[str]:
    """Of the findings that are open, each once."""
    if report is None:
        return []
    return list(dict.fromkeys(f.code for f in report.status.findings if is_current(f, report)))


def _signals(node: Node | None, now: datetime) -> list[str]:
    """What others say of it, more than a note."""
    told = doubts(node, now) if node is not None else []
    return list(dict.fromkeys(one_line(f"{signal.name} ({signal.by})") for signal in told))


def _state(node: Node | None, now: datetime) -> str:
    if node is None:
        return "no Node object"
    words = []
    if node.quarantine is not None:
        words.append(f"quarantined {ago(node.quarantine.at, now)}")
    elif node.unschedulable:
        words.append("cordoned, not by Rekindle")
    if not node.ready:
        words.append("NotReady")
    return ", ".join(words)


def _spares(
    nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], now: datetime
) -> Iterable[tuple[str, str, str]]:
    """With the pool, by the label of the shipped settings."""
    for name, node in sorted(nodes.items()):
        spare = spare_of(node)
        if spare is not None and spare.labelled:
            trouble = _state(node, now) or some(_codes(health.get(name)), 3)
            yield name, node.labels.get(Budgets().pool_label, ""), in_short(spare, trouble, now)


def _recoveries(recoveries: Iterable[Recovery], now: datetime) -> Iterable[tuple[str, ...]]:
    for recovery in recoveries:
        spec, status = recovery.spec, recovery.status
        phase = f"{status.phase}" + (f" (attempt {status.attempt})" if status.attempt > 1 else "")
        nodes = [cause.node for cause in status.causes if cause.node]
        after = FAULTS[spec.fault] + (f" on {some(dict.fromkeys(nodes), 2)}" if nodes else "")
        steps = f"from {status.resumed_step}" if status.resumed_step is not None else ""
        if status.lost_steps is not None:
            steps = f"{steps}, {status.lost_steps} lost".removeprefix(", ")
        said = one_line(status.message) or PHASE_WORDS[status.phase][0]
        yield f"{spec.gang.namespace}/{spec.gang.name}", phase, ago(_since(recovery), now), after, steps, said


def _incidents(incidents: Iterable[Incident], now: datetime) -> Iterable[tuple[str, ...]]:
    for incident in incidents:
        spec, status = incident.spec, incident.status
        blame = status.blamed_node or status.blame.value
        yield incident.metadata.name, incident.fault.value, blame, ago(spec.detected_at, now), status.summary


def _refused(incidents: Iterable[Incident], now: datetime) -> Iterable[tuple[str, ...]]:
    for incident in incidents:
        if incident.status.members:  # of a mass fault they stand for one refusal each
            who, since = some(incident.status.members, 4), ago(incident.spec.detected_at, now)
            brake = Reason.FLEET_BRAKE
            yield Act.QUARANTINE_NODE, who, brake, since, explained(brake)
        for act in incident.status.actions:
            if act.outcome is not Outcome.DONE:
                meaning = explained(act.reason) or act.message
                yield act.action, act.target, act.reason, ago(act.at, now), meaning


def _blind(
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    agents: Mapping[str, AgentPod] | None,
    now: datetime,
    hidden: Collection[str],
) -> Iterable[tuple[str, ...]]:
    """One row for all nodes that are blind in the same way: usually it is the whole pool. Who may not read
    NodeHealths does not know which are."""
    if NODEHEALTHS.plural in hidden:
        return
    said: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, node in sorted(nodes.items()):
        report = health.get(name)
        if report is None or not report.status.coverage:
            if node.is_accelerated:
                said["everything"].append(("no agent reports for it", name))
            continue
        if node.is_accelerated and (silent := silence_of(name, report, agents, now)) is not None:
            said["everything"].append((silent.kind, name))
            continue
        for coverage in report.status.coverage:
            if coverage.state is CoverageState.BLIND:
                said[SOURCES[coverage.source]].append((one_line(coverage.why), name))
    for source, whys in sorted(said.items()):
        for group in largest(whys):
            yield source, f"{len(group.names)}: {group.who}", group.why


def _commands(
    nodes: Mapping[str, Node], incidents: list[Incident], recoveries: list[Recovery]
) -> tuple[Command, ...]:
    commands = [
        Command(f"rekindle why {r.spec.gang.namespace}/{r.spec.gang.name}", "what happened to that job")
        for r in recoveries[:1]
    ]
    out = next((name for name, node in sorted(nodes.items()) if node.quarantine is not None), "")
    if out:
        commands.append(Command(f"rekindle why node/{out}", "why that node is out"))
    if incidents:
        commands.append(
            Command(
                f"kubectl describe incident {incidents[0].metadata.name}", "the newest incident as stored"
            )
        )
    return (*commands, Command("kubectl get rekindle -A", "every object that Rekindle keeps"))
