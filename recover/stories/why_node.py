"""Explains why a node is in its present state: its findings, the sources of its agent, and what was decided
about it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import Coverage, CoverageState, Finding, NodeHealth, Severity, SubjectKind
from detectors.wire.training import Edge, PodProgress
from recover.api import ActionRecord, Incident, IncidentPhase, Outcome
from recover.diagnose.answered import answers
from recover.diagnose.coverage import FAMILIES, silence_of
from recover.diagnose.failing_starts import is_of_starts
from recover.diagnose.set_aside import set_aside
from recover.diagnose.what_counts import is_proof, open_findings
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES
from recover.model import AgentPod, Node, NodeSignal
from recover.policy.commands import cordon, hold_node, release_node, why
from recover.policy.consent import held
from recover.policy.driver_work import DriverWork
from recover.stories.annotations import misread_on_node
from recover.stories.around import Around
from recover.stories.facts import decisions_of, incident_record, is_current, node_record
from recover.stories.hold_words import HoldRecord, hold_lines, holds_on_nodes
from recover.stories.incident_words import TOLD_MAX, blame, decided, newest_first, seen
from recover.stories.installation import pause_record, paused
from recover.stories.node_steps import repair_steps, steps_for_node
from recover.stories.records import WhyNodeAnswer
from recover.stories.repair_words import repairs
from recover.stories.signal_words import device_signals, signals
from recover.stories.spare_words import as_a_spare
from recover.stories.words import (
    FAULTS,
    ORIGINS,
    SOURCES,
    Command,
    Line,
    Section,
    Story,
    Tone,
    ago,
    counted,
    duration,
    named,
    some,
)
from recover.triage.held_back import refusal_of
from recover.triage.quarantine import undone_by

__all__ = ["node_answer", "why_node", "work_words"]


def why_node(
    name: str,
    node: Node | None,
    health: NodeHealth | None,
    incidents: Iterable[Incident],
    now: datetime,
    around: Around = Around(),  # noqa: B008 - frozen
    *,
    wide: bool = False,
) -> Story:
    """Returns the story of one node. `node` or `health` is None if there is no such object, or if the reader
    may not read the kind. `wide` tells all Incidents in full."""
    about, decisions = _about(name, incidents)
    around = _with_no_other(name, node, around)
    hidden = around.hidden
    misread = misread_on_node(node) if node is not None else ()
    sections = [
        Section("Paused", paused(around.pause)),
        Section("Held", hold_lines(_holds(node, now))),
        Section(
            "Settings on the node that Rekindle cannot use",
            tuple(Line(one_line(text), Tone.BAD) for text in misread),
        ),
        Section("Findings of the agent", _findings(node, health, now, hidden)),
        Section("Signals of other controllers", (*signals(node, now), *device_signals(around.pods, now))),
        Section("Sources of the agent", _coverage(name, health, around.agents, now)),
        Section("Trainings on the node", _training(health, now)),
        Section("As a spare", as_a_spare(node, now)),
        Section("Incidents", seen(about, now, len(about) if wide else TOLD_MAX)),
        Section("Culprit", blame(about)),
        Section("Decisions", decided(decisions, now)),
        Section("Repair", repairs(about, now)),
        Section("Next steps", _next_steps(name, about, now, around)),
    ]
    return Story(
        subject=f"Node {name}",
        verdict=named(
            f"Node {name}", _node_verdict(node, health, now, _missing(node, about, hidden), hidden)
        ),
        sections=tuple(section for section in sections if section.lines),
        commands=_node_commands(name, node, health, about, now),
    )


def node_answer(
    name: str,
    node: Node | None,
    health: NodeHealth | None,
    incidents: Iterable[Incident],
    now: datetime,
    around: Around = Around(),  # noqa: B008 - frozen
) -> WhyNodeAnswer:
    """Returns the story for programs."""
    around = _with_no_other(name, node, around)
    hidden = around.hidden
    every = list(incidents)
    known = None if INCIDENTS.plural in hidden else {i.metadata.name for i in every}
    about, _ = _about(name, every)
    status = health.status if health is not None else None
    return WhyNodeAnswer(
        at=now,
        hidden=sorted(hidden),
        node=node_record(name, node, health, known, now, hidden),
        pause=pause_record(around.pause, now),
        holds=_holds(node, now),
        headline=named(
            f"Node {name}", _node_verdict(node, health, now, _missing(node, about, hidden), hidden)
        ).text,
        findings=status.findings if status is not None else [],
        coverage=status.coverage if status is not None else [],
        pods=status.pods if status is not None else [],
        incidents=[incident_record(incident) for incident in about],
        decisions=[
            one for i in about for one in decisions_of(i.metadata.name, (*i.status.actions, *_kept(name, i)))
        ],
        next_steps=[line.text for line in _next_steps(name, about, now, around)],
        commands=list(_node_commands(name, node, health, about, now)),
    )


def _with_no_other(name: str, node: Node | None, around: Around) -> Around:
    """Returns the objects around the node without all other nodes. The next steps are then those for this
    node."""
    return msgspec.structs.replace(around, nodes={name: node} if node is not None else {})


def _holds(node: Node | None, now: datetime) -> list[HoldRecord]:
    return holds_on_nodes([node] if node is not None else [], now)


def _about(name: str, incidents: Iterable[Incident]) -> tuple[list[Incident], list[ActionRecord]]:
    """Returns the Incidents of the node, newest first, and the decisions of those that are told in full."""
    about = newest_first(
        i
        for i in incidents
        if name in (i.spec.node, i.status.blamed_node, *i.status.members)
        or (is_of_starts(i) and name in {suspect.node for suspect in i.status.suspects})
    )
    decisions = [a for i in about[:TOLD_MAX] for a in i.status.actions]
    return about, decisions + [a for i in about[:TOLD_MAX] for a in _kept(name, i)]


def _kept(name: str, incident: Incident) -> tuple[ActionRecord, ...]:
    return (refusal_of(incident, name),) if name in incident.status.members else ()


def _next_steps(name: str, about: Sequence[Incident], now: datetime, around: Around) -> tuple[Line, ...]:
    """Returns each step once. A closed Incident leaves nothing to do, except for what a repair waits for."""
    if name not in around.nodes and NODES.plural not in around.hidden:
        return ()
    steps: list[str] = []
    for incident in about[:TOLD_MAX]:
        is_open = incident.status.phase is IncidentPhase.OPEN and not incident.status.superseded_by
        for action in incident.status.actions if is_open else ():
            if action.outcome is Outcome.DONE:
                continue
            if action.target == name:
                steps += steps_for_node(action, incident, around, now)
            steps += [
                f"To see what {victim} needs: `{why(victim)}`."
                for victim in incident.status.victims
                if action.target == str(victim)
            ]
        steps += repair_steps(incident, around, now)
        if is_open and name in incident.status.members:
            steps += steps_for_node(refusal_of(incident, name), incident, around, now)
    return tuple(Line(one_line(step)) for step in dict.fromkeys(steps))


def _names(signals: Iterable[NodeSignal]) -> str:
    return some(dict.fromkeys(one_line(signal.name) for signal in signals))


def work_words(work: DriverWork) -> str:
    return f"{work.what} is in progress there, or has just ended (label {work.label}={work.state})"


def _missing(node: Node | None, about: Iterable[Incident], hidden: Collection[str]) -> str:
    """Returns a sentence if somebody has deleted the Incident for which the node is in quarantine, and no
    controller has created it again yet; otherwise an empty text."""
    if node is None or node.quarantine is None or INCIDENTS.plural in hidden:
        return ""
    if any(incident.metadata.name == node.quarantine.incident for incident in about):
        return ""
    return (
        " That Incident does not exist. The controller creates the Incident again, and the node stays "
        "in quarantine."
    )


def _node_verdict(
    node: Node | None, health: NodeHealth | None, now: datetime, missing: str, hidden: Collection[str]
) -> Line:
    if node is not None and node.quarantine is not None:
        q = node.quarantine
        how = "cordoned and tainted" if q.cordoned else "tainted"
        said = f"Rekindle put the node into quarantine {ago(q.at, now)} for {q.fault} ({how}; {q.incident})."
        return Line(said + missing, Tone.BAD)
    if node is None and NODES.plural in hidden:
        return Line(
            "You have no permission to read nodes. The rest of this answer comes from other objects.",
            Tone.WAITING,
        )
    if node is None:
        return Line(
            "The Node no longer exists. The rest of this answer comes from other objects.", Tone.WAITING
        )
    if not node.ready:
        silent = f"became NotReady {ago(node.ready_since, now)}" if node.ready_since else "is NotReady"
        return Line(f"The node {silent}: its kubelet does not report to Kubernetes.", Tone.BAD)
    current = [f for f in health.status.findings if is_current(f, health)] if health is not None else []
    aside = list(set_aside(node, health, now))
    left_out = {finding.id for finding, _ in aside}
    codes = some(dict.fromkeys(f.code for f in current if f.id not in left_out))
    past = answers(node)
    if codes and past and all(past[-1].covers(f, now) for f in current if f.id not in left_out):
        return Line(
            "A person (by kubectl or rekindle) or a repair ended the quarantine of the node at "
            f"{past[-1].at:%Y-%m-%d %H:%M:%S} UTC. Rekindle does not act on older evidence ({codes}).",
            Tone.WAITING,
        )
    if codes:
        return Line(f"The node has open faults ({codes}), and is not in quarantine.", Tone.BAD)
    if aside:
        codes = some(dict.fromkeys(one_line(finding.code) for finding, _ in aside))
        return Line(f"Rekindle does not act on {codes}: {work_words(aside[0][1])}.", Tone.WAITING)
    if serious := [
        signal for signal in node.signals if signal.severity in (Severity.PENDING, Severity.FATAL)
    ]:
        return Line(
            f"Other controllers report faults of the node ({_names(serious)}), and the node is not in "
            "quarantine.",
            Tone.BAD,
        )
    if node.unschedulable:
        return Line(
            "Somebody other than Rekindle cordoned the node. Rekindle does not uncordon the node.",
            Tone.WAITING,
        )
    if health is None and NODEHEALTHS.plural in hidden:
        return Line(
            "You have no permission to read NodeHealths, so faults of this node are not shown.", Tone.WAITING
        )
    if health is None:
        return Line("No agent reports from the node, so Rekindle is blind there.", Tone.WAITING)
    blind = [SOURCES[c.source] for c in health.status.coverage if c.state is CoverageState.BLIND]
    if blind:
        return Line(f"Rekindle knows of no fault, but the agent cannot read: {some(blind)}.", Tone.WAITING)
    if doubts := [signal for signal in node.signals if signal.severity is Severity.SUSPECT]:
        return Line(
            f"The agent has found no fault, but other controllers suspect the node ({_names(doubts)}).",
            Tone.WAITING,
        )
    return Line("Rekindle knows of no fault.", Tone.GOOD)


def _findings(
    node: Node | None, health: NodeHealth | None, now: datetime, hidden: Collection[str]
) -> tuple[Line, ...]:
    if health is None and NODEHEALTHS.plural in hidden:
        return (Line("not shown: you have no permission to read NodeHealths", Tone.WAITING),)
    if health is None:
        return (Line("no NodeHealth: no agent has reported for this node", Tone.WAITING),)
    lines: list[Line] = []
    aside = {finding.id: work for finding, work in set_aside(node, health, now)}
    for finding in sorted(health.status.findings, key=lambda f: f.last_seen, reverse=True):
        lines += _finding(finding, health, aside.get(finding.id), now)
    lines += [
        Line(f"{f.code} {counted(f.count, 'more time')}, last {ago(f.last_seen, now)}", Tone.DETAIL)
        for f in health.status.folded
    ]
    return tuple(lines) or (Line("nothing", Tone.GOOD),)


def _finding(finding: Finding, health: NodeHealth, work: DriverWork | None, now: datetime) -> Iterable[Line]:
    device = finding.subject.pci or finding.subject.device
    where = f" ({device})" if device else ""
    times = f", {finding.count} times" if finding.count > 1 else ""
    what = f"{FAULTS[finding.fault]}{where}, says {ORIGINS[finding.origin]}{times}"
    state, tone = "", Tone.BAD
    if finding.cleared_at is not None:
        state, tone = f"; cleared {ago(finding.cleared_at, now)} by {finding.cleared_by}", Tone.PLAIN
    elif finding.boot_id != health.status.boot_id:
        state, tone = "; from an earlier boot, so Rekindle does not act on this finding", Tone.PLAIN
    elif work is not None:
        state, tone = f"; Rekindle does not act on this finding: {work_words(work)}", Tone.WAITING
    elif finding.severity is Severity.INFO:
        # A note is no failure: the words for its fault class do not fit.
        what, tone = f"a note{where}{times}; Rekindle does not act on notes", Tone.PLAIN
    elif finding.severity is Severity.SUSPECT:
        state, tone = "; a suspicion: restarts prefer other nodes for a while", Tone.WAITING
    yield Line(f"{ago(finding.first_seen, now)}: {finding.code}, {what}{state}", tone)
    if finding.chain:
        yield Line(f"followed by {some(finding.chain)}", Tone.DETAIL)
    if tone is Tone.BAD and (line := _holders(finding, health)):
        yield Line(line, Tone.DETAIL)
    if finding.evidence:
        yield Line(one_line(finding.evidence), Tone.DETAIL)
    if tone is Tone.BAD:
        yield Line(f"recommended action: {finding.remedy.replace('-', ' ')}", Tone.DETAIL)


def _holders(finding: Finding, health: NodeHealth) -> str:
    """Returns which pods hold the broken device; empty if the fault is not of a device."""
    if finding.subject.kind is not SubjectKind.DEVICE:
        return ""
    devices = health.status.devices
    broken = next((d for d in devices if finding.subject.device and d.uuid == finding.subject.device), None)
    if not any(device.pods for device in devices):
        return "Rekindle does not know which pod holds this GPU: any GPU pod of the node may hold the GPU"
    if broken is None or not broken.pods:
        return "the agent knows of no pod that holds that GPU; a pod whose GPUs nobody knows may hold the GPU"
    return f"held by {some(dict.fromkeys(f'{pod.namespace}/{pod.name}' for pod in broken.pods))}"


def _coverage(
    name: str, health: NodeHealth | None, agents: Mapping[str, AgentPod] | None, now: datetime
) -> tuple[Line, ...]:
    if health is None:
        return ()
    unused = (
        Line(f"catalogue row that the agent does not use: {one_line(p)}", Tone.WAITING)
        for p in health.status.catalogue_problems
    )
    silent = silence_of(name, health, agents, now)
    if silent is not None:
        last = (
            f"; the last report came {ago(health.status.observed_at, now)}"
            if health.status.observed_at
            else ""
        )
        return (Line(f"Rekindle uses no source: {silent.kind}{last}", Tone.BAD), *unused)
    return (*(_covered(c, now) for c in health.status.coverage), *unused)


def _covered(coverage: Coverage, now: datetime) -> Line:
    since = duration((now - coverage.since).total_seconds())
    why = f": {one_line(coverage.why)}" if coverage.why else ""
    if coverage.state is CoverageState.COVERED:
        what = (
            f"; shows faults of {', '.join(FAMILIES[f] for f in coverage.families)}"
            if coverage.families
            else ""
        )
        said = f"{SOURCES[coverage.source]}: has been read for {since}{what}{why}"
        return Line(said, Tone.WAITING if why else Tone.GOOD)
    return Line(f"{SOURCES[coverage.source]}: has been blind for {since}{why}", Tone.WAITING)


def _training(health: NodeHealth | None, now: datetime) -> tuple[Line, ...]:
    pods = health.status.pods if health is not None else []
    steps = any(p.edge in (Edge.STEPPING, Edge.RESUMED) and p.last_step is not None for p in pods)
    return (*(_progress(p, now) for p in pods), *((_RARE,) if steps else ()))


def _progress(pod: PodProgress, now: datetime) -> Line:
    """Returns the line about a training."""
    is_single = pod.edge is Edge.STARTED and pod.last_step is not None
    state = (_SINGLE_STEP if is_single else _STATES[pod.edge]).format(ago(pod.at, now))
    printed = f", printed {ago(pod.last_step_at, now)}" if pod.last_step_at is not None else ""
    step = f"; last reported step: {pod.last_step}{printed}" if pod.last_step is not None else ""
    pace = f"; usual time of a step: {duration(pod.median_step_s)}" if pod.median_step_s else ""
    error = f"; first error {pod.first_error.code}" if pod.first_error is not None else ""
    return Line(f"{pod.namespace}/{pod.name}: {state}{step}{pace}{error}")


_RARE = Line(
    "an agent reports a new step only when it also has other news, so the last reported step may be old",
    Tone.DETAIL,
)
_STATES: dict[Edge, str] = {
    Edge.STARTED: "first seen {}, has not begun to make steps",
    Edge.STEPPING: "began to make steps {}",
    Edge.STALLED: "stalled {}",
    Edge.RESUMED: "began to make steps again {}",
    Edge.ENDED: "ended {}",
}
"""State in the agent's last report, and the time at which that state began."""
_SINGLE_STEP = "first seen {}; a single step does not prove yet that the pod trains"


