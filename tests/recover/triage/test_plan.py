"""Tests decisions of triage. Each test has the whole case: the evidence, the culprit, the actions, and the
refusals with their reasons."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, Origin, Remedy, Severity, Source
from recover.api import Blame, IncidentPhase, Outcome
from recover.api.reasons import Reason
from recover.model import Quarantine, Taint, Terminal
from recover.model.modes import Mode
from tests.acting import apply, only_recovery, recovering, step
from tests.builders import NOW, Decision, cluster, gang
from tests.facts import names


def test_a_lost_gpu_cordons_its_node_and_restarts_the_gang() -> None:
    decision = cluster(nodes=8).running(gang(ranks=4)).finding(on="n1").decide()

    assert decision.cordons == ["n1"]
    assert decision.restarts == ["llm"]
    assert decision.incident.status.blame is Blame.NODE
    assert decision.incident.status.blamed_node == "n1"


def test_one_crash_with_xid_45_on_every_node_cordons_none() -> None:
    world = cluster(nodes=8).running(gang(ranks=8)).crash(rank=3)
    for node in list(world.nodes):
        world.finding(on=node, code="xid-45", fault=Fault.APPLICATION, origin=Origin.TENANT)

    decision = world.decide()

    assert decision.restarts == ["llm"]
    assert decision.cordons == []
    assert decision.incident.spec.fault is Fault.APPLICATION
    assert decision.incident.status.blame is Blame.APPLICATION


def test_hardware_evidence_beats_the_louder_crash_of_another_rank() -> None:
    world = cluster(nodes=4).running(gang()).crash(rank=0, ago_s=3).crash(rank=2, ago_s=2)

    decision = world.finding(on="n3", ago_s=4).decide()

    assert decision.incident.status.blamed_node == "n3"
    assert decision.incident.spec.gang is None
    assert decision.cordons == ["n3"]
    assert decision.restarts == ["llm"]


def test_a_hardware_finding_long_before_the_crash_does_not_explain_it() -> None:
    world = cluster(nodes=40).running(gang())
    world.finding(on="n3", code="xid-63", severity=Severity.PENDING, final=False, ago_s=1200)

    decision = world.crash(rank=0).decide()

    blames = {incident.status.blame for incident in decision.incidents}
    assert blames == {Blame.NODE, Blame.APPLICATION}
    assert decision.restarts == ["llm"]
    assert only_recovery(recovering(world)).spec.fault is Fault.APPLICATION
    recovering(world)
    while "stop-gang" not in step(world):
        pass
    assert only_recovery(world).status.avoid_nodes == [], "a suspicion excludes no node"


def test_a_crash_on_a_node_whose_kernel_log_is_not_read_blames_nobody() -> None:
    decision = cluster().running(gang()).blind("n2").crash(rank=2).decide()

    assert decision.cordons == []
    assert decision.restarts == ["llm"]
    assert decision.incident.status.blame is Blame.UNKNOWN
    assert decision.incident.status.suspects[0].node == "n2"
    assert "permission denied" in decision.incident.status.summary
    ((target, reason, message),) = refused(decision, "quarantine-node")
    assert (target, reason) == ("n2", Reason.BLIND)
    assert names(message, Source.KMSG, "n2", "permission denied")


def test_a_hang_tells_of_each_blind_node_that_it_may_be_to_blame_and_stays() -> None:
    decision = cluster().running(gang()).blind("n2").blind("n3").stall().decide()

    assert decision.cordons == []
    assert [target for target, reason, _ in refused(decision, "quarantine-node")] == ["n2", "n3"]


def refused(decision: Decision, action: str) -> list[tuple[str, str, str]]:
    records = decision.incident.status.actions
    return [(r.target, r.reason, r.message) for r in records if r.action == action]


def test_a_verdict_that_is_not_final_waits_before_the_node_and_a_living_gang_are_touched() -> None:
    world = cluster().running(gang()).finding(on="n1", code="xid-119", fault=Fault.DRIVER, final=False)

    early = world.decide()
    late = world.later(2.0).decide()

    assert (early.cordons, early.restarts) == ([], [])
    assert early.plan.requeue_after_s == pytest.approx(1.0)
    assert early.incident.status.blame is Blame.UNKNOWN
    assert (late.cordons, late.restarts) == (["n1"], ["llm"])


def test_a_dead_gang_is_stopped_at_once_while_the_blame_settles() -> None:
    world = cluster().running(gang()).finding(on="n1", fault=Fault.DRIVER, final=False).crash(rank=1)

    decision = world.decide()

    assert decision.restarts == ["llm"]
    assert decision.cordons == []


def test_a_fault_that_shows_again_after_the_promotion_acts_though_its_incident_is_older() -> None:
    """The first finding is still in the agent's status, and the Incident is about this finding."""
    world = cluster(nodes=8, mode=Mode.OBSERVE).running(gang(ranks=4)).finding(on="n1")
    apply(world, world.decide().plan)
    world.later(100)
    world.mode, world.mode_since = Mode.RECOVER, world.now
    assert world.decide().cordons == []

    decision = world.later(100).finding(on="n1").decide()

    assert (decision.cordons, decision.restarts) == (["n1"], ["llm"])


