"""Tests recover/stories/overview.py: what `rekindle status` shows of the cluster."""

import re
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import CoverageState, Fault, NodeHealth, Origin, Severity, Source
from detectors.wire.training import Edge, PodProgress
from recover.api import IncidentPhase, Outcome, Phase, PhaseTime
from recover.api.reasons import EXPLANATIONS, Reason
from recover.diagnose.coverage import silence_of
from recover.model import AgentPod, Node, NodeSignal, SignalKind, Taint
from recover.stories.overview import Overview, StatusFacts, overview
from recover.stories.spare_words import FREE
from recover.stories.words import FAULTS, SOURCES, Tone
from tests.facts import missing
from tests.recover.stories.why_cases import NOW, action, finding, health, incident, node, recovery, refused


def rows(shown: Overview, column: str) -> list[tuple[str, ...]]:
    """Returns the rows of the table that has this column."""
    return [row for table in shown.tables if column in table.columns for row in table.rows]


def counts(shown: Overview) -> list[int]:
    """Returns the numbers of the verdict: accelerator nodes, quarantined nodes, recoveries, Incidents, and
    then spares."""
    return [int(number) for number in re.findall(r"\d+", shown.verdict.text)]


def test_what_one_may_not_list_is_unknown_and_not_none() -> None:
    shown = overview(StatusFacts(hidden={"nodes", "incidents"}), NOW)

    assert counts(shown) == [0], "of recoveries only"
    assert not missing(shown.verdict.text, "nodes", "incidents")
    assert shown.verdict.tone is Tone.WAITING


def test_a_quiet_cluster_is_one_good_line_and_no_table() -> None:
    shown = overview(StatusFacts(nodes={"node-3": node()}, health={"node-3": health()}), NOW)

    assert counts(shown) == [1, 0, 0, 0]
    assert shown.verdict.tone is Tone.GOOD
    assert shown.tables == ()


def test_a_fault_shows_its_node_its_incident_and_its_recovery() -> None:
    shown = overview(
        StatusFacts(
            nodes={"node-3": node(quarantined=True), "node-4": node("node-4")},
            health={"node-3": health(finding()), "node-4": health(name="node-4")},
            incidents=[incident()],
            recoveries=[recovery(resumed_step=41, lost_steps=9, message="running again")],
        ),
        NOW,
    )

    assert counts(shown) == [2, 1, 0, 1]
    ((name, state, findings, why),) = rows(shown, "FINDINGS")
    assert (name, findings, why) == ("node-3", "xid-79", "node-3-device-lost-1a2b")
    assert not missing(state, "3 min")
    ((job, phase, since, after, steps, now),) = rows(shown, "STEPS")
    assert (job, phase, now) == ("team/llm", "Succeeded", "running again")
    assert not missing(since, "3 min")
    assert not missing(after, FAULTS[Fault.DEVICE_LOST], "node-3")
    assert not missing(steps, 41, 9)
    (open_incident,) = rows(shown, "CULPRIT")
    assert open_incident[:3] == ("node-3-device-lost-1a2b", "device-lost", "node-3")
    assert [c.run for c in shown.commands][:2] == ["rekindle why team/llm", "rekindle why node/node-3"]


def test_a_node_whose_incident_somebody_deleted_says_so() -> None:
    def shown(hidden: Collection[str] = ()) -> str:
        out = {"node-3": node(quarantined=True)}
        ((_, _, _, incident),) = rows(overview(StatusFacts(nodes=out, hidden=hidden), NOW), "FINDINGS")
        return incident

    assert shown(hidden={"incidents"}) == "node-3-device-lost-1a2b"
    assert shown() != "node-3-device-lost-1a2b"
    assert not missing(shown(), "node-3-device-lost-1a2b")


def test_a_node_in_service_shows_its_open_incident() -> None:
    about = incident(refused(Reason.STALE_EVIDENCE))

    shown = overview(
        StatusFacts(nodes={"node-3": node()}, health={"node-3": health(finding())}, incidents=[about]), NOW
    )

    ((name, state, findings, found),) = rows(shown, "STATE")
    assert (name, findings, found) == ("node-3", "xid-79", about.metadata.name)
    assert "open fault" in state


