"""Choosing, resuming, verifying: from the checkpoint to the first new step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from detectors.wire.contract import Edge, Fault
from recover.api import Phase
from recover.api.reasons import EventReason, Reason
from recover.model import Mount, PodPhase, Refusal, Template, Terminal, Volume, VolumeKind
from recover.model.actions import Ensure, Patch
from tests.acting import (
    acts,
    advanced,
    end_pods,
    first_step,
    look,
    only_recovery,
    recovering,
    scanned,
    start_pods,
    step,
)
from tests.builders import BOOT, NOW, Worlds, cluster, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import choice, faulted

# --- choosing ---------------------------------------------------------------------------------------------


def chosen(world: Worlds, message: str | None = None, *, wait_s: float = 0.0) -> Worlds:
    """Up to the end of Choosing; the scan says `message`, or nothing in time."""
    advanced(world, Phase.CHOOSING)
    step(world)
    if message is not None:
        scanned(world, message)
    assert step(world.later(wait_s))[0] == "recovery-resuming"
    return world


def test_each_start_removes_what_somebody_else_has_put_into_the_environment() -> None:
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))

    (found,) = [a for a in look(world).actions if isinstance(a, Ensure)]

    assert found.foreign is not None
    assert found.foreign.reason == EventReason.VARIABLES_REMOVED
    assert found.foreign.regarding["name"] == "llm"


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


@pytest.mark.parametrize("recreate", [False, True])
def test_what_the_ranks_are_told_goes_with_the_job_unless_one_made_anew_is_to_read_it(recreate: bool) -> None:
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))
    notes = world.gangs["llm-uid"].annotations
    word = {"rekindle.dev/on-terminal": "recreate"} if recreate else {}
    world.change_gang(annotations={**notes, **word})

    (found,) = [a for a in look(world).actions if isinstance(a, Ensure)]

    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llm", "uid": "llm-uid"}
    assert found.body["metadata"]["ownerReferences"] == (None if recreate else [owner])


def test_once_the_gang_has_resumed_no_checkpoint_is_told_to_what_its_framework_starts_later() -> None:
    """A container that restarts in its pod reads the ConfigMap anew, weeks after the checkpoint was made."""
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))
    advanced(world, Phase.VERIFYING)
    first_step(world, 81)

    found = look(world).actions

    assert [getattr(act, "what", "") for act in found[:3]] == [
        "take-checkpoint-back",
        "take-checkpoint-back",
        "recovery-succeeded",
    ]
    assert {act.name: (act.body, act.creates) for act in found if isinstance(act, Ensure)} == {
        name: ({"data": {"REKINDLE_RESUME_FROM": None, "REKINDLE_RESUME_STEP": None}}, False)
        for name in ("llm-rekindle-pytorchjob", "llm-rekindle")
    }


@pytest.mark.parametrize(
    ("annotation", "message", "wait_s", "why"),
    [
        ("/ckpt", "Traceback (most recent call last)", 0, ["Traceback"]),
        ("/ckpt", "", 0, [0]),
        ("/ckpt", '{"found": 3}', 0, [3]),
        ("/ckpt", "{}", 0, []),
        ("/ckpt", '{"error": "permission denied"}', 0, ["permission denied"]),
        ("/ckpt", choice(80, "x" * 512), 0, ["x" * 80]),
        ("/ckpt", choice(80, "/etc"), 0, ["'/etc'"]),
        ("/ckpt", choice(80, "../other"), 0, ["'../other'"]),
        ("/ckpt", choice(80, ""), 0, ["''"]),
        ("/ckpt", choice(80, "."), 0, ["'.'"]),
        ("/ckpt", choice(80, "step-80\n\nWho is to blame\n  - node n7"), 0, [r"'step-80\n\nWho"]),
        ("/ckpt", choice(80, "step-80\0"), 0, [r"'step-80\x00'"]),
        ("/ckpt", choice(80, "step-80\x1b[2J"), 0, [r"'step-80\x1b[2J'"]),
        ("/ckpt", choice(80, "step-80\u202e"), 0, [r"'step-80\u202e'"]),
        ("/ckpt", choice(-1), 0, [-1]),
        ("/ckpt", choice(2**63), 0, [2**63]),
        ("/ckpt", None, 30, [30]),
        ("ckpt", None, 0, ["'ckpt'"]),
        ("/elsewhere", None, 0, ["/elsewhere"]),
        (None, None, 0, ["rekindle.dev/checkpoint"]),
    ],
)
def test_without_a_verified_checkpoint_the_frameworks_own_logic_decides_and_the_reason_is_told(
    annotation: str | None, message: str | None, wait_s: float, why: list[object]
) -> None:
    world = faulted(checkpoint=annotation) if annotation is not None else faulted()
    if message is None and wait_s == 0:
        advanced(world, Phase.RESUMING)
    else:
        chosen(world, message, wait_s=wait_s)

    status = only_recovery(world).status
    assert status.reason == Reason.CHECKPOINT_UNVERIFIED
    assert status.checkpoint is not None
    assert status.checkpoint.reason
    assert names(status.checkpoint.reason, *why)
    assert environment(world)["REKINDLE_RESUME_FROM"] is None


def test_what_a_scan_says_of_others_is_one_line_each_and_forges_no_other() -> None:
    """Code in a scan pod may answer with anything, and people read it as our words."""
    forged = "step-90\n\nForged\n  - node n7"
    newer = {"step": 90, "format": "", "complete": False, "bytes": 0}
    message = msgspec.json.encode(
        {
            **msgspec.json.decode(choice(80, reason="x\n\x1b[2Jy")),
            "rejected": [
                {**newer, "path": forged, "reason": "cut"},
                {**newer, "path": "", "reason": "cut"},
                {**newer, "path": "step-90", "reason": "cut\nForged\x07"},
            ],
            "tracker": "a\nb",
            "repaired": ["c\nd"],
            "digests": "e\x00f",
        }
    ).decode()

    checkpoint = only_recovery(chosen(faulted(checkpoint="/ckpt"), message)).status.checkpoint

    assert checkpoint is not None
    assert checkpoint.verified
    assert checkpoint.reason == "x \ufffd[2Jy"
    assert [(c.path, c.reason) for c in checkpoint.rejected] == [("step-90", "cut Forged\ufffd")]
    assert (checkpoint.tracker, checkpoint.repaired, checkpoint.digests) == ("a b", ["c d"], "e\ufffdf")


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
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.PODS_STUCK)


def test_a_node_is_kept_out_by_the_host_name_of_its_label_which_need_not_be_the_nodes() -> None:
    """A kubelet writes the machine's own name there, as ip-10-0-1-2; a cloud may name the Node otherwise."""
    job = gang(templates={"Worker": Template(tolerations=({"operator": "Exists"},))})
    world = recovering(cluster(nodes=8).running(job).finding(on="n1"))
    world.change_node("n1", labels={"kubernetes.io/hostname": "machine-1"})
    advanced(world, Phase.RESUMING)

    (start,) = [a for a in look(world).actions if isinstance(a, Patch)]

    kept_off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["machine-1"]}
    assert str(kept_off) in str(start.body)