def test_a_finding_that_its_agent_calls_a_silent_node_has_one_incident_and_not_one_at_each_look() -> None:
    world = cluster(nodes=8).running(gang()).finding(on="n1", fault=Fault.HOST)
    for _ in range(4):
        apply(world, world.later(1).decide().plan)

    (incident,) = world.incidents.values()
    assert (incident.spec.fault, incident.status.phase) == (Fault.UNKNOWN, IncidentPhase.OPEN)
    assert incident.status.blame is Blame.UNKNOWN
    assert (world.recoveries, world.nodes["n1"].quarantine) == ({}, None)


def test_a_contained_fault_marks_the_node_and_leaves_the_training_alone_until_its_checkpoint() -> None:
    world = cluster().running(gang())
    world.finding(on="n1", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)

    decision = world.decide()

    assert decision.restarts == []
    assert decision.reasons("restart-gang") == [Reason.STILL_TRAINING]
    (taint,) = decision.plan.actions[0].body["spec"]["taints"]
    assert taint["effect"] == "PreferNoSchedule"
    assert "unschedulable" not in decision.plan.actions[0].body["spec"]
    apply(world, decision.plan)
    assert world.later(world.settings.timing.checkpoint_grace_s).decide().restarts == ["llm"]


def test_a_device_that_its_vendor_wants_drained_gets_no_new_work_and_keeps_the_present_one() -> None:
    world = cluster().running(gang())
    world.finding(
        on="n1",
        code="xid-154",
        fault=Fault.DEVICE_RESET,
        severity=Severity.PENDING,
        remedy=Remedy.DRAIN_AND_RESET,
    )

    decision = world.decide()

    assert decision.plan.actions[0].body["spec"]["unschedulable"] is True
    assert decision.restarts == []
    assert decision.reasons("restart-gang") == [Reason.STILL_TRAINING]


def test_observe_mode_touches_neither_nodes_nor_jobs_and_says_what_it_would_do() -> None:
    decision = cluster(mode=Mode.OBSERVE).running(gang()).finding(on="n1").decide()

    assert (decision.cordons, decision.restarts) == ([], [])
    outcomes = {(r.action, r.outcome) for r in decision.incident.status.actions}
    assert outcomes == {("quarantine-node", Outcome.WOULD), ("restart-gang", Outcome.WOULD)}


def test_a_job_that_did_not_opt_in_is_left_alone_and_its_faulty_node_cordoned() -> None:
    decision = cluster().running(gang(opted_in=False)).finding(on="n1").decide()

    assert decision.cordons == ["n1"]
    assert decision.restarts == []
    assert decision.reasons() == [Reason.NOT_OPTED_IN]


def test_tenant_evidence_never_cordons_however_fatal_it_claims_to_be() -> None:
    decision = cluster().running(gang()).finding(on="n1", origin=Origin.TENANT).decide()

    assert decision.plan.actions == ()


def test_evidence_of_another_boot_never_acts() -> None:
    decision = cluster().running(gang()).finding(on="n1", boot_id="another-boot").decide()

    assert decision.plan.actions == ()


def test_evidence_from_before_the_mode_began_is_reported_and_never_acts() -> None:
    decision = cluster().running(gang()).finding(on="n1", ago_s=2 * 3600).decide()

    assert (decision.cordons, decision.restarts) == ([], [])
    assert set(decision.reasons()) == {Reason.STALE_EVIDENCE}


@pytest.mark.parametrize("failed_ago_s", [600, 1])
def test_a_gang_that_fails_after_the_mode_began_is_restarted_though_its_silent_node_is_older_news(
    failed_ago_s: float,
) -> None:
    world = cluster(nodes=8).running(gang()).not_ready("n1", ago_s=900)
    world.mode_since = NOW - timedelta(seconds=300)

    decision = world.crash(rank=2, ago_s=failed_ago_s).decide()

    assert decision.incident.spec.node == "n1"
    assert decision.restarts == (["llm"] if failed_ago_s == 1 else [])


def test_a_gang_that_hangs_after_the_mode_began_on_a_node_silent_since_before_is_restarted() -> None:
    world = cluster(nodes=8).running(gang()).not_ready("n1", ago_s=900).stall()
    world.mode_since = NOW - timedelta(seconds=300)

    assert world.decide().restarts == ["llm"]


