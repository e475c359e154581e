"""recover/stories/overview.py: what `rekindle status` shows of the cluster."""

from datetime import timedelta
from typing import Any

import msgspec

from detectors.wire.contract import CoverageState
from recover.api import IncidentPhase, Outcome, Phase, PhaseTime
from recover.api.reasons import EXPLANATIONS, Reason
from recover.model import AgentPod, Node, Taint
from recover.stories.overview import Overview, overview
from recover.stories.words import Tone
from tests.recover.stories.why_cases import NOW, action, finding, health, incident, node, recovery, refused


def rows(shown: Overview, title: str) -> list[tuple[str, ...]]:
    return [row for table in shown.tables if table.title == title for row in table.rows]


def test_what_one_may_not_list_is_unknown_and_not_none() -> None:
    shown = overview({}, {}, [], [], NOW, hidden={"nodes", "incidents"})

    assert shown.verdict.text == "nodes unknown, 0 active recoveries, incidents unknown"
    assert shown.verdict.tone is Tone.WAITING


def test_a_quiet_cluster_is_one_good_line_and_no_table() -> None:
    shown = overview({"node-3": node()}, {"node-3": health()}, [], [], NOW)

    assert shown.verdict.text == "1 accelerator node, 0 quarantined, 0 active recoveries, 0 open incidents"
    assert shown.verdict.tone is Tone.GOOD
    assert shown.tables == ()


def test_a_fault_shows_its_node_its_incident_and_its_recovery() -> None:
    shown = overview(
        {"node-3": node(quarantined=True), "node-4": node("node-4")},
        {"node-3": health(finding()), "node-4": health(name="node-4")},
        [incident()],
        [recovery(resumed_step=41, lost_steps=9, message="running again")],
        NOW,
    )

    assert shown.verdict.text == "2 accelerator nodes, 1 quarantined, 0 active recoveries, 1 open incident"
    assert rows(shown, "Nodes") == [("node-3", "quarantined 3 min ago", "xid-79", "node-3-device-lost-1a2b")]
    assert rows(shown, "Recoveries") == [
        ("team/llm", "Succeeded", "3 min ago", "a GPU was lost on node-3", "from 41, 9 lost", "running again")
    ]
    (open_incident,) = rows(shown, "Open incidents")
    assert open_incident[:3] == ("node-3-device-lost-1a2b", "device-lost", "node-3")
    assert [c.run for c in shown.commands][:2] == ["rekindle why team/llm", "rekindle why node/node-3"]


def test_a_node_whose_incident_somebody_deleted_says_so() -> None:
    def shown(**hidden: set[str]) -> str:
        return rows(overview({"node-3": node(quarantined=True)}, {}, [], [], NOW, **hidden), "Nodes")[0][3]

    assert shown() == "node-3-device-lost-1a2b (missing: the controller creates it again)"
    assert shown(hidden={"incidents"}) == "node-3-device-lost-1a2b"


def test_what_was_not_done_is_shown_with_its_meaning() -> None:
    acts = (refused(Reason.NOT_OPTED_IN), action(Outcome.DONE, "quarantine-node"))

    shown = overview({}, {}, [incident(*acts)], [], NOW)

    assert rows(shown, "Not done, and why") == [
        ("restart-gang", "Job team/llm", "NotOptedIn", "3 min ago", EXPLANATIONS[Reason.NOT_OPTED_IN].meaning)
    ]


def test_a_closed_incident_is_not_shown() -> None:
    closed = incident(refused(Reason.HELD), phase=IncidentPhase.CLOSED)

    assert overview({}, {}, [closed], [], NOW).tables == ()


def test_active_recoveries_come_first_and_old_ones_not_at_all() -> None:
    long_ago = [PhaseTime(phase=Phase.SUCCEEDED, attempt=1, at=NOW - timedelta(days=2))]
    shown = overview(
        {}, {}, [], [recovery(number=1, phases=long_ago), recovery(), recovery(Phase.STOPPING, number=2)], NOW
    )

    assert [row[1] for row in rows(shown, "Recoveries")] == ["Stopping", "Succeeded"]


def test_nodes_that_are_blind_in_the_same_way_share_one_row() -> None:
    names = ["node-1", "node-2", "node-3"]
    blind = {n: health(name=n, nvml=CoverageState.BLIND) for n in names[:2]}

    shown = overview({n: node(n) for n in names}, blind, [], [], NOW)

    assert rows(shown, "Blind") == [
        ("GPU driver (NVML)", "2: node-1, node-2", "driver not loaded"),
        ("everything", "1: node-3", "no agent reports for it"),
    ]


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

    told = {one.name: health(name=one.name) for one in nodes}
    shown = overview({one.name: one for one in nodes}, told, [], [], NOW)

    assert rows(shown, "Spares") == [
        ("s1", "h200", "free"),
        ("s2", "h200", "lent 5 min ago for node-3 (node-3-device-lost-1a2b)"),
        ("s3", "b200", "not kept free yet"),
        ("s4", "h200", "of no use now: NotReady"),
    ]
    assert shown.verdict.text.endswith(", 1 of 4 spares free")
    assert "spare" not in overview({"n": node("n")}, {}, [], [], NOW).verdict.text


def test_a_node_without_accelerators_needs_no_agent() -> None:
    plain = node("control-plane", is_accelerated=False)

    assert overview({"control-plane": plain}, {}, [], [], NOW).tables == ()


def test_nodes_whose_agent_is_away_are_named_whatever_their_agents_said_last() -> None:
    nodes = {name: node(name) for name in ("node-3", "node-4", "node-5")}
    reports = {name: health(name=name) for name in nodes}
    agents = {
        "node-3": AgentPod("node-3", "a", ready=True),
        "node-4": AgentPod("node-4", "b", ready=False, since=NOW),
    }

    shown = overview(nodes, reports, [], [], NOW, agents=agents)

    assert set(rows(shown, "Blind")) == {
        ("everything", "1: node-4", "its agent's pod is not ready"),
        ("everything", "1: node-5", "its agent's pod is missing"),
    }
    assert rows(overview(nodes, reports, [], [], NOW), "Blind") == [], "nobody can tell"