def _node_commands(
    name: str, node: Node | None, health: NodeHealth | None, about: Sequence[Incident], now: datetime
) -> tuple[Command, ...]:
    commands: list[Command] = []
    if about:
        commands.append(
            Command(
                f"kubectl describe incident {about[0].metadata.name}", "to see the evidence as an API object"
            )
        )
        commands += [
            Command(why(victim), "to see what happened to that job") for victim in about[0].status.victims[:2]
        ]
    if node is not None:
        commands.append(_for_its_state(node, health, now))
    return (*commands, Command("rekindle status", "to see the whole cluster"))


def _for_its_state(node: Node, health: NodeHealth | None, now: datetime) -> Command:
    """Returns the one command that a person may want for a node in its present state."""
    name = node.name
    is_broken = any(map(is_proof, open_findings(node, health, answers(node), now)))
    if node.quarantine is not None:
        first = "after the repair, " if is_broken or not node.ready else ""
        undo = undone_by(name, node.quarantine)
        return Command(undo, f"{first}to end the quarantine: Rekindle then removes its taint, too")
    if not node.ready:
        return Command(f"kubectl describe node {name}", "to see since when the node is NotReady")
    if node.unschedulable:
        first = "after the repair, " if is_broken else ""
        return Command(f"kubectl uncordon {name}", f"{first}to let pods run on the node again")
    if held(node.annotations, now) is not None:
        return Command(release_node(name), "to let Rekindle act on the node again")
    if is_broken:
        return Command(cordon(name), "to keep new pods off the node yourself")
    return Command(hold_node(name), "to stop all actions of Rekindle on the node")
