"""Tests faults of nodes: clocks that are wrong, other people's taints, evidence that explains nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api.reasons import Reason
from recover.model import PodPhase, Taint
from recover.model.modes import Mode
from tests.acting import recovering
from tests.builders import NOW, cluster, gang


def test_a_node_whose_clock_runs_ahead_is_still_quarantined_once_its_verdict_could_have_settled() -> None:
    world = cluster().running(gang()).finding(on="n1", fault=Fault.DRIVER, final=False, ago_s=-7200)
    assert recovering(world).nodes["n1"].quarantine is None

    recovering(world.later(10))

    assert world.nodes["n1"].quarantine is not None


def test_a_node_whose_open_incident_tells_of_something_weak_is_cordoned_for_what_is_found_later() -> None:
    world = cluster(nodes=40).finding(
        on="n1", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING
    )
    recovering(world)
    assert not world.nodes["n1"].unschedulable

    recovering(world.later(60).finding(on="n1"))

    node = world.nodes["n1"]
    assert node.unschedulable
    assert [taint.value for taint in node.taints] == [Fault.DEVICE_LOST]


def test_a_finding_at_the_end_of_time_does_not_stop_the_decisions_about_other_nodes() -> None:
    world = cluster(nodes=40).finding(on="n1").finding(on="n2", fault=Fault.DRIVER, final=False)
    status = world.health["n2"].status
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    late = msgspec.structs.replace(status.findings[0], first_seen=end, last_seen=end)
    world.health["n2"] = msgspec.structs.replace(
        world.health["n2"], status=msgspec.structs.replace(status, findings=[late])
    )

    assert world.decide().cordons == ["n1"]


def test_a_stall_at_the_end_of_time_does_not_stop_the_decisions_about_other_gangs() -> None:
    world = cluster(nodes=40).running(gang()).stall().finding(on="n9")
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for name, health in world.health.items():
        pods = [msgspec.structs.replace(p, at=end) for p in health.status.pods]
        world.health[name] = msgspec.structs.replace(
            health, status=msgspec.structs.replace(health.status, pods=pods)
        )

    assert world.decide().cordons == ["n9"]


def test_a_quarantine_keeps_every_field_of_a_foreign_taint() -> None:
    theirs = Taint("node.kubernetes.io/unreachable", "NoExecute", time_added="2026-11-21T11:59:00Z")
    patch = cluster().change_node("n1", taints=(theirs,)).finding(on="n1").decide().plan.actions[0]

    assert patch.body["spec"]["taints"][0] == {
        "key": "node.kubernetes.io/unreachable",
        "effect": "NoExecute",
        "timeAdded": "2026-11-21T11:59:00Z",
    }


def test_a_loss_that_was_first_seen_before_the_mode_began_never_acts_although_nothing_tells_its_time() -> (
    None
):
    world = cluster(mode=Mode.OBSERVE).running(gang())
    pods = world.pods["llm-uid"]
    pods["llm-2-uid"] = msgspec.structs.replace(pods["llm-2-uid"], phase=PodPhase.FAILED, containers=())
    recovering(world)
    world.mode, world.mode_since = Mode.RECOVER, NOW + timedelta(seconds=60)

    recovering(world.later(120))

    (incident,) = world.incidents.values()
    assert not world.recoveries
    assert [a.reason for a in incident.status.actions] == [Reason.STALE_EVIDENCE]


def test_a_gangs_own_crash_is_not_closed_in_favour_of_a_finding_that_does_not_explain_it() -> None:
    world = cluster(mode=Mode.OBSERVE).running(gang()).crash(rank=0)
    world.finding(on="n3", fault=Fault.THERMAL, ago_s=1200)

    recovering(recovering(world))

    assert {i.status.superseded_by for i in world.incidents.values()} == {""}