def test_a_start_that_is_never_taken_is_told_and_tried_on() -> None:
    """A quota on ConfigMaps, or one of that name that is immutable: each try is refused."""
    world = faulted()
    advanced(world, Phase.RESUMING)
    assert acts(look(world)) == ["start-gang"]

    assert step(world.later(601)) == ["recovery-resuming"]

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.RESUMING, Reason.START_REFUSED)
    assert names(status.message, "llm-rekindle-pytorchjob", 600)
    assert acts(look(world)) == ["start-gang"]
    assert advanced(world, Phase.VERIFYING).status.reason == ""


def test_a_start_that_an_immutable_configmap_refuses_says_how_a_person_helps() -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    words = "422 Invalid: data: Forbidden: field is immutable when `immutable` is set"
    world.refused["ml/llm-rekindle-pytorchjob"] = Refusal(world.now, words, may_pass=False)

    step(world)

    message = only_recovery(world).status.message
    assert names(message, words, "kubectl delete configmap -n ml llm-rekindle-pytorchjob")


@pytest.mark.parametrize(
    ("phase", "act", "reason", "refused"),
    [
        (Phase.STOPPING, "stop-gang", Reason.STOP_REFUSED, "ml/llm"),
        (Phase.RESUMING, "start-gang", Reason.START_REFUSED, "ml/llm-rekindle-pytorchjob"),
    ],
)
def test_what_the_api_server_refuses_is_told_at_once_in_its_words_and_tried_on(
    phase: Phase, act: str, reason: Reason, refused: str
) -> None:
    world = faulted()
    advanced(world, phase)
    assert act in acts(look(world))
    words = f"422 Invalid: jobs are changed by their owners only{'!' * 2000}"
    world.refused[refused] = Refusal(world.later(1).now, words, may_pass=False)

    assert step(world)[0] == f"recovery-{phase.lower()}"

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (phase, reason)
    assert words.partition("!")[0] in status.message
    assert acts(look(world)) == [], "not at each change in the cluster"
    again = look(world.later(10))
    assert act in acts(again)
    assert again.look_again_s == 10, "if it is refused once more"

    step(world)
    assert step(world.later(5000)) == [f"recovery-{phase.lower()}"]
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (phase, ""), "taken at last"
    assert words.partition("!")[0] not in status.message
    assert not acts(look(world)), "all its time begins now"


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
    assert next(iter(world.pods["llm-uid"].values())).unschedulable in status.message
    assert acts(look(world.later(3600))) == []

    world.pods["llm-uid"].clear()
    start_pods(world)
    assert step(world) == ["recovery-verifying"]


