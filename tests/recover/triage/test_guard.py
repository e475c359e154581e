"""Tests names, annotations and other tenants that must not make the guard allow a write, or refuse one."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, Severity
from recover.api import Phase, PhaseTime
from recover.api.reasons import Reason
from recover.model import PodPhase
from recover.model.modes import Mode, Modes, begun, changed
from recover.model.pause import Pause
from recover.policy.faults import QuarantineLevel
from recover.policy.settings import Settings
from recover.recovery.advance import advance
from recover.triage.guard import Denied, Guard, may_touch
from tests.acting import advanced, only_recovery, recovering
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names


def undone(world: Worlds, ago: timedelta) -> Worlds:
    """Adds a recovery of the gang whose stop somebody undid that long ago."""
    recovery = only_recovery(recovering(world.crash(rank=1)))
    ended = PhaseTime(phase=Phase.ESCALATED, attempt=1, at=world.now - ago)
    status = msgspec.structs.replace(
        recovery.status, phase=Phase.ESCALATED, reason=str(Reason.FOREIGN_OWNER), phases=[ended]
    )
    world.recoveries["ml/" + recovery.metadata.name] = msgspec.structs.replace(recovery, status=status)
    world.incidents.clear()
    return world


@pytest.mark.parametrize(("hours", "is_allowed"), [(1, False), (23, False), (25, True)])
def test_a_stop_that_somebody_undid_is_not_repeated_for_a_day(hours: int, *, is_allowed: bool) -> None:
    world = undone(cluster().running(gang()), timedelta(hours=hours))

    verdict = may_touch(world.world(), world.gangs["llm-uid"], world.now)

    assert isinstance(verdict, Denied) is not is_allowed
    if isinstance(verdict, Denied):
        assert verdict.reason is Reason.FOREIGN_OWNER
        assert names(verdict.message, "UTC", "delete that Recovery")


def test_nodes_whose_gpus_have_no_fabric_are_no_domain() -> None:
    """The driver then reports a cluster id of zeros, the same on all nodes."""
    world = cluster(nodes=200)
    for name in world.nodes:
        world.change_node(name, labels={"nvidia.com/gpu.clique": "00000000-0000-0000-0000-000000000000.0"})
    world.finding(on="n1").finding(on="n9")

    assert sorted(world.decide().cordons) == ["n1", "n9"]


@pytest.mark.parametrize("number", ["²", "-1", "0", "many", "9" * 5000, "", " 3"])
def test_an_annotation_that_is_no_number_leaves_the_default_limit(number: str) -> None:
    annotations = {"rekindle.dev/max-recoveries": number, "rekindle.dev/attempts-per-cause": number}
    world = cluster().running(gang(annotations=annotations)).crash(rank=1)

    assert world.decide().restarts == ["llm"]
    assert advanced(recovering(world), Phase.RESUMING).status.attempt == 1


def test_a_job_named_like_the_brake_trips_no_brake() -> None:
    world = cluster(nodes=8).running(gang("fleet-brake-x", opted_in=False)).crash("fleet-brake-x", rank=1)
    recovering(world)

    assert world.finding(on="n7").decide().cordons == ["n7"]


def test_a_pod_in_another_namespace_that_claims_to_belong_to_a_gang_is_not_its_rank() -> None:
    world = cluster().running(gang())
    pods = world.pods["llm-uid"]
    rank = pods["llm-1-uid"]
    pods["forged"] = msgspec.structs.replace(
        rank, namespace="evil", name="forged", uid="forged", phase=PodPhase.FAILED
    )

    assert world.decide().plan.actions == ()


def test_a_recovery_never_reaches_into_another_namespace() -> None:
    world = recovering(cluster().running(gang()).finding(on="n1"))
    real = only_recovery(world)
    forged = msgspec.structs.replace(real, metadata=msgspec.structs.replace(real.metadata, namespace="evil"))

    plan = advance(forged, world.world(), world.settings, world.now)

    (end,) = plan.actions
    assert end.what == "recovery-failed"
    assert end.namespace == "evil"


def test_a_forged_recovery_in_another_namespace_uses_up_no_budget_of_the_gang() -> None:
    world = cluster().running(gang()).crash(rank=1)
    recovering(world)
    real = only_recovery(world)
    world.recoveries.clear()
    world.incidents.clear()
    status = msgspec.structs.replace(real.status, phase=Phase.ESCALATED, reason=Reason.CRASH_LOOP)
    metadata = msgspec.structs.replace(real.metadata, namespace="evil")
    world.recoveries["evil/forged"] = msgspec.structs.replace(real, metadata=metadata, status=status)

    assert world.decide().restarts == ["llm"]


def test_a_degraded_node_that_becomes_worse_is_cordoned_in_the_place_that_it_has_already() -> None:
    clique = {"nvidia.com/gpu.clique": "rack-1", "node.kubernetes.io/instance-type": "h100"}
    world = cluster(nodes=8).change_node("n1", labels=clique)
    recovering(world.finding(on="n1", code="xid-63", severity=Severity.PENDING))
    assert not world.nodes["n1"].unschedulable

    recovering(world.later(100).finding(on="n1"))

    assert world.nodes["n1"].unschedulable


def test_a_quarantine_that_another_loop_is_writing_takes_its_place_in_the_budget() -> None:
    """Triage and repair decide separately, and each sees the other's writes only after the answer."""
    world = cluster(nodes=8).finding(on="n7")
    world.being_quarantined = {"n3"}

    decision = world.decide()

    assert decision.cordons == []
    assert decision.reasons() == [Reason.BUDGET_EXHAUSTED]
    world.being_quarantined = set()
    assert world.decide().cordons == ["n7"]