def test_a_failure_that_nobody_dates_is_not_taken_for_one_after_the_mode_began() -> None:
    world = cluster(nodes=8).running(gang()).not_ready("n1", ago_s=900).crash(rank=2)
    pods = world.pods["llm-uid"]
    pods["llm-2-uid"] = msgspec.structs.replace(pods["llm-2-uid"], containers=())
    world.mode_since = NOW - timedelta(seconds=300)

    assert world.decide().restarts == []


def test_a_not_ready_node_alone_does_not_stop_a_gang_that_may_still_train() -> None:
    decision = cluster().running(gang()).not_ready("n2").decide()

    assert decision.restarts == []
    assert decision.reasons() == [Reason.STILL_TRAINING]


def test_a_dead_node_explains_the_gang_that_died_with_it() -> None:
    decision = cluster().running(gang()).not_ready("n2").crash(rank=0).crash(rank=1).decide()

    assert decision.restarts == ["llm"]
    assert decision.cordons == []
    assert decision.incident.spec.fault is Fault.HOST
    assert decision.incident.status.blamed_node == "n2"


def test_a_gang_none_of_whose_ranks_steps_any_more_is_restarted_without_a_culprit() -> None:
    decision = cluster().running(gang()).stall().decide()

    assert decision.restarts == ["llm"]
    assert decision.incident.spec.fault is Fault.HANG
    assert decision.incident.status.blame is Blame.UNKNOWN


def test_one_container_that_restarts_in_place_is_given_time_to_step_again() -> None:
    world = cluster().running(gang()).restart_in_place(rank=1)

    early = world.decide()
    late = world.later(5.0).decide()

    assert early.restarts == []
    assert early.plan.requeue_after_s is not None
    assert late.restarts == ["llm"]


def test_a_container_that_restarts_again_and_again_is_one_incident_where_nobody_may_act() -> None:
    world = cluster().running(gang(opted_in=False), stepping=False)
    for restarts in range(1, 5):
        world.restart_in_place(rank=1)
        (container,) = world.pods["llm-uid"]["llm-1-uid"].containers
        again = msgspec.structs.replace(container, restarts=restarts)
        world.pods["llm-uid"]["llm-1-uid"] = msgspec.structs.replace(
            world.pods["llm-uid"]["llm-1-uid"], containers=(again,)
        )
        apply(world, world.decide().plan)
        apply(world, world.later(60).decide().plan)

    (incident,) = world.incidents.values()
    assert incident.status.phase is IncidentPhase.OPEN


def test_two_containers_that_restart_in_place_are_a_dead_gang() -> None:
    decision = cluster().running(gang()).restart_in_place(rank=1).restart_in_place(rank=2).decide()

    assert decision.restarts == ["llm"]


def test_a_job_that_its_framework_failed_for_good_is_named_terminal() -> None:
    world = cluster().running(gang()).crash(rank=1)
    world.change_gang(terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded"))

    decision = world.decide()

    assert decision.restarts == []
    assert decision.reasons() == [Reason.TERMINAL_JOB]


def test_a_completed_job_whose_pods_end_is_no_fault() -> None:
    world = cluster().running(gang()).change_gang(terminal=Terminal(succeeded=True))

    assert world.crash(rank=1).decide().plan.actions == ()


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"rekindle.dev/hold": "true"}, Reason.HELD),
        ({"rekindle.dev/hold-until": "2026-11-22T00:00:00Z"}, Reason.HELD),
        ({"rekindle.dev/hold-until": "tomorrow"}, Reason.HELD),
        ({"rekindle.dev/auto-recovery": "observe"}, Reason.OBSERVE_MODE),
        ({"rekindle.dev/auto-recovery": "disabled"}, Reason.NOT_OPTED_IN),
        ({"rekindle.dev/auto-recovery": "enable"}, Reason.OBSERVE_MODE),
    ],
)
def test_people_can_freeze_or_narrow_what_happens_to_a_job(
    annotations: dict[str, str], reason: Reason
) -> None:
    decision = cluster().running(gang(annotations=annotations)).crash(rank=1).decide()

    assert decision.restarts == []
    assert decision.reasons() == [reason]


def test_a_hold_that_has_ended_holds_no_more() -> None:
    job = gang(annotations={"rekindle.dev/hold-until": "2026-11-21T11:00:00Z"})

    assert cluster().running(job).crash(rank=1).decide().restarts == ["llm"]


def test_a_job_that_kueue_owns_is_refused_by_name() -> None:
    world = cluster().running(gang()).change_gang(foreign_owner="Kueue (queue team-a)").crash(rank=1)

    decision = world.decide()

    assert decision.reasons() == [Reason.FOREIGN_OWNER]
    assert "Kueue" in decision.incident.status.actions[0].message


def test_the_cap_on_quarantined_nodes_holds_within_one_plan() -> None:
    world = cluster(nodes=40)  # 5 % of 40 are 2
    for node in ("n1", "n2", "n3"):
        world.finding(on=node)

    decision = world.decide()

    assert decision.cordons == ["n1", "n2"]
    assert decision.reasons() == [Reason.BUDGET_EXHAUSTED]


