"""Shows the StatusAnswer of `rekindle status` as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from detectors.wire.contract import Source
from recover.api import Act
from recover.k8s.kinds import INCIDENTS, NODES, RECOVERIES
from recover.stories.hold_words import HoldRecord
from recover.stories.records import (
    BlindRecord,
    DecisionRecord,
    IncidentRecord,
    NodeRecord,
    NodeState,
    RecoveryRecord,
    RepairRecord,
    SpareRecord,
    SpareState,
    StatusAnswer,
)
from recover.stories.recovery_words import PHASE_WORDS
from recover.stories.repair_words import PHASE_WORDS as REPAIR_WORDS
from recover.stories.spare_words import in_short
from recover.stories.words import SOURCES, Line, Tone, ago, cause_words, counted, some, why_not_taken

__all__ = ["Table", "source_words", "state_words", "tables", "verdict"]

Row = tuple[str, ...]


class Table(msgspec.Struct, frozen=True):
    """Rows of plain text. A table without rows is not shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def tables(answer: StatusAnswer, now: datetime, *, wide: bool) -> tuple[Table, ...]:
    """Returns the tables that have rows. `wide` adds names of objects and reasons, and all blind nodes."""
    found = (
        ("Nodes", ("NODE", "STATE", "FINDINGS", "INCIDENT"), _nodes(answer, now)),
        (
            "Recoveries",
            ("JOB", "PHASE", "SINCE", "AFTER", "STEPS", "NOW", *(("RECOVERY", "REASON") if wide else ())),
            _recoveries(answer.recoveries, now, wide),
        ),
        ("Repairs", ("NODE", "PHASE", "SINCE", "REASON", "NOW"), _repairs(answer.repairs, now)),
        (
            "Open incidents",
            ("INCIDENT", "FAULT", "CULPRIT", "SINCE", "WHAT"),
            _incidents(answer.incidents, now),
        ),
        (
            "Actions that were not taken, and why",
            ("ACTION", "TARGET", "REASON", "SINCE", "MEANING", *(("INCIDENT",) if wide else ())),
            _not_done(answer.not_done, now, wide),
        ),
        ("Holds", ("OBJECT", "UNTIL", "REASON", "END THE HOLD"), _holds(answer.holds)),
        ("Spares", ("NODE", "POOL", "STATE"), _spares(answer.spares, now)),
        ("Blind", ("SOURCE", "NODES", "WHY"), _blind(answer.blind, wide)),
    )
    made = (Table(title, columns, tuple(rows)) for title, columns, rows in found)
    return tuple(table for table in made if table.rows)


def verdict(answer: StatusAnswer) -> Line:
    active = sum(1 for one in answer.recoveries if one.active)
    accelerated = counted(answer.accelerator_nodes or 0, "accelerator node")
    told = {
        NODES.plural: f"{accelerated} ({answer.quarantined_nodes} quarantined)",
        RECOVERIES.plural: counted(active, "active recovery", "active recoveries")
        + (f" in namespace {answer.namespace} (all namespaces: -A)" if answer.namespace else ""),
        INCIDENTS.plural: counted(len(answer.incidents), "open incident"),
    }
    parts = [f"{kind} unknown" if kind in answer.hidden else words for kind, words in told.items()]
    if answer.spares:
        free = sum(1 for one in answer.spares if one.state is SpareState.FREE)
        parts.append(f"{free} of {counted(len(answer.spares), 'spare')} free")
    is_unknown = not told.keys().isdisjoint(answer.hidden)
    is_calm = not (answer.quarantined_nodes or active or answer.incidents or is_unknown)
    return Line(", ".join(parts), Tone.GOOD if is_calm else Tone.WAITING)


