"""Tests that objects that are over are deleted after their time, and that objects that are not over, or
still needed, never are."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.wire.contract import Fault, ObjectMeta
from recover.api import (
    Incident,
    IncidentPhase,
    IncidentSpec,
    IncidentStatus,
    Phase,
    PhaseTime,
    RecipeOutcome,
    RecipeUse,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
)
from recover.api.repair_state import (
    Repair,
    RepairPhase,
    RepairPhaseTime,
    RepairStep,
    StepKind,
    StepOutcome,
)
from recover.k8s.kinds import PYTORCHJOBS
from recover.model import Quarantine
from recover.model.actions import ConfirmGone, Delete
from recover.policy.settings import Retention
from recover.recovery.expiry import AT_ONCE_MAX, CONFIRMED_MAX, NEAR_AGAIN_S, REST_AGAIN_S, expire
from tests.builders import NOW, Worlds, cluster, gang

LIMITS = Retention(days=30, objects_max=1000)


def _incident(
    world: Worlds, name: str, *, days_old: float, phase: IncidentPhase, namespace: str = "", node: str = ""
) -> None:
    about = msgspec.structs.replace(gang().ref, namespace=namespace) if namespace else None
    world.incidents[name] = Incident(
        metadata=ObjectMeta(name=name, uid=name, creation_timestamp=NOW - timedelta(days=days_old)),
        spec=IncidentSpec(fault=Fault.DEVICE_LOST, detected_at=NOW, gang=about, node=node),
        status=IncidentStatus(phase=phase),
    )


def _recovery(world: Worlds, number: int, *, days_old: float, phase: Phase = Phase.SUCCEEDED) -> None:
    made = NOW - timedelta(days=days_old)
    name = f"recovery-{number}"
    world.recoveries[f"ml/{name}"] = Recovery(
        metadata=ObjectMeta(name=name, namespace="ml", uid=name, creation_timestamp=made),
        spec=RecoverySpec(
            gang=gang().ref, number=number, incident="i", fault=Fault.DEVICE_LOST, detected_at=made
        ),
        status=RecoveryStatus(phase=phase),
    )


def _gone(world: Worlds, limits: Retention = LIMITS) -> list[str]:
    actions = expire(world.world(), limits, NOW).actions
    return [action.name for action in actions if isinstance(action, Delete)]


def test_closed_incidents_go_after_their_time_and_open_ones_stay() -> None:
    world = cluster()
    _incident(world, "old", days_old=31, phase=IncidentPhase.CLOSED)
    _incident(world, "old-and-open", days_old=31, phase=IncidentPhase.OPEN)
    _incident(world, "young", days_old=29, phase=IncidentPhase.CLOSED)

    assert _gone(world) == ["old"]


def test_a_repair_that_limits_the_next_repairs_of_its_node_stays_as_long_as_it_counts() -> None:
    """Otherwise a node that fails again and again would be repaired without end."""
    world = cluster()
    for name, days in (("counts", 6), ("counts-no-longer", 8)):
        _incident(world, name, days_old=days, phase=IncidentPhase.CLOSED, node="n1")
        at = NOW - timedelta(days=days)
        step = RepairStep(kind=StepKind.RESET, number=1, job="j", at=at, outcome=StepOutcome.DONE)
        returned = RepairPhaseTime(phase=RepairPhase.RETURNED, at=at)
        repair = Repair(phase=RepairPhase.RETURNED, phases=[returned], steps=[step])
        incident = world.incidents[name]
        status = msgspec.structs.replace(incident.status, repair=repair)
        world.incidents[name] = msgspec.structs.replace(incident, status=status)
    _incident(world, "without-repair", days_old=6, phase=IncidentPhase.CLOSED, node="n1")

    for limits in (Retention(days=2), Retention(objects_max=1)):
        found = expire(world.world(), limits, NOW, repairs_window_s=7 * 86400).actions
        assert {a.name for a in found if isinstance(a, Delete)} == {"counts-no-longer", "without-repair"}


def test_what_took_long_stays_for_its_time_after_its_end() -> None:
    world = cluster()
    _incident(world, "long", days_old=90, phase=IncidentPhase.CLOSED)
    long = world.incidents["long"]
    status = msgspec.structs.replace(long.status, closed_at=NOW - timedelta(days=1))
    world.incidents["long"] = msgspec.structs.replace(long, status=status)
    _recovery(world, 1, days_old=90)
    ended = PhaseTime(phase=Phase.SUCCEEDED, attempt=1, at=NOW - timedelta(days=1))
    recovery = world.recoveries["ml/recovery-1"]
    status_of_it = msgspec.structs.replace(recovery.status, phases=[ended])
    world.recoveries["ml/recovery-1"] = msgspec.structs.replace(recovery, status=status_of_it)

    assert _gone(world) == []


def test_an_incident_stays_as_long_as_a_node_is_out_for_it() -> None:
    world = cluster()
    _incident(world, "old", days_old=31, phase=IncidentPhase.CLOSED)
    note = Quarantine(incident="old", fault="device-lost", at=NOW, cordoned=True)
    world.change_node("n1", quarantine=note)

    assert _gone(world) == []


def test_the_newest_recovery_of_a_living_job_stays_and_carries_its_totals() -> None:
    world = cluster().running(gang())
    _recovery(world, 1, days_old=90)
    _recovery(world, 2, days_old=60)

    assert _gone(world) == ["recovery-1"]


def test_what_recipes_have_changed_for_a_living_job_is_known_as_long_as_it_lives() -> None:
    world = cluster().running(gang())
    outcomes = [
        RecipeOutcome.APPLIED,
        RecipeOutcome.APPLIED,
        RecipeOutcome.GAVE_UP,
        RecipeOutcome.GAVE_UP,
        None,
        None,
    ]
    for number, outcome in enumerate(outcomes, start=1):
        _recovery(world, number, days_old=90 - number)
        uses = [RecipeUse(name="autogrow", attempt=1, outcome=outcome)] if outcome else []
        key = f"ml/recovery-{number}"
        found = world.recoveries[key]
        status = msgspec.structs.replace(found.status, recipes=uses)
        world.recoveries[key] = msgspec.structs.replace(found, status=status)

    assert _gone(world) == ["recovery-3", "recovery-5"]


def test_recoveries_of_a_job_that_is_gone_go_too() -> None:
    world = cluster()
    _recovery(world, 1, days_old=60)

    assert _gone(world) == ["recovery-1"]


def test_the_last_recovery_of_a_job_that_is_not_in_the_cache_goes_only_after_a_live_read() -> None:
    """A job may appear late in the cache, or be unreadable, and its last Recovery has the number from
    which the next one counts."""
    world = cluster()
    for number in (1, 2):
        _recovery(world, number, days_old=60 - number)

    first, last = expire(world.world(), LIMITS, NOW).chains

    assert [type(action) for action in first] == [Delete], "the job would not need it either"
    assert [type(action) for action in last] == [ConfirmGone, Delete]
    read = last[0]
    assert isinstance(read, ConfirmGone)
    assert (read.resource, read.namespace, read.name, read.uid) == (PYTORCHJOBS, "ml", "llm", "llm-uid")


def test_an_active_recovery_never_goes() -> None:
    world = cluster()
    _recovery(world, 1, days_old=60, phase=Phase.BLOCKED)

    assert _gone(world) == []


def test_beyond_the_cap_the_oldest_go_first_and_a_backlog_goes_in_portions() -> None:
    world = cluster()
    for number in range(300):
        _incident(world, f"i{number:03}", days_old=20 - number / 100, phase=IncidentPhase.CLOSED)

    some = _gone(world, msgspec.structs.replace(LIMITS, objects_max=297))
    many = _gone(world, msgspec.structs.replace(LIMITS, objects_max=1))

    assert some == ["i000", "i001", "i002"]
    assert len(many) == AT_ONCE_MAX


def test_a_storm_does_not_pass_the_cap_for_an_hour() -> None:
    waits = []
    for count in (LIMITS.objects_max // 2, LIMITS.objects_max // 2 + 1):
        world = cluster()
        for number in range(count):
            _incident(world, f"i{number}", days_old=1, phase=IncidentPhase.CLOSED)
        waits.append(expire(world.world(), LIMITS, NOW).requeue_after_s)
    assert waits == [LIMITS.interval_s, NEAR_AGAIN_S]


def test_what_cannot_be_deleted_holds_up_no_other() -> None:
    world = cluster()
    names = {f"i{number:03}" for number in range(3 * AT_ONCE_MAX)}
    for name in names:
        _incident(world, name, days_old=31, phase=IncidentPhase.CLOSED)
    tried = set()
    for look in range(4):
        actions = expire(world.world(), LIMITS, NOW + timedelta(seconds=look * REST_AGAIN_S)).actions
        assert len(actions) == AT_ONCE_MAX
        tried |= {action.name for action in actions if isinstance(action, Delete)}
    assert tried == names


def test_few_live_reads_at_once() -> None:
    """Live reads keep a gang of their namespace waiting."""
    world = cluster()
    for number in range(3 * CONFIRMED_MAX):
        _recovery(world, number, days_old=40)
        old = world.recoveries[f"ml/recovery-{number}"]
        ref = msgspec.structs.replace(old.spec.gang, uid=f"gone-{number}", name=f"gone-{number}")
        spec = msgspec.structs.replace(old.spec, gang=ref)
        world.recoveries[f"ml/recovery-{number}"] = msgspec.structs.replace(old, spec=spec)
    plan = expire(world.world(), LIMITS, NOW)
    assert sum(isinstance(action, ConfirmGone) for action in plan.actions) == CONFIRMED_MAX
    assert plan.requeue_after_s == REST_AGAIN_S


def test_a_large_backlog_comes_down_to_the_cap_within_minutes() -> None:
    """10,000 nodes that were cut off for a moment leave 10,000 Incidents."""
    world = cluster(nodes=2)
    for number in range(15_000):
        _incident(world, f"i{number:05}", days_old=0.01, phase=IncidentPhase.CLOSED)
    took_s = 0.0
    while len(world.incidents) > Retention().objects_max:
        found = expire(world.world(), Retention(), NOW)
        for action in found.actions:
            assert isinstance(action, Delete)
            del world.incidents[action.name]
        assert found.requeue_after_s is not None
        took_s += found.requeue_after_s if len(world.incidents) > Retention().objects_max else 0
    assert took_s < 1800
    assert expire(world.world(), Retention(), NOW).requeue_after_s == NEAR_AGAIN_S


def test_objects_that_a_finalizer_holds_and_those_of_another_kind_hold_up_no_deletion() -> None:
    world = cluster()
    for number in range(AT_ONCE_MAX * 2):
        _incident(world, f"i{number:03}", days_old=40, phase=IncidentPhase.CLOSED)
    for number in range(AT_ONCE_MAX):
        name = f"i{number:03}"
        going = msgspec.structs.replace(world.incidents[name].metadata, deletion_timestamp=NOW)
        world.incidents[name] = msgspec.structs.replace(world.incidents[name], metadata=going)
    _recovery(world, 1, days_old=40)

    gone = _gone(world)

    assert gone == [*(f"i{number}" for number in range(AT_ONCE_MAX, AT_ONCE_MAX * 2)), "recovery-1"]


def test_a_job_that_crashes_on_and_on_takes_the_history_of_its_own_namespace_only() -> None:
    world = cluster()
    for number in range(20):
        _incident(
            world,
            f"loud-{number:02}",
            days_old=1 - number / 100,
            phase=IncidentPhase.CLOSED,
            namespace="loud",
        )
    for number in range(3):
        _incident(world, f"node-{number}", days_old=20, phase=IncidentPhase.CLOSED)
        _incident(world, f"calm-{number}", days_old=10, phase=IncidentPhase.CLOSED, namespace="calm")

    gone = _gone(world, Retention(days=30, objects_max=12))

    assert gone == [f"loud-{number:02}" for number in range(14)]


def test_open_incidents_count_and_stay() -> None:
    world = cluster()
    for number in range(4):
        _incident(world, f"open-{number}", days_old=5, phase=IncidentPhase.OPEN, namespace="loud")
        _incident(world, f"over-{number}", days_old=4, phase=IncidentPhase.CLOSED, namespace="loud")
    _incident(world, "calm", days_old=9, phase=IncidentPhase.CLOSED, namespace="calm")

    assert _gone(world, Retention(days=30, objects_max=6)) == ["over-0", "over-1", "over-2"]


def test_a_node_whose_findings_come_and_go_takes_its_own_history_only() -> None:
    """Anybody with the token of the node's agent can cause an Incident each second."""
    world = cluster()
    for number in range(20):
        days = 1 - number / 100
        _incident(world, f"loud-{number:02}", days_old=days, phase=IncidentPhase.CLOSED, node="n1")
    for number in range(3):
        _incident(world, f"calm-{number}", days_old=20, phase=IncidentPhase.CLOSED, node=f"n{number + 2}")

    gone = _gone(world, Retention(days=30, objects_max=8))

    assert gone == [f"loud-{number:02}" for number in range(15)]