def test_a_blocked_gang_says_how_many_ranks_run_as_they_come() -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    step(world)
    start_pods(world.later(1), running=False)
    step(world.later(600))
    uid, pod = next(iter(world.pods["llm-uid"].items()))
    ours, schedulers, _ = only_recovery(world).status.message.partition(pod.unschedulable)
    assert schedulers
    assert names(ours, 0, 4)

    world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, phase=PodPhase.RUNNING)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.NO_CAPACITY)
    assert names(status.message.partition(pod.unschedulable)[0], 1, 4)
    assert acts(look(world.later(3600))) == []


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


def test_who_holds_a_stopped_gang_keeps_it_stopped_until_they_let_it_go() -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    world.change_gang(annotations={"rekindle.dev/hold": "true", "rekindle.dev/hold-reason": "moving racks"})

    assert step(world)[0] == "recovery-blocked"

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.HELD)
    assert "moving racks" in status.message
    assert acts(look(world.later(3600))) == []

    world.change_gang(annotations={})
    assert step(world) == ["recovery-resuming"]
    assert only_recovery(world).status.deadline is not None
    assert "start-gang" in step(world)


def test_a_persons_reason_is_kept_as_one_line_that_steers_no_terminal() -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    said = "moving\n  racks\x9b2J\u202e"
    world.change_gang(annotations={"rekindle.dev/hold": "true", "rekindle.dev/hold-reason": said})
    step(world)

    assert "moving racks\ufffd2J\ufffd" in only_recovery(world).status.message


def test_a_hold_that_ends_by_its_time_needs_nobody_to_start_the_gang() -> None:
    world = faulted()
    advanced(world, Phase.RESUMING)
    until = (world.now + timedelta(minutes=5)).isoformat()
    world.change_gang(annotations={"rekindle.dev/hold-until": until})
    assert step(world)[0] == "recovery-blocked"

    wait_s = look(world).look_again_s

    assert wait_s is not None
    assert step(world.later(300)) == ["recovery-resuming"]


# --- verifying --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (81, ""),
        (80, ""),
        (79, Reason.RESUMED_OLDER),
        (60, Reason.RESUMED_OLDER),
        (0, Reason.RESUMED_FROM_SCRATCH),
    ],
)
def test_the_first_new_step_tells_from_where_the_gang_began(first: int, reason: str) -> None:
    world = faulted(checkpoint="/ckpt")
    chosen(world, choice(80))
    advanced(world, Phase.VERIFYING)

    first_step(world, first)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, reason)


