"""Reports of other controllers about a node make other nodes preferable. They stop nothing, unless people
have configured that."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from detectors.wire.contract import Fault, Origin, Severity
from recover.api.reasons import Reason
from recover.diagnose.what_counts import proven, suspected
from recover.model import NodeSignal, SignalKind
from recover.model.modes import Mode
from recover.triage.plan import plan
from tests.acting import only_recovery, recovering, step
from tests.builders import Worlds, cluster, gang

WINDOW_S = 3600.0
SERIOUS = [Severity.PENDING, Severity.FATAL]


def signal(
    severity: Severity = Severity.SUSPECT, *, name: str = "GpuMemWatch", fault: Fault = Fault.MEMORY_DEGRADED
) -> NodeSignal:
    return NodeSignal(SignalKind.CONDITION, name, "True", "NVSentinel", severity, fault)


def says(
    world: Worlds, nodes: Iterable[str], one: NodeSignal | None = None, *, ago_s: float = 90.0
) -> Worlds:
    since = world.now - timedelta(seconds=ago_s)
    one = one or signal()
    for name in nodes:
        told = NodeSignal(one.kind, one.name, one.value, one.by, one.severity, one.fault, one.reason, since)
        world.change_node(name, signals=(told,))
    return world


@pytest.mark.parametrize("mode", [Mode.RECOVER, Mode.REPAIR])
def test_a_suspicion_of_others_stops_no_gang_and_writes_nothing(mode: Mode) -> None:
    world = says(cluster(mode=mode).running(gang()), ["n1"])

    for _ in range(3):
        recovering(world.later(3600))

    assert world.nodes["n1"].quarantine is None
    assert not world.recoveries
    assert not world.incidents


def test_other_nodes_are_preferred_for_as_long_as_the_signal_stands() -> None:
    world = says(cluster(), ["n1"])

    assert suspected(world.world(), world.now, WINDOW_S) == {"n1": "condition-GpuMemWatch"}
    assert not proven(world.world(), world.now)
    world.later(10 * WINDOW_S)
    assert list(suspected(world.world(), world.now, WINDOW_S)) == ["n1"]

    world.change_node("n1", signals=())
    assert not suspected(world.world(), world.now, WINDOW_S)


def test_a_signal_on_every_node_tells_no_node_from_another() -> None:
    world = says(cluster(4), ["n0", "n1", "n2", "n3"])
    assert not suspected(world.world(), world.now, WINDOW_S)

    world.finding(on="n2", code="xid-61", fault=Fault.UNKNOWN, severity=Severity.SUSPECT)
    assert list(suspected(world.world(), world.now, WINDOW_S)) == ["n2"]

    world.change_node("n3", signals=())
    assert list(suspected(world.world(), world.now, WINDOW_S)) == ["n2", "n0", "n1"], "those of agents first"


def test_a_note_makes_nothing_preferable() -> None:
    world = says(cluster(), ["n1"], signal(Severity.INFO))

    assert not suspected(world.world(), world.now, WINDOW_S)


def test_a_signal_that_flaps_each_second_causes_no_writes() -> None:
    world = cluster().running(gang())
    for turn in range(30):
        world.later(1)
        says(world, ["n1"], ago_s=0) if turn % 2 else world.change_node("n1", signals=())
        assert not plan(world.world(), world.settings, world.now).actions


def test_a_fault_that_people_have_mapped_takes_its_node_out_and_moves_the_gang() -> None:
    world = says(cluster().running(gang()), ["n1"], signal(Severity.FATAL))

    decision = world.decide()

    assert decision.cordons == ["n1"]
    assert decision.restarts == ["llm"]
    (evidence,) = decision.incident.status.evidence
    assert (evidence.origin, evidence.code) == (Origin.VENDOR, "condition-GpuMemWatch")
    recovering(world)
    for _ in range(3):
        step(world.later(1))
    assert world.gangs["llm-uid"].suspended


@pytest.mark.parametrize("severity", SERIOUS)
@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOVER])
def test_a_mapped_fault_that_flaps_opens_no_incident_and_one_that_stands_does(
    mode: Mode, severity: Severity
) -> None:
    world = cluster(mode=mode).running(gang())
    for turn in range(60):
        world.later(1)
        says(world, ["n1"], signal(severity), ago_s=0) if turn % 2 else world.change_node("n1", signals=())
        assert not plan(world.world(), world.settings, world.now).actions

    says(world, ["n1"], signal(severity), ago_s=1)
    requeue_after_s = plan(world.world(), world.settings, world.now).requeue_after_s
    assert requeue_after_s is not None
    assert requeue_after_s <= 59
    world.later(60)
    assert plan(world.world(), world.settings, world.now).actions


def test_a_long_name_of_a_label_still_fits_an_incident() -> None:
    one = NodeSignal(
        SignalKind.LABEL, f"{'long.' * 50}example.com/bad", "", "any", Severity.FATAL, Fault.DEVICE_LOST
    )
    world = says(cluster().running(gang()), ["n1"], one)

    recovering(world.later(10))

    assert world.nodes["n1"].unschedulable
    assert world.recoveries


@pytest.mark.parametrize("severity", SERIOUS)
def test_what_was_said_before_the_mode_began_does_not_act(severity: Severity) -> None:
    world = says(cluster().running(gang()), ["n1"], signal(severity), ago_s=86_400)

    decision = world.decide()

    assert decision.cordons == []
    assert decision.restarts == []


def test_a_release_answers_the_signal_until_it_comes_again() -> None:
    world = says(cluster(8).running(gang()), ["n1"], signal(Severity.FATAL))
    recovering(world.later(10))
    assert world.nodes["n1"].unschedulable

    world.change_node("n1", unschedulable=False, taints=())
    for _ in range(5):
        recovering(world.later(60))
    assert not world.nodes["n1"].unschedulable, (
        "the condition still stands, and a person has released the node"
    )

    says(world, ["n1"], signal(Severity.FATAL), ago_s=1)
    recovering(world)
    recovering(world.later(60))
    recovering(world.later(10))
    assert world.nodes["n1"].unschedulable


@pytest.mark.parametrize(
    "is_gone", [True, False], ids=["the signal is gone", "a person has released the node"]
)
def test_what_ends_the_fault_before_the_stop_leaves_the_gang_alone(is_gone: bool) -> None:
    world = recovering(says(cluster(8).running(gang()), ["n1"], signal(Severity.FATAL)))
    assert only_recovery(world).active
    if is_gone:
        world.change_node("n1", signals=())
    else:
        world.change_node("n1", released_at=world.now, unschedulable=False, taints=())

    for _ in range(3):
        step(world.later(1))

    assert only_recovery(world).status.reason == Reason.CAUSE_GONE
    assert not world.gangs["llm-uid"].suspended


def test_a_mapped_fault_is_set_aside_while_somebody_works_on_the_driver() -> None:
    world = says(cluster().running(gang()), ["n1"], signal(Severity.FATAL))
    world.change_node("n1", labels={"nvidia.com/mig.config.state": "pending"})

    assert world.decide().cordons == []
    assert not proven(world.world(), world.now)