def test_the_same_fault_on_many_nodes_at_once_trips_the_brake() -> None:
    world = cluster(nodes=100).running(gang(ranks=2))
    for i in range(5):
        world.finding(on=f"n{i}", code="xid-119", fault=Fault.DRIVER)

    decision = world.decide()

    assert (decision.cordons, decision.restarts) == ([], [])
    assert set(decision.reasons()) == {Reason.FLEET_BRAKE}
    assert [i for i in decision.incidents if i.metadata.name.startswith("fleet-brake-driver")]


def test_the_brake_does_not_keep_a_dead_gang_down() -> None:
    world = cluster(nodes=100).running(gang(ranks=2)).crash(rank=0)
    for i in range(5):
        world.finding(on=f"n{i}", fault=Fault.DRIVER)

    assert world.decide().restarts == ["llm"]


def test_a_node_that_a_person_cordoned_gets_our_taint_and_keeps_their_cordon() -> None:
    decision = cluster().change_node("n1", unschedulable=True).finding(on="n1").decide()

    body = decision.plan.actions[0].body
    note = msgspec.json.decode(body["metadata"]["annotations"]["rekindle.dev/quarantined-by"])
    assert "unschedulable" not in body["spec"]
    assert note["cordoned"] is False


def test_a_quarantine_keeps_foreign_taints_and_is_bound_to_the_node_that_was_seen() -> None:
    theirs = Taint("nvidia.com/gpu", "NoSchedule", "present")
    decision = cluster().change_node("n1", taints=(theirs,)).finding(on="n1").decide()

    patch = decision.plan.actions[0]
    assert [t["key"] for t in patch.body["spec"]["taints"]] == ["nvidia.com/gpu", "rekindle.dev/unhealthy"]
    assert (patch.uid, patch.version) == ("n1-uid", "1")


def test_a_persons_uncordon_is_completed_and_what_was_seen_before_acts_no_more() -> None:
    note = Quarantine(incident="n1-device-lost-1", fault="device-lost", at=NOW, cordoned=True)
    taints = (Taint("rekindle.dev/unhealthy", "NoSchedule", "device-lost"),)
    world = cluster().change_node("n1", unschedulable=False, quarantine=note, taints=taints)

    release = world.decide().plan.actions[0]
    after = cluster().change_node("n1", released_at=NOW).finding(on="n1").decide()

    assert release.what == "release-node"
    assert release.body["spec"] == {"taints": None, "unschedulable": None}
    assert after.plan.actions == ()


def test_a_second_look_at_a_quarantined_node_writes_nothing() -> None:
    world = cluster().finding(on="n1")
    first = world.decide()
    incident = first.incident
    note = Quarantine(incident=incident.metadata.name, fault="device-lost", at=NOW, cordoned=True)
    taints = (Taint("rekindle.dev/unhealthy", "NoSchedule", "device-lost"),)
    world.incidents[incident.metadata.name] = incident
    world.change_node("n1", unschedulable=True, quarantine=note, taints=taints)

    assert world.later(30).decide().plan.actions == ()


def test_an_incident_closes_when_nothing_of_it_is_left() -> None:
    world = cluster().running(gang()).crash(rank=1)
    incident = world.decide().incident
    world = cluster()
    world.incidents[incident.metadata.name] = incident

    (close,) = world.decide().plan.actions

    assert close.what == "close-incident"
    assert close.body["status"]["phase"] == "Closed"


def test_a_pod_that_just_began_to_go_away_may_be_its_jobs_own_end() -> None:
    world = cluster().running(gang())
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, deleting_since=NOW - timedelta(seconds=0.2))

    assert world.decide().restarts == []
    assert world.later(1.0).decide().restarts == ["llm"]


def test_a_crash_between_the_cordon_and_its_incident_loses_no_word_of_it() -> None:
    world = cluster().finding(on="n1")
    name = world.decide().incident.metadata.name
    note = Quarantine(incident=name, fault="device-lost", at=NOW, cordoned=True)
    taints = (Taint("rekindle.dev/unhealthy", "NoSchedule", "device-lost"),)

    decision = world.change_node("n1", unschedulable=True, quarantine=note, taints=taints).decide()

    assert decision.cordons == []
    (record,) = decision.incident.status.actions
    assert (record.action, record.outcome, record.at) == ("quarantine-node", Outcome.DONE, NOW)


def test_a_finding_of_a_clock_that_runs_ahead_does_not_undo_a_persons_release() -> None:
    world = cluster().change_node("n1", released_at=NOW - timedelta(seconds=5))

    decision = world.finding(on="n1", ago_s=-60).decide()

    assert decision.cordons == []
