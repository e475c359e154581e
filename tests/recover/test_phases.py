"""The recovery of one gang, phase by phase: each look is applied to a world of views, nothing runs."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.contract import Fault, Severity
from recover.actions import Ensure
from recover.api import Phase
from recover.model import Container, Mount, PodPhase, Taint, Template, Terminal, Volume, VolumeKind
from recover.phases import advance
from recover.plan import plan
from recover.reasons import Reason
from tests.acting import (
    acts,
    advanced,
    apply,
    end_pods,
    first_step,
    look,
    only_recovery,
    recovering,
    scanned,
    start_pods,
    step,
)
from tests.builders import NOW, Worlds, cluster, gang

CLAIM = Volume(
    name="ckpt",
    kind=VolumeKind.CLAIM,
    source={"claimName": "ckpt"},
    mounts=(Mount("/ckpt"),),
)


def faulted(**annotations: str) -> Worlds:
    """A gang on n0 to n3 whose node n1 lost its GPU; n4 to n7 are spare; the Recovery is Planned."""
    job = gang(
        annotations={f"rekindle.dev/{name.replace('_', '-')}": value for name, value in annotations.items()},
        templates={"Worker": Template(volumes=(CLAIM,))},
    )
    return recovering(cluster(nodes=8).running(job).finding(on="n1"))


def choice(step_: int = 80, path: str = "step-80") -> str:
    chosen = {"step": step_, "path": path, "format": "torch-dcp", "complete": True, "reason": "", "bytes": 9}
    return msgspec.json.encode({"chosen": chosen, "found": 1}).decode()


# --- the whole path ---------------------------------------------------------------------------------------


def test_a_gang_is_stopped_scanned_resumed_and_proven_by_its_own_first_step() -> None:
    world = faulted(checkpoint="/ckpt")
    assert step(world) == ["recovery-stopping"]
    assert step(world) == ["stop-gang", "create-scan"]
    end_pods(world)
    assert step(world) == ["recovery-choosing"]
    assert step(world) == ["release-scan"]
    scanned(world, choice())
    assert step(world) == ["recovery-resuming"]
    assert step(world) == ["start-gang"]
    start_pods(world.later(1))
    assert step(world) == ["recovery-verifying", "remove-scan"]
    first_step(world.later(9), 81)
    assert step(world) == ["recovery-succeeded"]

    status = only_recovery(world).status
    assert [t.phase for t in status.phases] == [
        Phase.STOPPING,
        Phase.CHOOSING,
        Phase.RESUMING,
        Phase.VERIFYING,
        Phase.SUCCEEDED,
    ]
    assert (status.last_step, status.resumed_step, status.lost_steps) == (100, 81, 20)
    assert status.lost_gpu_s == pytest.approx(11 * 32)
    assert status.totals is not None
    assert status.totals.recoveries == 1
    assert acts(look(world)) == []


def test_an_act_that_is_done_is_not_repeated_at_the_next_look() -> None:
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.STOPPING)
    assert step(world) == ["stop-gang", "create-scan"]
    assert acts(look(world)) == []

    end_pods(world)
    advanced(world, Phase.CHOOSING)
    assert step(world) == ["release-scan"]
    assert acts(look(world)) == []

    scanned(world, choice())
    advanced(world, Phase.RESUMING)
    assert step(world) == ["start-gang"]
    assert acts(look(world)) == ["remove-scan"]


# --- later causes -----------------------------------------------------------------------------------------


def test_a_crash_after_the_resume_begins_the_next_attempt_although_the_first_incident_is_still_open() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.VERIFYING)
    new = next(iter(world.pods["llm-uid"].values()))
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(5).now)
    world.pods["llm-uid"][new.uid] = msgspec.structs.replace(new, phase=PodPhase.FAILED, containers=(failed,))

    recovering(world)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.STOPPING, 2)


def test_a_crash_before_the_resume_joins_and_widens_what_is_avoided() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    world.finding(on="n2")

    recovering(world)
    assert step(world) == ["recovery-stopping"]

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.STOPPING, 1)
    assert status.avoid_nodes == ["n1", "n2"]
    assert len(status.causes) == 2


def test_a_pending_fault_does_not_restart_a_gang_that_is_verifying() -> None:
    world = faulted()
    advanced(world, Phase.VERIFYING)
    world.finding(on="n5", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)

    recovering(world)

    assert acts(look(world)) == []


def test_a_cause_that_an_earlier_recovery_took_up_does_not_act_again_in_the_next_one() -> None:
    world = faulted()
    advanced(world, Phase.VERIFYING)
    first_step(world, 81)
    step(world)
    lost = next(iter(world.pods["llm-uid"].values()))
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(60).now)
    world.pods["llm-uid"][lost.uid] = msgspec.structs.replace(
        lost, phase=PodPhase.FAILED, containers=(failed,)
    )
    recovering(world)
    (second,) = [r for r in world.recoveries.values() if r.active]

    for _ in range(2):
        apply(world, advance(second, world.world(), world.settings, world.now))
        second = world.recoveries[f"ml/{second.metadata.name}"]

    assert [cause.fault for cause in second.status.causes] == [Fault.APPLICATION]


def test_as_many_attempts_as_are_allowed_then_the_gang_stays_suspended_and_a_person_is_called() -> None:
    world = recovering(
        cluster(nodes=8).running(gang(annotations={"rekindle.dev/attempts-per-cause": "2"})).crash(rank=0)
    )
    for _ in range(2):
        advanced(world, Phase.VERIFYING)
        lost = next(iter(world.pods["llm-uid"].values()))
        failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(5).now)
        world.pods["llm-uid"][lost.uid] = msgspec.structs.replace(
            lost, phase=PodPhase.FAILED, containers=(failed,)
        )
        recovering(world)
        step(world)

    status = advanced(world, Phase.ESCALATED).status
    assert status.reason == Reason.CRASH_LOOP
    assert [t.phase for t in status.phases].count(Phase.RESUMING) == 2
    assert world.gangs["llm-uid"].suspended


def test_restarts_for_one_kind_of_fault_weeks_apart_are_no_crash_loop() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=0))
    advanced(world, Phase.VERIFYING)
    first_step(world, 81)
    step(world)
    done = only_recovery(world)
    for number in range(2, 6):
        metadata = msgspec.structs.replace(
            done.metadata, name=f"old-{number}", creation_timestamp=NOW - timedelta(days=40 - number)
        )
        spec = msgspec.structs.replace(done.spec, number=number, incident=f"old-{number}")
        world.recoveries[f"ml/old-{number}"] = msgspec.structs.replace(done, metadata=metadata, spec=spec)
    lost = next(iter(world.pods["llm-uid"].values()))
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(60).now)
    world.pods["llm-uid"][lost.uid] = msgspec.structs.replace(
        lost, phase=PodPhase.FAILED, containers=(failed,)
    )
    recovering(world)
    world.recoveries = {k: r for k, r in world.recoveries.items() if r.spec.number != 1}
    (name,) = [k for k, r in world.recoveries.items() if r.active]

    for _ in range(4):
        apply(world, advance(world.recoveries[name], world.world(), world.settings, world.now))
        end_pods(world)

    assert world.recoveries[name].status.phase is Phase.RESUMING


# --- stopping ---------------------------------------------------------------------------------------------


def test_consent_that_is_withdrawn_before_the_stop_is_heard_and_the_gang_is_watched_on() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    world.change_gang(labels={"rekindle.dev/auto-recovery": "disabled"})

    assert step(world) == ["recovery-failed"]
    assert only_recovery(world).status.reason == Reason.NOT_OPTED_IN

    world.change_gang(labels={"rekindle.dev/auto-recovery": "enabled"}).later(600).crash(rank=2)
    assert world.decide().restarts == ["llm"]


def test_a_gang_that_somebody_starts_again_right_after_the_stop_is_left_to_them() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    step(world)
    world.change_gang(suspended=False)

    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER)


def test_failed_pods_that_a_job_keeps_do_not_hold_the_recovery_up() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.STOPPING)
    step(world)
    end_pods(world, keep_failed=True)

    step(world)

    assert [p.phase for p in world.pods["llm-uid"].values()] == [PodPhase.FAILED]
    assert only_recovery(world).status.phase is Phase.CHOOSING


def test_pods_that_never_end_on_a_living_node_are_brought_to_a_person() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    step(world)

    assert acts(look(world.later(179))) == []
    step(world.later(1))

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.PODS_STUCK)
    assert "llm-worker-0 on n0" in status.message


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.STOPPING, Phase.CHOOSING, Phase.VERIFYING])
def test_a_job_that_is_deleted_needs_nothing_more(phase: Phase) -> None:
    world = faulted()
    advanced(world, phase)
    world.change_gang(deleting=True)

    assert step(world) == ["recovery-failed"]
    assert only_recovery(world).status.reason == Reason.JOB_GONE


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.STOPPING, Phase.RESUMING, Phase.VERIFYING])
def test_a_job_that_its_framework_fails_for_good_meanwhile_is_escalated(phase: Phase) -> None:
    world = faulted()
    advanced(world, phase)
    world.change_gang(terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded"))

    step(world)

    assert only_recovery(world).status.reason == Reason.TERMINAL_JOB


# --- fencing ----------------------------------------------------------------------------------------------


def fencing(volumes: tuple[Volume, ...] = (CLAIM,)) -> Worlds:
    """The rank on n2 cannot end: its node is no longer heard of. All others have ended."""
    world = faulted()
    advanced(world, Phase.STOPPING)
    step(world)
    world.not_ready("n2", ago_s=40)
    lost = msgspec.structs.replace(world.pods["llm-uid"]["llm-2-uid"], volumes=volumes)
    world.pods["llm-uid"] = {lost.uid: lost}
    assert step(world) == ["recovery-fencing"]
    return world


def test_a_pod_on_a_silent_node_is_not_freed_without_a_proof_and_a_person_is_called_in_time() -> None:
    world = fencing()
    assert acts(look(world.later(299))) == []

    step(world.later(1))

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.NEEDS_FENCING_PROOF)
    assert acts(look(world.later(86400))) == []


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("proof", ["node deleted", "out of service"])
def test_a_proof_frees_the_pods_at_any_time_and_the_recovery_goes_on(proof: str, blocked: bool) -> None:
    world = fencing()
    if blocked:
        step(world.later(300))
    if proof == "node deleted":
        del world.nodes["n2"]
    else:
        world.change_node("n2", taints=(Taint("node.kubernetes.io/out-of-service", "NoExecute"),))

    assert step(world) == ["fail-pod", "free-pod"]
    assert step(world) == ["recovery-choosing"]


def test_harmless_volumes_are_given_up_after_the_wait_and_not_before() -> None:
    scratch = Volume(name="tmp", kind=VolumeKind.EMPTY_DIR)
    world = fencing((scratch,))

    assert acts(look(world.later(259))) == []
    assert step(world.later(1)) == ["fail-pod", "free-pod"]


def test_a_pod_whose_node_is_heard_again_ends_by_itself() -> None:
    world = fencing()
    world.change_node("n2", ready=True)
    assert acts(look(world)) == []

    end_pods(world)
    assert step(world) == ["recovery-choosing"]


def test_a_boot_that_an_old_incident_remembers_proves_nothing_about_a_pod_made_since() -> None:
    world = fencing()
    (name,) = world.incidents
    incident = world.incidents[name]
    old = msgspec.structs.replace(
        incident.spec, node="n2", boot_id="a-boot-long-ago", detected_at=NOW - timedelta(days=3)
    )
    world.incidents[name] = msgspec.structs.replace(incident, spec=old)
    assert acts(look(world)) == []

    fresh = msgspec.structs.replace(old, detected_at=NOW)
    world.incidents[name] = msgspec.structs.replace(incident, spec=fresh)
    assert acts(look(world)) == ["fail-pod", "free-pod"]


def test_a_gang_that_somebody_starts_while_a_node_is_fenced_is_left_to_them() -> None:
    world = fencing()
    world.change_gang(suspended=False)

    step(world)

    assert only_recovery(world).status.reason == Reason.FOREIGN_OWNER


# --- choosing ---------------------------------------------------------------------------------------------


def chosen(world: Worlds, message: str | None = None, *, wait_s: float = 0.0) -> Worlds:
    """Up to the end of Choosing; the scan says `message`, or nothing in time."""
    advanced(world, Phase.CHOOSING)
    step(world)
    if message is not None:
        scanned(world, message)
    assert step(world.later(wait_s))[0] == "recovery-resuming"
    return world


def environment(world: Worlds) -> dict[str, str | None]:
    (found,) = [a for a in look(world).actions if isinstance(a, Ensure)]
    data: dict[str, str | None] = found.body["data"]
    return data


def test_a_verified_choice_is_told_to_the_ranks() -> None:
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))

    assert environment(world) == {
        "REKINDLE_RECOVERY": only_recovery(world).metadata.name,
        "REKINDLE_RESUME_FROM": "/ckpt/llm/step-80",
        "REKINDLE_RESUME_STEP": "80",
    }


@pytest.mark.parametrize(
    ("annotation", "message", "wait_s", "why"),
    [
        ("/ckpt", "Traceback (most recent call last)", 0, "not a scan result"),
        ("/ckpt", "", 0, "not a scan result"),
        ("/ckpt", '{"found": 3}', 0, "none of the 3"),
        ("/ckpt", "{}", 0, "no checkpoint yet"),
        ("/ckpt", '{"error": "permission denied"}', 0, "permission denied"),
        ("/ckpt", choice(80, "x" * 512), 0, "not a path"),
        ("/ckpt", choice(80, "/etc"), 0, "not a path"),
        ("/ckpt", choice(80, "../other"), 0, "not a path"),
        ("/ckpt", choice(-1), 0, "step"),
        ("/ckpt", choice(2**63), 0, "step"),
        ("/ckpt", None, 30, "did not end within 30 s"),
        ("ckpt", None, 0, "not absolute"),
        ("/elsewhere", None, 0, "no volume"),
        (None, None, 0, "has no annotation"),
    ],
)
def test_without_a_verified_checkpoint_the_frameworks_own_logic_decides_and_the_reason_is_told(
    annotation: str | None, message: str | None, wait_s: float, why: str
) -> None:
    world = faulted(checkpoint=annotation) if annotation is not None else faulted()
    if message is None and wait_s == 0:
        advanced(world, Phase.RESUMING)
    else:
        chosen(world, message, wait_s=wait_s)

    status = only_recovery(world).status
    assert status.reason == Reason.CHECKPOINT_UNVERIFIED
    assert status.checkpoint is not None
    assert why in status.checkpoint.reason
    assert environment(world)["REKINDLE_RESUME_FROM"] is None


def test_checkpoints_on_the_nodes_own_disk_are_never_mounted_by_us() -> None:
    world = faulted(checkpoint="/ckpt")
    disk = Volume(name="d", kind=VolumeKind.HOST_PATH, source={"path": "/"}, mounts=(Mount("/ckpt"),))
    world.change_gang(templates={"": Template(volumes=(disk,))})

    advanced(world, Phase.RESUMING)

    assert world.scans == {}
    assert only_recovery(world).status.reason == Reason.CHECKPOINT_UNVERIFIED


def test_the_resume_waits_while_a_verdict_about_one_of_the_gangs_nodes_is_open() -> None:
    world = faulted()
    advanced(world, Phase.CHOOSING)
    world.finding(on="n3", fault=Fault.DRIVER, final=False, ago_s=0.5)

    held = look(world)
    assert acts(held) == []
    assert held.look_again_s == pytest.approx(1.5)
    assert step(world.later(2)) == ["recovery-resuming"]


# --- resuming ---------------------------------------------------------------------------------------------


def test_nothing_is_started_over_a_living_pod_and_its_refusal_to_end_has_an_end() -> None:
    world = faulted()
    living = world.pods["llm-uid"]["llm-3-uid"]
    advanced(world, Phase.RESUMING)
    world.pods["llm-uid"] = {living.uid: living}

    assert acts(look(world.later(599))) == []
    step(world.later(1))

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.PODS_STUCK)


@pytest.mark.parametrize("suspended_by_them", [False, True])
def test_whoever_else_decides_when_the_gang_runs_is_not_fought(suspended_by_them: bool) -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    if suspended_by_them:
        step(world)
    world.change_gang(suspended=suspended_by_them)

    step(world)

    assert only_recovery(world).status.reason == Reason.FOREIGN_OWNER


def test_a_gang_that_finds_no_room_is_blocked_with_the_schedulers_words_and_goes_on_when_it_fits() -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    step(world)
    start_pods(world.later(1), running=False)
    assert acts(look(world)) == []

    step(world.later(600))
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.NO_CAPACITY)
    assert "1 Insufficient nvidia.com/gpu" in status.message
    assert acts(look(world.later(3600))) == []

    world.pods["llm-uid"].clear()
    start_pods(world)
    assert step(world) == ["recovery-verifying"]


def test_a_clock_that_runs_ahead_of_the_api_servers_does_not_hide_the_new_ranks() -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    step(world)
    start_pods(world)
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, created=NOW - timedelta(seconds=2))

    assert step(world) == ["recovery-verifying"]
    first_step(world, 81)
    assert step(world) == ["recovery-succeeded"]


def test_a_block_that_a_newer_version_made_is_left_as_it_is() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    ((key, recovery),) = world.recoveries.items()
    status = msgspec.structs.replace(recovery.status, phase=Phase.BLOCKED, reason="NotInventedYet")
    world.recoveries[key] = msgspec.structs.replace(recovery, status=status)

    assert acts(look(world)) == []


# --- verifying --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"), [(81, ""), (60, Reason.RESUMED_OLDER), (0, Reason.RESUMED_FROM_SCRATCH)]
)
def test_the_first_new_step_tells_from_where_the_gang_began(first: int, reason: str) -> None:
    world = faulted(checkpoint="/ckpt")
    chosen(world, choice(80))
    advanced(world, Phase.VERIFYING)

    first_step(world, first)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, reason)


def test_no_step_in_time_is_another_attempt_and_in_the_end_a_person() -> None:
    world = faulted(attempts_per_cause="2")
    advanced(world, Phase.VERIFYING)
    assert acts(look(world.later(2699))) == []

    assert step(world.later(1)) == ["recovery-stopping"]
    assert only_recovery(world).status.attempt == 2

    advanced(world, Phase.VERIFYING)
    step(world.later(2700))
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.NO_STEPS)


def test_a_job_that_completes_before_its_first_step_is_seen_has_succeeded() -> None:
    world = faulted()
    advanced(world, Phase.VERIFYING)
    world.change_gang(terminal=Terminal(succeeded=True))

    step(world)

    assert only_recovery(world).status.reason == Reason.JOB_COMPLETED


def test_the_cost_counts_every_rank_of_the_attempt_also_those_that_had_ended() -> None:
    world = cluster(nodes=8).running(gang())
    for rank in range(4):
        world.crash(rank=rank)

    assert only_recovery(recovering(world)).spec.gpus == 32


def test_a_gang_that_somebody_suspends_before_its_first_new_step_is_left_to_them() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.VERIFYING)
    world.change_gang(suspended=True)

    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER)


def test_a_node_that_goes_silent_while_its_gang_is_stopped_is_one_more_cause() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    assert step(world) == ["recovery-stopping"]
    assert "stop-gang" in step(world)
    world.later(5).not_ready("n2", ago_s=1)

    apply(world, plan(world.world(), world.settings, world.now))
    step(world)

    status = only_recovery(world).status
    assert {cause.fault for cause in status.causes} == {Fault.APPLICATION, Fault.HOST}
    assert status.avoid_nodes == ["n2"]


def test_once_a_hold_has_ended_the_same_failure_restarts_the_gang_after_all() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    world.change_gang(annotations={"rekindle.dev/hold": "true"})
    step(world)
    assert only_recovery(world).status.phase is Phase.FAILED

    world.change_gang(annotations={})

    assert world.decide().restarts == ["llm"]


def test_new_ranks_that_crash_are_seen_although_the_controllers_clock_is_ahead() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.VERIFYING)
    pods = world.pods["llm-uid"]
    for uid, pod in list(pods.items()):
        pods[uid] = msgspec.structs.replace(pod, uid=f"new-{uid}", created=NOW - timedelta(seconds=30))
    (first, *_) = pods.values()
    ended = Container(name="train", running=False, exit_code=1, finished_at=world.now)
    pods[first.uid] = msgspec.structs.replace(first, phase=PodPhase.FAILED, containers=(ended,))

    apply(world, plan(world.world(), world.settings, world.now))
    step(world)

    assert only_recovery(world).status.attempt == 2


def test_a_fault_minutes_after_the_stop_on_a_node_of_the_gang_still_keeps_it_off_that_node() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    assert step(world) == ["recovery-stopping"]
    assert "stop-gang" in step(world)
    end_pods(world)
    world.later(170).finding(on="n3")

    apply(world, plan(world.world(), world.settings, world.now))
    step(world)

    assert only_recovery(world).status.avoid_nodes == ["n3"]