@pytest.mark.parametrize("hidden", [(), ("incidents",)])
def test_a_finding_without_an_open_incident_is_no_open_fault(hidden: Collection[str]) -> None:
    shown = overview(
        StatusFacts(nodes={"node-3": node()}, health={"node-3": health(finding())}, hidden=hidden), NOW
    )

    ((_, state, findings, found),) = rows(shown, "STATE")
    assert (findings, found) == ("xid-79", "")
    assert ("no open Incident" in state) is not bool(hidden), "who may not read Incidents does not know"


def test_what_was_not_done_is_shown_with_its_meaning() -> None:
    acts = (refused(Reason.NOT_OPTED_IN), action(Outcome.DONE, "quarantine-node"))

    shown = overview(StatusFacts(incidents=[incident(*acts)]), NOW)

    ((act, target, reason, since, meaning),) = rows(shown, "ACTION")
    assert (act, target, reason) == ("restart-gang", "Job team/llm", "NotOptedIn")
    assert not missing(since, "3 min")
    assert not missing(meaning, "node-3-device-lost-1a2b", EXPLANATIONS[Reason.NOT_OPTED_IN].meaning)


def test_a_closed_incident_is_not_shown() -> None:
    closed = incident(refused(Reason.HELD), phase=IncidentPhase.CLOSED)

    assert overview(StatusFacts(incidents=[closed]), NOW).tables == ()


def test_active_recoveries_come_first_and_old_ones_not_at_all() -> None:
    long_ago = [PhaseTime(phase=Phase.SUCCEEDED, attempt=1, at=NOW - timedelta(days=2))]
    shown = overview(
        StatusFacts(
            recoveries=[recovery(number=1, phases=long_ago), recovery(), recovery(Phase.STOPPING, number=2)]
        ),
        NOW,
    )

    assert [row[1] for row in rows(shown, "STEPS")] == ["Stopping", "Succeeded"]


def test_nodes_that_are_blind_in_the_same_way_share_one_row() -> None:
    names = ["node-1", "node-2", "node-3"]
    blind = {n: health(name=n, nvml=CoverageState.BLIND) for n in names[:2]}

    shown = overview(StatusFacts(nodes={n: node(n) for n in names}, health=blind), NOW)

    why = blind["node-1"].status.coverage[-1].why
    of_nvml, of_all = rows(shown, "SOURCE")
    assert of_nvml == (SOURCES[Source.NVML], "2: node-1, node-2", why)
    assert of_all[1] == "1: node-3"


def idle(name: str) -> NodeHealth:
    """Returns the report of an agent on whose node no training runs."""
    report = health(name=name)
    return msgspec.structs.replace(report, status=msgspec.structs.replace(report.status, pods=[]))


def test_spares_are_listed_with_their_pool_and_whom_they_stand_in_for() -> None:
    taint = Taint("rekindle.dev/spare", "NoSchedule", "true")
    lent = {
        "rekindle.dev/spare-for": "node-3-device-lost-1a2b",
        "rekindle.dev/spare-kept": '{"at":"2026-11-21T09:55:00Z","laid":true,"node":"node-3"}',
    }

    def spare(name: str, *taints: Taint, pool: str = "h200", **changes: Any) -> Node:
        labels = {"rekindle.dev/spare": "true", "node.kubernetes.io/instance-type": pool}
        return msgspec.structs.replace(node(name), labels=labels, taints=taints, **changes)

    nodes = [
        spare("s1", taint),
        spare("s2", annotations=lent),
        spare("s3", pool="b200"),
        spare("s4", taint, ready=False),
    ]

    told = {one.name: idle(one.name) for one in nodes}
    shown = overview(StatusFacts(nodes={one.name: one for one in nodes}, health=told), NOW)

    spares = rows(shown, "POOL")
    assert [row[:2] for row in spares] == [("s1", "h200"), ("s2", "h200"), ("s3", "b200"), ("s4", "h200")]
    free, on_loan, not_yet, broken = (state for _, _, state in spares)
    assert free == FREE
    assert not missing(on_loan, "5 min", "node-3", "node-3-device-lost-1a2b")
    assert not_yet not in (FREE, "")
    assert not missing(broken, "NotReady")
    assert counts(shown)[-2:] == [1, 4]
    assert counts(overview(StatusFacts(nodes={"n": node("n")}), NOW)) == [1, 0, 0, 0], "no word of spares"


