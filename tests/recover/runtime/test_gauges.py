"""Tests the gauges of a world. The alerts of the chart read these gauges."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from detectors.wire.contract import Coverage, CoverageState, Fault, ObjectMeta, Severity, Source
from detectors.wire.training import Edge
from recover.api import (
    ActionRecord,
    Incident,
    IncidentPhase,
    IncidentSpec,
    IncidentStatus,
    Outcome,
    Phase,
    PhaseTime,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
)
from recover.api.reasons import Reason
from recover.api.repair_state import Repair, RepairPhase
from recover.model import AgentPod, Quarantine, Terminal
from recover.model.modes import Mode
from recover.runtime.gauges import derive
from recover.runtime.telemetry import Metrics
from tests.acting import recovering
from tests.builders import NOW, Worlds, cluster, gang

LLM = gang("llm", ranks=2)
ENDED = NOW - timedelta(minutes=10)


def told(world: Worlds, name: str, **labels: str) -> float | None:
    metrics = Metrics()
    derive(metrics, world.world(), world.now, suspicion_s=86_400)
    return metrics.registry.get_sample_value(name, labels)


def with_recovery(
    world: Worlds,
    phase: Phase,
    reason: str = "",
    *,
    number: int = 1,
    phases: tuple[tuple[Phase, datetime], ...] = (),
    lost_steps: int | None = None,
    lost_gpu_s: float | None = None,
) -> Worlds:
    times = [PhaseTime(phase=name, attempt=1, at=at) for name, at in (phases or ((phase, ENDED),))]
    world.recoveries[f"ml/llm-{number}"] = Recovery(
        metadata=ObjectMeta(name=f"llm-{number}", namespace="ml"),
        spec=RecoverySpec(
            gang=LLM.ref, number=number, incident="i", fault=Fault.DEVICE_LOST, detected_at=ENDED
        ),
        status=RecoveryStatus(
            phase=phase, reason=reason, phases=times, lost_steps=lost_steps, lost_gpu_s=lost_gpu_s
        ),
    )
    return world


def with_incident(world: Worlds, status: IncidentStatus, *, node: str = "n1") -> Worlds:
    spec = IncidentSpec(fault=Fault.DEVICE_LOST, node=node, detected_at=ENDED)
    world.incidents["i"] = Incident(metadata=ObjectMeta(name="i"), spec=spec, status=status)
    return world


def quarantined(world: Worlds) -> Worlds:
    note = Quarantine(incident="i", fault="device-lost", at=ENDED, cordoned=True)
    return world.change_node("n1", quarantine=note)


# --- jobs -------------------------------------------------------------------------------------------------


def test_an_active_recovery_waits_for_what_its_reason_names() -> None:
    world = with_recovery(cluster().running(LLM), Phase.BLOCKED, Reason.NO_CAPACITY)
    with_recovery(world, Phase.RESUMING, number=2)
    with_recovery(world, Phase.ESCALATED, Reason.CRASH_LOOP, number=3)
    with_recovery(world, Phase.RESUMING, Reason.CHECKPOINT_UNVERIFIED, number=4)

    assert told(world, "rekindle_recoveries_waiting", reason="NoCapacity") == 1
    assert told(world, "rekindle_recoveries_waiting", reason="") is None
    for goes_on_or_over in ("CrashLoop", "CheckpointUnverified"):
        assert told(world, "rekindle_recoveries_waiting", reason=goes_on_or_over) is None


def test_a_job_whose_last_recovery_was_escalated_is_given_up() -> None:
    world = with_recovery(cluster().running(LLM), Phase.ESCALATED, Reason.NO_STEPS)

    assert told(world, "rekindle_jobs_given_up", reason="NoSteps") == 1


def test_a_later_recovery_has_the_last_word() -> None:
    world = with_recovery(cluster().running(LLM), Phase.ESCALATED, Reason.NO_STEPS)
    with_recovery(world, Phase.SUCCEEDED, number=2)

    assert told(world, "rekindle_jobs_given_up", reason="NoSteps") is None


def test_a_job_that_makes_steps_again_is_not_given_up() -> None:
    world = with_recovery(cluster().running(LLM), Phase.ESCALATED, Reason.NO_STEPS)
    (first, _) = world.pods[LLM.ref.uid].values()
    world.progress(first, Edge.RESUMED, at=NOW)

    assert told(world, "rekindle_jobs_given_up", reason="NoSteps") is None


def test_a_job_without_readable_steps_goes_on_once_all_its_ranks_were_started_anew() -> None:
    world = with_recovery(cluster().running(LLM, stepping=False), Phase.ESCALATED, Reason.PODS_STUCK)
    pods = world.pods[LLM.ref.uid]
    first, second = pods
    pods[first] = msgspec.structs.replace(pods[first], created=NOW)
    assert told(world, "rekindle_jobs_given_up", reason="PodsStuck") == 1

    pods[second] = msgspec.structs.replace(pods[second], created=NOW)

    assert told(world, "rekindle_jobs_given_up", reason="PodsStuck") is None


@pytest.mark.parametrize("change", [{"deleting": True}, {"terminal": Terminal(succeeded=True)}])
def test_a_job_that_goes_or_has_completed_waits_for_nobody(change: dict[str, object]) -> None:
    world = with_recovery(cluster().running(LLM), Phase.ESCALATED, Reason.CRASH_LOOP)

    world.change_gang(**change)

    assert told(world, "rekindle_jobs_given_up", reason="CrashLoop") is None


def test_a_job_that_is_gone_waits_for_nobody() -> None:
    assert told(with_recovery(cluster(), Phase.ESCALATED, "CrashLoop"), "rekindle_jobs_given_up") is None


def test_of_recoveries_that_are_over_time_and_loss_are_summed() -> None:
    went = ((Phase.STOPPING, NOW), (Phase.RESUMING, NOW + timedelta(seconds=3)))
    over = (*went, (Phase.SUCCEEDED, NOW + timedelta(seconds=10)))
    world = with_recovery(cluster(), Phase.SUCCEEDED, phases=over, lost_steps=4, lost_gpu_s=100.0)
    with_recovery(world, Phase.SUCCEEDED, number=2, phases=over, lost_steps=1, lost_gpu_s=50.5)
    with_recovery(world, Phase.RESUMING, number=3, phases=went)

    assert told(world, "rekindle_recovery_phase_seconds", phase="Stopping") == 6
    assert told(world, "rekindle_recovery_phase_seconds", phase="Resuming") == 14
    assert told(world, "rekindle_lost_steps") == 5
    assert told(world, "rekindle_lost_gpu_seconds") == 150.5


# --- nodes and incidents ----------------------------------------------------------------------------------


def test_what_open_incidents_did_not_do_is_counted_by_reason() -> None:
    records = [
        ActionRecord(at=NOW, action=a, target="n1", outcome=outcome, reason=reason)
        for a, outcome, reason in (
            ("quarantine-node", Outcome.REFUSED, "BudgetExhausted"),
            ("restart-gang", Outcome.WOULD, "ObserveMode"),
            ("lift-spare", Outcome.DONE, ""),
        )
    ]
    world = with_incident(cluster(), IncidentStatus(actions=records))
    assert told(world, "rekindle_actions_not_taken", reason="BudgetExhausted") == 1
    assert told(world, "rekindle_actions_not_taken", reason="ObserveMode") == 1
    assert told(world, "rekindle_actions_not_taken", reason="") is None

    with_incident(world, IncidentStatus(phase=IncidentPhase.CLOSED, actions=records))

    assert told(world, "rekindle_actions_not_taken", reason="BudgetExhausted") is None
    assert told(world, "rekindle_incidents_open", fault="device-lost") is None


def test_each_member_of_an_incident_about_many_nodes_counts_as_a_refusal() -> None:
    """The alert about limits and the brake reads this gauge."""
    budgets = msgspec.structs.replace(cluster().settings.budgets, quarantines_per_hour_max=1)
    limited, braked = cluster(nodes=1000), cluster(nodes=100)
    limited.settings = msgspec.structs.replace(limited.settings, budgets=budgets)
    for number in range(20):
        limited.finding(on=f"n{number}")
        braked.finding(on=f"n{number}")

    assert told(recovering(limited), "rekindle_actions_not_taken", reason="BudgetExhausted") == 19
    assert told(recovering(braked), "rekindle_actions_not_taken", reason="FleetBrake") == 20


def test_a_refusal_of_the_guard_is_counted_as_it_writes_it() -> None:
    world = cluster(nodes=8, mode=Mode.OBSERVE).running(LLM).finding(on="n1")
    opened = next(a for a in world.decide().plan.actions if getattr(a, "what", "") == "open-incident")
    with_incident(world, msgspec.convert(opened.status, IncidentStatus))

    assert told(world, "rekindle_actions_not_taken", reason="ObserveMode") == 2


@pytest.mark.parametrize(
    ("repair", "reason"),
    [
        (None, "NotInRepairMode"),
        (Repair(phase=RepairPhase.HANDED_OVER, reason="ValidationFailed"), "ValidationFailed"),
    ],
)
def test_a_node_that_is_out_and_not_under_repair_waits_for_a_person(
    repair: Repair | None, reason: str
) -> None:
    world = quarantined(with_incident(cluster(), IncidentStatus(repair=repair)))

    assert told(world, "rekindle_nodes_waiting_for_person", reason=reason) == 1
    assert told(world, "rekindle_nodes_quarantined") == 1


def test_a_silent_node_that_was_handed_over_waits_though_it_is_not_quarantined() -> None:
    handed_over = Repair(phase=RepairPhase.HANDED_OVER, reason="NodeSilent")
    world = with_incident(cluster(), IncidentStatus(repair=handed_over))

    assert told(world, "rekindle_nodes_waiting_for_person", reason="NodeSilent") == 1


def test_a_node_under_repair_or_released_waits_for_nobody() -> None:
    closed = IncidentStatus(
        phase=IncidentPhase.CLOSED, repair=Repair(phase=RepairPhase.HANDED_OVER, reason="NeedsPerson")
    )
    for world in (
        quarantined(with_incident(cluster(), IncidentStatus(repair=Repair()))),
        with_incident(cluster(), closed),
        with_incident(cluster(), IncidentStatus()),
    ):
        for reason in ("", "NeedsPerson", "NotInRepairMode"):
            assert told(world, "rekindle_nodes_waiting_for_person", reason=reason) is None


def test_nodes_without_accelerators_do_not_count() -> None:
    assert told(cluster(3).change_node("n2", is_accelerated=False), "rekindle_nodes_accelerated") == 2


def blind(world: Worlds, source: str) -> float | None:
    return told(world, "rekindle_nodes_blind", source=source)


def test_a_node_whose_agent_is_away_counts_as_not_watched_and_not_by_what_it_said_last() -> None:
    world = cluster(nodes=4)
    for name in world.nodes:
        world.change_node(name, is_accelerated=True)
    world.blind("n1").blind("n2")
    assert (blind(world, "kmsg"), blind(world, "agent")) == (2, None)

    world.settings = msgspec.structs.replace(world.settings, agents_are_pods=True)
    world.agents = {name: AgentPod(name, name, ready=name != "n3") for name in ("n0", "n1", "n3")}

    assert (blind(world, "kmsg"), blind(world, "agent")) == (1, 2)


def test_suspected_nodes_are_told_by_code_until_the_suspicion_is_old_or_proven() -> None:
    def suspected(world: Worlds) -> float | None:
        return told(world, "rekindle_nodes_suspected", code="port-down")

    world = cluster(nodes=4)
    for name in ("n1", "n2"):
        world.finding(on=name, fault=Fault.NETWORK, severity=Severity.SUSPECT, code="port-down")
    world.finding(on="n3", fault=Fault.NETWORK, severity=Severity.INFO, code="port-down")
    assert suspected(world) == 2

    world.finding(on="n2")
    assert suspected(world) == 1

    assert suspected(world.later(86_400)) is None


def test_a_source_that_a_repair_has_asked_for_is_not_blind() -> None:
    world = cluster(nodes=1)
    world.change_node("n0", is_accelerated=True)
    row = Coverage(source=Source.NVML, state=CoverageState.BLIND, since=NOW, why="let go for repair r")
    health = world.health["n0"]
    status = msgspec.structs.replace(health.status, coverage=[*health.status.coverage, row])
    world.health["n0"] = msgspec.structs.replace(health, status=status)
    assert blind(world, "nvml") == 1

    spec = msgspec.structs.replace(health.spec, hands_off="r")
    world.health["n0"] = msgspec.structs.replace(health, status=status, spec=spec)

    assert blind(world, "nvml") is None