def _nodes(answer: StatusAnswer, now: datetime) -> Iterator[Row]:
    """Yields the rows of nodes. A node that is not in quarantine shows the open Incident that names the node,
    if there is one."""
    about = {one.target: one.incident for one in answer.not_done if one.action == Act.QUARANTINE_NODE}
    about |= {name: one.name for one in answer.incidents for name in (one.node, one.blamed_node) if name}
    none = "" if INCIDENTS.plural in answer.hidden else ", no open Incident"
    for node in answer.nodes:
        missing = " (missing: the controller creates it again)" if node.incident_missing else ""
        under = f", {node.driver_work} under way" if node.driver_work else ""
        codes = [*node.findings, *(f"{signal.name} ({signal.by})" for signal in node.signals)]
        incident = node.incident or about.get(node.name, "")
        in_service = "in service" + ((", open fault" if incident else none) if node.findings else "")
        state = (state_words(node, now) or in_service) + under
        yield node.name, state, some(codes, 3), incident + missing


def state_words(node: NodeRecord, now: datetime) -> str:
    """Returns the states of a node in words; empty if nothing about the Node is unusual."""
    at = node.quarantined_at
    words = {
        NodeState.QUARANTINED: f"quarantined {ago(at, now)}" if at is not None else "quarantined",
        NodeState.CORDONED: "cordoned, not by Rekindle",
        NodeState.NOT_READY: "NotReady",
        NodeState.GONE: "no Node object",
        NodeState.NOT_SHOWN: "not shown",
    }
    return ", ".join(words[state] for state in node.states)


def _recoveries(recoveries: Iterable[RecoveryRecord], now: datetime, wide: bool) -> Iterator[Row]:
    for one in recoveries:
        phase = f"{one.phase}" + (f" (attempt {one.attempt})" if one.attempt > 1 else "")
        after = cause_words(one.fault, one.error, one.nodes)
        steps = f"from step {one.resumed_step}" if one.resumed_step is not None else ""
        if one.lost_steps is not None:
            steps = f"{steps}, {counted(one.lost_steps, 'step')} lost".removeprefix(", ")
        said = "the job has completed" if one.job_completed else one.message or PHASE_WORDS[one.phase][0]
        row = (f"{one.job.namespace}/{one.job.name}", phase, ago(one.since, now), after, steps, said)
        yield (*row, one.name, one.reason) if wide else row


def _repairs(repairs: Iterable[RepairRecord], now: datetime) -> Iterator[Row]:
    for one in repairs:
        yield (
            one.node,
            one.phase,
            ago(one.since, now),
            one.reason,
            one.message or REPAIR_WORDS[one.phase][0],
        )


def _incidents(incidents: Iterable[IncidentRecord], now: datetime) -> Iterator[Row]:
    for one in incidents:
        blame = one.blamed_node or one.blame.value
        yield one.name, one.fault.value, blame, ago(one.detected_at, now), one.summary


def _not_done(decisions: Iterable[DecisionRecord], now: datetime, wide: bool) -> Iterator[Row]:
    """Yields one row for each decision. The members of an Incident about many nodes, which have no message,
    share one row."""
    kept: dict[str, list[DecisionRecord]] = {}
    for one in decisions:
        is_member = one.action == Act.QUARANTINE_NODE and not one.message
        kept.setdefault(one.incident if is_member else f"{one.incident} {id(one)}", []).append(one)
    for group in kept.values():
        first = group[0]
        who = some((one.target for one in group), 4)
        meaning = why_not_taken(first.reason, first.message)[-1:]
        if meaning and first.action == Act.RESTART_GANG:  # a job may have Incidents that it has left behind
            meaning = (f"Incident {first.incident}: {meaning[0]}",)
        row = (first.action, who, first.reason, ago(first.at, now), *(meaning or ("",)))
        yield (*row, first.incident) if wide else row


def _holds(holds: Iterable[HoldRecord]) -> Iterator[Row]:
    for one in holds:
        until = f"{one.until:%Y-%m-%d %H:%M} UTC" if one.until is not None else "no end set"
        yield one.object, until, one.reason or "-", one.fix


def _spares(spares: Iterable[SpareRecord], now: datetime) -> Iterator[Row]:
    for one in spares:
        yield one.node, one.pool, in_short(one, now)


def _blind(blind: Iterable[BlindRecord], wide: bool) -> Iterator[Row]:
    for one in blind:
        who = ", ".join(one.nodes) if wide else some(one.nodes, 4)
        yield source_words(one.source), f"{len(one.nodes)}: {who}", one.why


def source_words(source: Source | None) -> str:
    return SOURCES[source] if source is not None else "everything"
