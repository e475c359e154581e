"""A gang whose ranks all run and make no step: the controller notices it, and restarts it only if it knows
that the gang hangs."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, ObjectMeta
from recover.api import Phase, Recovery, RecoverySpec, RecoveryStatus
from recover.api.reasons import Reason
from recover.model import AgentPod, Gang, PodPhase
from tests.builders import NOW, Worlds, cluster, gang

LIMIT_S = 2700.0


def silent(job: Gang | None = None) -> Worlds:
    """Returns a gang whose ranks have all run for an hour without a step, although every agent reads all
    logs."""
    return cluster(nodes=8).running(job or gang(), stepping=False)


def trained_before(world: Worlds) -> Worlds:
    ref = world.gangs["llm-uid"].ref
    spec = RecoverySpec(gang=ref, number=1, incident="old", fault=Fault.DEVICE_LOST, detected_at=NOW)
    ended = RecoveryStatus(phase=Phase.SUCCEEDED, last_step=120, resumed_step=101)
    meta = ObjectMeta(name="first", namespace="ml", creation_timestamp=NOW - timedelta(hours=9))
    world.recoveries["ml/first"] = Recovery(metadata=meta, spec=spec, status=ended)
    return world


def test_a_gang_without_a_first_step_is_noticed_and_left_alone_as_its_log_may_be_unreadable() -> None:
    decision = silent().decide()

    assert decision.incident.spec.fault is Fault.HANG
    assert "rekindle doctor" in decision.incident.status.summary
    assert decision.restarts == []


def test_a_gang_whose_steps_were_read_before_is_restarted_when_it_makes_none() -> None:
    assert trained_before(silent()).decide().restarts == ["llm"]


def test_before_the_limit_nothing_is_said_and_the_limit_is_looked_at_in_time() -> None:
    world = silent()
    world.now -= timedelta(seconds=3600 - LIMIT_S + 10)

    decision = world.decide()

    assert decision.incidents == []
    assert decision.plan.requeue_after_s == pytest.approx(10)


@pytest.mark.parametrize("value", ["off", "2h"])
def test_the_jobs_own_hang_timeout_is_heeded(value: str) -> None:
    job = gang(annotations={"rekindle.dev/hang-timeout": value})

    assert trained_before(silent(job)).decide().incidents == []


def test_a_job_that_nobody_enabled_is_not_told_about() -> None:
    assert silent(gang(opted_in=False)).decide().incidents == []


def test_where_the_log_of_one_rank_is_not_read_nobody_can_tell() -> None:
    world = trained_before(silent())
    del world.health["n2"]

    assert world.decide().incidents == []


def test_a_gang_that_waits_for_a_rank_does_not_hang() -> None:
    world = trained_before(silent())
    pod = world.pods["llm-uid"]["llm-3-uid"]
    world.pods["llm-uid"][pod.uid] = msgspec.structs.replace(pod, phase=PodPhase.PENDING, containers=())

    assert world.decide().incidents == []


def test_where_the_agent_of_one_rank_is_away_nobody_can_tell() -> None:
    world = trained_before(silent())
    world.settings = msgspec.structs.replace(world.settings, agents_are_pods=True)
    world.agents = {name: AgentPod(name, f"{name}-agent", ready=name != "n2") for name in world.nodes}

    assert world.decide().incidents == []


def test_a_gang_whose_recovery_ended_without_steps_is_left_to_the_person_who_was_called() -> None:
    world = trained_before(silent())
    ended = RecoveryStatus(phase=Phase.ESCALATED, reason=Reason.NO_STEPS, last_step=120)
    world.recoveries["ml/first"] = msgspec.structs.replace(world.recoveries["ml/first"], status=ended)

    assert world.decide().restarts == []


def test_an_agent_that_has_not_written_since_the_start_shows_nothing_where_agents_are_no_pods() -> None:
    world = trained_before(silent())
    for name, health in world.health.items():
        last = world.now - timedelta(minutes=61)
        status = msgspec.structs.replace(health.status, observed_at=last, refresh_s=3600.0)
        world.health[name] = msgspec.structs.replace(health, status=status)

    assert world.decide().incidents == []