@pytest.mark.parametrize(("reads", "expected"), [(True, ("True", "Read")), (False, ("False", "NotRead"))])
def test_whether_the_ranks_read_what_they_are_told_is_said(reads: bool, expected: tuple[str, str]) -> None:
    world = chosen(faulted(checkpoint="/ckpt"), choice(80))
    advanced(world, Phase.VERIFYING)
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, environments=("llm-rekindle-pytorchjob",) if reads else ())

    first_step(world, 81)
    step(world)

    (found,) = [c for c in only_recovery(world).status.conditions if c.type == "EnvironmentDelivered"]
    assert (found.status, found.reason) == expected


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


def test_one_line_with_a_step_proves_nothing_and_the_second_one_has_as_long_as_the_first() -> None:
    """A job that prints each hundredth step, of 20 s each."""
    world = faulted(attempts_per_cause="2")
    advanced(world, Phase.VERIFYING)
    world.later(2000)
    first_step(world, 100)
    for name, health in world.health.items():
        pods = [
            msgspec.structs.replace(pod, edge=Edge.STARTED, first_step=None, first_step_at=None)
            for pod in health.status.pods
        ]
        status = msgspec.structs.replace(health.status, pods=pods)
        world.health[name] = msgspec.structs.replace(health, status=status)

    assert step(world) == []
    assert acts(look(world.later(2000))) == [], "the deadline has passed, and the second line is not due yet"
    assert only_recovery(world).status.phase is Phase.VERIFYING

    assert step(world.later(700)) == ["recovery-stopping"]


def test_a_line_of_the_future_is_waited_for_no_longer_than_any_second_line() -> None:
    """The clock of its node is wrong by years, or its agent lies."""
    world = faulted(attempts_per_cause="2")
    advanced(world, Phase.VERIFYING)
    first_step(world, 100)
    end = datetime(2199, 1, 1, tzinfo=UTC)
    for name, health in world.health.items():
        pods = [
            msgspec.structs.replace(pod, edge=Edge.STARTED, first_step=None, last_step_at=end)
            for pod in health.status.pods
        ]
        status = msgspec.structs.replace(health.status, pods=pods)
        world.health[name] = msgspec.structs.replace(health, status=status)

    assert acts(look(world.later(5300))) == []
    assert step(world.later(200)) == ["recovery-stopping"]


@pytest.mark.parametrize(("by_a_node", "held_against_it"), [(True, []), (False, [80])])
def test_a_nodes_fault_before_the_first_step_says_nothing_about_the_checkpoint(
    by_a_node: bool, held_against_it: list[int]
) -> None:
    """Two such faults would otherwise have a good checkpoint passed over."""
    world = chosen(faulted(checkpoint="/ckpt"), choice(80))
    advanced(world, Phase.VERIFYING)
    recovering(world.finding(on="n5") if by_a_node else world.crash(rank=1))

    advanced(world, Phase.STOPPING)

    assert only_recovery(world).status.attempt == 2
    assert only_recovery(world).status.fruitless == held_against_it


def test_a_fault_of_a_node_where_the_attempt_before_ran_keeps_the_next_one_off_it() -> None:
    """The first attempt ran on n0 to n3, the second on n4 to n7; n5 is judged when its pods are gone."""
    world = faulted(attempts_per_cause="5")
    advanced(world, Phase.VERIFYING)
    step(world.later(2700))
    step(world)
    end_pods(world)
    world.finding(on="n5")

    recovering(world)
    step(world)

    status = only_recovery(world).status
    assert (status.attempt, status.nodes) == (2, ["n4", "n5", "n6", "n7"])
    assert "n5" in status.avoid_nodes


@pytest.mark.parametrize("boot", [BOOT, "another-boot"])
def test_a_node_that_was_silent_for_a_while_may_take_ranks_again_and_others_are_preferred(boot: str) -> None:
    """n1 is quarantined, and needs no affinity. With n2 kept out, a full cluster would lack room."""
    world = faulted()
    step(world)
    step(world)
    recovering(world.not_ready("n2", ago_s=1))
    step(world)
    assert only_recovery(world).status.avoid_nodes == ["n1", "n2"]

    world.change_node("n2", ready=True, ready_since=world.now, boot_id=boot)
    end_pods(world)
    advanced(world, Phase.VERIFYING)

    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    assert (mark.avoided, mark.suspected) == ((), ("n2",))


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