def test_a_spare_on_which_a_training_runs_is_not_free() -> None:
    spare = msgspec.structs.replace(
        node("s1"),
        labels={"rekindle.dev/spare": "true"},
        taints=(Taint("rekindle.dev/spare", "NoSchedule", "true"),),
    )
    report = idle("s1")
    rank = PodProgress(namespace="ml", name="llm-0", uid="u", container="c", edge=Edge.STEPPING, at=NOW)
    states = []
    for pods in ([], [rank], [msgspec.structs.replace(rank, edge=Edge.ENDED)]):
        told = msgspec.structs.replace(report, status=msgspec.structs.replace(report.status, pods=pods))
        ((_, _, state),) = rows(overview(StatusFacts(nodes={"s1": spare}, health={"s1": told}), NOW), "POOL")
        states.append(state)

    assert (states[0], states[2]) == (FREE, FREE)
    assert not missing(states[1], "ml/llm-0")


def test_a_node_without_accelerators_needs_no_agent() -> None:
    plain = node("control-plane", is_accelerated=False)

    assert overview(StatusFacts(nodes={"control-plane": plain}), NOW).tables == ()


def test_nodes_whose_agent_is_away_are_named_whatever_their_agents_said_last() -> None:
    nodes = {name: node(name) for name in ("node-3", "node-4", "node-5")}
    reports = {name: health(name=name) for name in nodes}
    agents = {
        "node-3": AgentPod("node-3", "a", ready=True),
        "node-4": AgentPod("node-4", "b", ready=False, since=NOW),
    }

    shown = overview(StatusFacts(nodes=nodes, health=reports, agents=agents), NOW)

    silent = {name: silence_of(name, reports[name], agents, NOW) for name in ("node-4", "node-5")}
    assert {(who, why) for _, who, why in rows(shown, "SOURCE")} == {
        (f"1: {name}", one.kind) for name, one in silent.items() if one is not None
    }
    assert len(rows(shown, "SOURCE")) == len(silent)
    assert rows(overview(StatusFacts(nodes=nodes, health=reports), NOW), "SOURCE") == [], "nobody can tell"


def test_a_node_whose_driver_is_worked_on_says_so_beside_its_findings() -> None:
    upgraded = node(labels={"nvidia.com/mig.config.state": "pending"})
    lost = finding(code="nvml-gpu-lost", origin=Origin.DRIVER)

    ((_, state, codes, _),) = rows(
        overview(StatusFacts(nodes={"node-3": upgraded}, health={"node-3": health(lost)}), NOW), "FINDINGS"
    )
    ((_, plain, _, _),) = rows(
        overview(StatusFacts(nodes={"node-3": node()}, health={"node-3": health(lost)}), NOW), "FINDINGS"
    )

    assert codes == "nvml-gpu-lost"
    assert not missing(state, "MIG")
    assert missing(plain, "MIG")


def test_a_node_that_other_controllers_suspect_is_listed_with_who_says_so() -> None:
    def says(severity: Severity) -> NodeSignal:
        return NodeSignal(SignalKind.LABEL, "team/bad", "yes", "Autopilot", severity, Fault.UNKNOWN)

    nodes = {
        "node-3": node(signals=(says(Severity.SUSPECT),)),
        "node-4": node("node-4", signals=(says(Severity.INFO),)),
    }
    reports = {name: health(name=name) for name in nodes}

    ((name, _, findings, _),) = rows(overview(StatusFacts(nodes=nodes, health=reports), NOW), "FINDINGS")

    assert name == "node-3"
    assert not missing(findings, "team/bad", "Autopilot")
