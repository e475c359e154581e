"""Tests Resuming: from the chosen checkpoint until every rank runs."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from recover.api import Phase
from recover.api.reasons import Reason
from recover.model import PodPhase, Refusal, Template
from recover.model.actions import Patch
from tests.acting import acts, advanced, first_step, look, only_recovery, recovering, start_pods, step
from tests.builders import NOW, cluster, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import faulted

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
    """A kubelet writes the machine's own name into the label, for example ip-10-0-1-2; a cloud may give
    the Node another name."""
    job = gang(templates={"Worker": Template(tolerations=({"operator": "Exists"},))})
    world = recovering(cluster(nodes=8).running(job).finding(on="n1"))
    world.change_node("n1", labels={"kubernetes.io/hostname": "machine-1"})
    advanced(world, Phase.RESUMING)

    (start,) = [a for a in look(world).actions if isinstance(a, Patch)]

    kept_off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["machine-1"]}
    assert str(kept_off) in str(start.body)


def test_a_start_that_is_never_taken_is_told_and_tried_on() -> None:
    """Each try is refused, for example because of a quota on ConfigMaps, or because a ConfigMap of this
    name is immutable."""
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
    world.refused["configmaps/ml/llm-rekindle-pytorchjob"] = Refusal(world.now, words, may_pass=False)

    step(world)

    message = only_recovery(world).status.message
    assert names(message, words, "kubectl delete configmap -n ml llm-rekindle-pytorchjob")


@pytest.mark.parametrize(
    ("phase", "act", "reason", "refused"),
    [
        (Phase.STOPPING, "stop-gang", Reason.STOP_REFUSED, "pytorchjobs/ml/llm"),
        (Phase.RESUMING, "start-gang", Reason.START_REFUSED, "configmaps/ml/llm-rekindle-pytorchjob"),
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
    assert again.requeue_after_s == 10, "if it is refused once more"

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

    wait_s = look(world).requeue_after_s

    assert wait_s is not None
    assert step(world.later(300)) == ["recovery-resuming"]