def test_a_quarantine_that_was_never_written_does_not_use_up_the_hour_of_its_own_node() -> None:
    """The Incident records the quarantine as done when it is decided, and the node's patch was lost in an
    outage."""
    world = cluster(nodes=40)
    budgets = msgspec.structs.replace(world.settings.budgets, quarantines_per_hour_max=1)
    world.settings = msgspec.structs.replace(world.settings, budgets=budgets)
    before = world.nodes["n7"]
    recovering(world.finding(on="n7"))
    world.nodes["n7"] = before

    assert world.later(60).decide().cordons == ["n7"]


def test_a_degraded_node_of_a_rack_keeps_no_dead_gpu_of_that_rack_in_service() -> None:
    world = cluster(nodes=36)
    for number in range(36):
        world.change_node(f"n{number}", labels={"nvidia.com/gpu.clique": f"rack-{number // 18}"})
    world.finding(on="n3", code="xid-145", fault=Fault.NVLINK, severity=Severity.PENDING, ago_s=60)
    recovering(world)
    assert world.nodes["n3"].quarantine is not None, "it takes fewer pods"

    recovering(world.finding(on="n7").finding(on="n9"))

    assert [name for name, node in world.nodes.items() if node.unschedulable] == ["n7"], (
        "one of a rack at a time"
    )


def test_a_second_node_of_a_rack_stays_in_service_though_the_cluster_allows_it() -> None:
    world = cluster(nodes=60)
    for number in range(18):
        world.change_node(f"n{number}", labels={"nvidia.com/gpu.clique": "rack-1"})
    recovering(world.finding(on="n1"))

    decision = world.finding(on="n3").finding(on="n30").decide()

    assert decision.cordons == ["n30"], "it is of no rack"
    assert decision.reasons() == [Reason.BUDGET_EXHAUSTED]
    said = " ".join(r.message for incident in decision.incidents for r in incident.status.actions)
    assert names(said, 1, 18, "rack-1")


def test_the_nodes_of_a_pool_stay_in_service_beyond_its_share() -> None:
    """The limit of 10 % of five nodes is at least one node. The limits of the cluster and of the hour
    allow two."""
    world = cluster(nodes=40)
    for number in range(5):
        world.change_node(f"n{number}", labels={"node.kubernetes.io/instance-type": "h100"})
    recovering(world.finding(on="n1"))

    decision = world.finding(on="n3").finding(on="n7").decide()

    assert decision.cordons == ["n7"], "it is of no pool"
    assert decision.reasons() == [Reason.BUDGET_EXHAUSTED]
    said = " ".join(r.message for incident in decision.incidents for r in incident.status.actions)
    assert names(said, 1, 5, "h100")


def test_a_fault_from_before_the_mode_is_stale_also_in_a_pause() -> None:
    world = cluster(nodes=3).finding(on="n1").world()
    raised = changed(begun(Mode.OBSERVE, NOW - timedelta(hours=2)), Mode.RECOVER, NOW - timedelta(minutes=1))
    seen_at, reasons = NOW - timedelta(minutes=10), []
    for pause in (None, Pause(since=NOW, reason="new switches")):
        told = msgspec.structs.replace(world, modes=Modes(raised, paused=pause))
        verdict = Guard.of(told, [], Settings(), NOW).may_quarantine(
            told.nodes["n1"], "i", seen_at, QuarantineLevel.CORDON
        )
        assert isinstance(verdict, Denied)
        assert names(verdict.message, f"{NOW - timedelta(minutes=1):%H:%M:%S}")
        reasons.append(verdict.reason)

    assert reasons == [Reason.STALE_EVIDENCE] * 2
