"""Ranks that are lost without a Failed pod as evidence: deleted, gone, or silent on a dead node."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault
from detectors.wire.training import Edge, LogError
from recover.api import Blame, Phase
from recover.diagnose import first_loss
from recover.diagnose.diagnosis import Loss
from recover.diagnose.first_loss import exit_words
from recover.diagnose.ranks import losses
from recover.k8s.kinds import RECOVERIES
from recover.model import DEPARTED_MAX, Container, Pod, PodPhase
from recover.model.actions import Create
from tests.acting import advanced, only_recovery, recovering, step
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names


def deleted(world: Worlds, rank: int, *, ago_s: float = 3.0, gone: bool, exit_code: int | None = None) -> Pod:
    """Marks the rank's pod as deleted by somebody. If it is `gone`, only the controller's own memory still
    has the pod."""
    pods = world.pods["llm-uid"]
    pod = pods[f"llm-{rank}-uid"]
    at = world.now - timedelta(seconds=ago_s)
    pod = msgspec.structs.replace(pod, deleting_since=at)
    if exit_code is not None:
        pod = ended(pod, exit_code, at + timedelta(seconds=1))
    if gone:
        del pods[pod.uid]
        world.departed["llm-uid"] = {pod.uid: pod}
    else:
        pods[pod.uid] = pod
    return pod


def ended(pod: Pod, exit_code: int, at: datetime) -> Pod:
    container = Container(name="train", running=False, exit_code=exit_code, finished_at=at)
    phase = PodPhase.FAILED if exit_code else PodPhase.SUCCEEDED
    return msgspec.structs.replace(pod, phase=phase, containers=(container,))


@pytest.mark.parametrize("exit_code", [None, 143, 0])
@pytest.mark.parametrize("gone", [False, True])
def test_a_rank_that_was_told_to_go_is_lost_whatever_it_exits_with(gone: bool, exit_code: int | None) -> None:
    world = cluster().running(gang("llm", ranks=4))
    deleted(world, 2, gone=gone, exit_code=exit_code)

    plan = world.decide()

    assert plan.restarts == ["llm"]
    assert plan.incident.spec.fault is Fault.HOST
    assert plan.incident.status.blame is Blame.UNKNOWN
    assert plan.incident.status.suspects == [], "whoever took it away says nothing of its node"
    assert plan.cordons == []


@pytest.mark.parametrize("policy", [False, True])
def test_what_a_job_with_a_success_policy_deletes_once_a_rank_has_succeeded_is_its_end(policy: bool) -> None:
    """The deletion of 2,000 pods takes minutes, and the job reports its end only afterwards."""
    world = cluster().running(gang("llm", ranks=4)).change_gang(ends_by_success=policy)
    leader = world.pods["llm-uid"]["llm-0-uid"]
    deleted(world, 2, gone=False)
    world.pods["llm-uid"][leader.uid] = ended(leader, 0, NOW)

    assert world.decide().restarts == ([] if policy else ["llm"])


def test_before_a_rank_has_succeeded_a_success_policy_ends_nothing() -> None:
    world = cluster().running(gang("llm", ranks=4)).change_gang(ends_by_success=True)
    deleted(world, 2, gone=False)

    assert world.decide().restarts == ["llm"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_failed_rank_whose_framework_removes_its_pod_at_once_is_judged_by_how_it_ended(gone: bool) -> None:
    """The training-operator removes the pod at once under OnFailure and ExitCode. Times have whole
    seconds."""
    world = cluster().running(gang("llm", ranks=4))
    pod = deleted(world, 2, ago_s=0.2, gone=gone)
    there = world.departed["llm-uid"] if gone else world.pods["llm-uid"]
    assert pod.deleting_since is not None
    there[pod.uid] = ended(pod, 137, pod.deleting_since)

    plan = world.decide()

    assert plan.restarts == ["llm"]
    assert plan.incident.spec.fault is Fault.APPLICATION
    assert [(e.code, e.pod) for e in plan.incident.status.evidence] == [("exit-137", pod.name)]


@pytest.mark.parametrize(
    ("reason", "code", "suspects"),
    [
        ("Evicted", "evicted", []),
        ("Terminated", "made-way", []),
        ("UnexpectedAdmissionError", "not-admitted", ["n2"]),
        ("OutOfnvidia.com/gpu", "not-admitted", ["n2"]),
        ("NodePorts", "not-admitted", ["n2"]),
        ("DeadlineExceeded", "pod-deadline", []),
    ],
)
def test_a_rank_whose_kubelet_ended_or_refused_its_pod_is_no_failure_of_the_program(
    reason: str, code: str, suspects: list[str]
) -> None:
    world = cluster(nodes=8).running(gang("llm", ranks=4)).crash(rank=2, exit_code=137)
    pods = world.pods["llm-uid"]
    pods["llm-2-uid"] = msgspec.structs.replace(pods["llm-2-uid"], failure=f"{reason}: in its words")

    plan = world.decide()

    assert plan.restarts == ["llm"]
    assert (plan.incident.spec.fault, plan.incident.status.blame) == (Fault.HOST, Blame.UNKNOWN)
    assert [e.code for e in plan.incident.status.evidence] == [code]
    assert [suspect.node for suspect in plan.incident.status.suspects] == suspects


def peer_lost(world: Worlds, rank: int) -> None:
    """Lets the rank's log report that a peer is gone."""
    pod = world.pods["llm-uid"][f"llm-{rank}-uid"]
    error = LogError(code="log-nccl-remote", at=world.now, text="ncclRemoteError: peer closed")
    world.progress(pod, Edge.ENDED, at=world.now, first_error=error)


def test_a_rank_that_says_that_it_lost_a_peer_is_not_blamed_while_no_other_is_known_to_be_lost() -> None:
    """A machine that dies reports nothing: its peers fail first, and print errors."""
    world = cluster().running(gang("llm", ranks=4)).crash(rank=1)
    peer_lost(world, 1)

    plan = world.decide()

    assert plan.restarts == ["llm"]
    assert plan.incident.spec.fault is Fault.UNKNOWN
    assert plan.incident.status.blame is Blame.UNKNOWN
    assert plan.incident.status.suspects == []
    (loss,) = all_losses(world)
    assert first_loss.nobody_is_blamed(loss) in plan.incident.status.summary


def says(world: Worlds, rank: int, code: str, *, ago_s: float) -> None:
    pod = world.pods["llm-uid"][f"llm-{rank}-uid"]
    at = world.now - timedelta(seconds=ago_s)
    world.progress(pod, Edge.ENDED, at=at, first_error=LogError(code=code, at=at, text="words-of-a-tenant"))


def all_losses(world: Worlds) -> list[Loss]:
    pods = sorted(world.pods["llm-uid"].values(), key=lambda pod: pod.name)
    return losses(world.world(), pods, world.now)


def lost(world: Worlds) -> list[str]:
    return [loss.pod for loss in all_losses(world)]


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ({1: ("log-traceback", 9.0), 3: ("log-traceback", 60.0)}, "llm-worker-3"),
        ({1: ("log-cuda-oom", 9.0), 3: ("log-traceback", 12.0)}, "llm-worker-1"),
        ({1: ("log-cuda-oom", 9.0), 3: ("log-traceback", 30.0)}, "llm-worker-3"),
        ({1: ("log-cuda-oom", 9.0), 3: ("log-traceback", 3600.0)}, "llm-worker-1"),
        ({1: ("log-store-timeout", 60.0), 3: ("log-traceback", 4.0)}, "llm-worker-3"),
        ({1: ("log-told-to-end", 60.0), 3: ("log-usage", 4.0)}, "llm-worker-3"),
        ({1: ("log-of-our-own", 9.0), 3: ("log-nccl-remote", 60.0)}, "llm-worker-1"),
    ],
    ids=[
        "the own fault that was printed first, though its rank ended last",
        "one that says what broke, before one within the clocks' difference that does not",
        "one that was first by more than the clocks may differ",
        "an error of an hour ago was survived",
        "who waited in vain comes last",
        "who was asked to end comes last",
        "an error of people's own is an own fault",
    ],
)
def test_of_lost_ranks_the_first_own_fault_is_the_first(
    said: dict[int, tuple[str, float]], first: str
) -> None:
    world = cluster().running(gang("llm", ranks=4)).crash(rank=1, ago_s=5).crash(rank=3, ago_s=3)
    for rank, (code, ago_s) in said.items():
        says(world, rank, code, ago_s=ago_s)

    assert lost(world)[0] == first


def test_the_other_losses_are_told_as_consequences_without_the_text_of_a_log() -> None:
    world = cluster().running(gang("llm", ranks=4)).crash(rank=1, ago_s=5).crash(rank=3, ago_s=3)
    says(world, 1, "log-connection-reset", ago_s=6)
    says(world, 3, "log-cuda-oom", ago_s=7)

    told = {e.pod: e.text for e in world.decide().incident.status.evidence}

    follows, first = told["llm-worker-1"], told["llm-worker-3"]
    assert names(follows, "log-connection-reset")
    assert names(first, "log-cuda-oom")
    assert follows.replace("log-connection-reset", "") != first.replace("log-cuda-oom", "")
    assert "words-of-a-tenant" not in follows + first


def test_a_rank_that_is_asked_to_end_as_its_pod_is_taken_away_is_the_first_loss() -> None:
    world = cluster().running(gang("llm", ranks=4)).crash(rank=3, ago_s=1)
    deleted(world, 2, ago_s=4, gone=False, exit_code=1)
    says(world, 2, "log-told-to-end", ago_s=3)
    says(world, 3, "log-traceback", ago_s=2)

    assert lost(world)[0] == "llm-worker-2"


def test_of_a_rank_that_was_asked_to_end_nobody_knows_who_asked() -> None:
    world = cluster().running(gang("llm", ranks=4)).crash(rank=1)
    says(world, 1, "log-told-to-end", ago_s=1)

    incident = world.decide().incident

    assert (incident.spec.fault, incident.status.blame) == (Fault.UNKNOWN, Blame.UNKNOWN)
    (loss,) = all_losses(world)
    lost_a_peer = msgspec.structs.replace(loss, error="log-nccl-remote")
    assert first_loss.nobody_is_blamed(loss) in incident.status.summary
    assert first_loss.nobody_is_blamed(loss) != first_loss.nobody_is_blamed(lost_a_peer)


def test_the_rank_that_the_others_lost_is_named_though_it_was_told_of_last() -> None:
    world = cluster().running(gang("llm", ranks=4)).crash(rank=1, ago_s=3).crash(rank=3, ago_s=1)
    peer_lost(world, 1)

    plan = world.decide()

    assert plan.incident.status.blame is Blame.APPLICATION
    assert names(plan.incident.status.summary, "llm-worker-3", "n3")
    assert not names(plan.incident.status.summary, "llm-worker-1")


def test_a_rank_that_is_gone_is_settled_like_one_that_goes() -> None:
    """The end of its job arrives by another watch."""
    world = cluster().running(gang("llm", ranks=4))
    deleted(world, 2, ago_s=0.4, gone=True)

    early = world.decide()

    assert early.restarts == []
    assert early.plan.requeue_after_s is not None
    assert world.later(1.0).decide().restarts == ["llm"]


def test_a_rank_that_was_made_anew_beside_its_old_peers_is_lost_all_the_same() -> None:
    """The new rank has joined no peer: the other ranks lost their peer, and wait for the old one."""
    world = cluster().running(gang("llm", ranks=4))
    pod = deleted(world, 2, gone=True)
    new = msgspec.structs.replace(pod, uid="anew", deleting_since=None, created=NOW)
    world.pods["llm-uid"][new.uid] = new

    assert world.decide().restarts == ["llm"]


def test_a_gang_that_its_framework_has_made_anew_as_a_whole_has_lost_nobody() -> None:
    world = cluster().running(gang("llm", ranks=4), stepping=False)
    deleted(world, 2, gone=True)
    pods = world.pods["llm-uid"]
    for uid, pod in list(pods.items()):
        pods[uid] = msgspec.structs.replace(pod, created=NOW)

    assert world.decide().incidents == []


def test_a_rank_that_ended_well_and_was_tidied_away_later_is_not_lost() -> None:
    world = cluster().running(gang("llm", ranks=4))
    pod = deleted(world, 2, gone=True)
    world.departed["llm-uid"] = {pod.uid: ended(pod, 0, world.now - timedelta(seconds=60))}

    assert world.decide().incidents == []


def test_a_hang_is_seen_though_the_agent_of_a_dead_node_can_no_longer_tell_it() -> None:
    world = cluster(nodes=5).running(gang("llm", ranks=4)).stall()
    silent = world.pods["llm-uid"]["llm-2-uid"]
    world.progress(silent, Edge.STEPPING, at=world.now - timedelta(minutes=20))

    assert world.decide().restarts == []
    assert world.not_ready("n2").decide().restarts == ["llm"]


# --- missing times and wrong clocks -----------------------------------------------------------------------


@pytest.mark.parametrize("ahead_s", [None, 3600.0])
def test_a_container_that_restarted_at_a_time_that_cannot_be_is_not_waited_for(ahead_s: float | None) -> None:
    """A node that has booted again does not know when its containers ended."""
    world = cluster().running(gang("llm", ranks=4)).restart_in_place(rank=2)
    pods = world.pods["llm-uid"]
    (container,) = pods["llm-2-uid"].containers
    at = None if ahead_s is None else NOW + timedelta(seconds=ahead_s)
    restarted = msgspec.structs.replace(container, finished_at=at)
    pods["llm-2-uid"] = msgspec.structs.replace(pods["llm-2-uid"], containers=(restarted,))

    assert world.later(10).decide().restarts == ["llm"]


def test_of_clocks_that_are_a_little_apart_the_wait_for_new_steps_is_kept() -> None:
    world = cluster().running(gang("llm", ranks=4)).restart_in_place(rank=2, ago_s=-2)

    assert world.decide().restarts == []
    assert world.later(8).decide().restarts == ["llm"]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_second_failure_on_nodes_whose_clocks_run_ahead_is_news(hangs: bool) -> None:
    def fail() -> None:
        world.later(20)
        for pod in list(world.pods["llm-uid"].values()):
            at = world.now + timedelta(hours=1)
            if hangs:
                world.progress(pod, Edge.STALLED, at=at)
            elif pod.name == "llm-worker-2":
                world.pods["llm-uid"][pod.uid] = ended(pod, 1, at)

    world = cluster(nodes=8).running(gang("llm", ranks=4))
    fail()
    advanced(recovering(world), Phase.VERIFYING)
    assert recovering(world).decide().plan.actions == ()

    fail()
    recovering(world)

    assert step(world) == ["recovery-stopping"]
    assert only_recovery(world).status.attempt == 2


# --- sidecar containers -----------------------------------------------------------------------------------


def with_a_proxy(world: Worlds, rank: int, proxy: Container) -> None:
    """Adds a container to the rank's pod that sorts before the rank's own container."""
    pods = world.pods["llm-uid"]
    pod = pods[f"llm-{rank}-uid"]
    pods[pod.uid] = msgspec.structs.replace(pod, containers=(proxy, *pod.containers))


@pytest.mark.parametrize("running", [True, False])
def test_a_container_beside_the_rank_that_ends_is_no_lost_rank(running: bool) -> None:
    """The container is a proxy or log shipper that crashed. Whether the kubelet starts it again depends on
    the pod."""
    proxy = Container(
        name="proxy",
        running=running,
        restarts=int(running),
        exit_code=137,
        finished_at=NOW - timedelta(seconds=60),
        beside=True,
    )
    world = cluster().running(gang("llm", ranks=4))
    with_a_proxy(world, 2, proxy)

    assert world.decide().incidents == []


def test_a_failed_pod_is_judged_by_the_ranks_own_container() -> None:
    """The proxy in this pod was ended because the rank had ended."""
    proxy = Container(name="proxy", running=False, exit_code=143, finished_at=NOW, beside=True)
    world = cluster().running(gang("llm", ranks=4)).crash(rank=2, exit_code=139)
    with_a_proxy(world, 2, proxy)

    assert [e.code for e in world.decide().incident.status.evidence] == ["exit-139"]


def test_the_recovery_knows_where_a_rank_ran_that_is_gone_and_whose_log_tells_why() -> None:
    world = cluster().running(gang("llm", ranks=4))
    pod = deleted(world, 2, ago_s=0.2, gone=True)
    assert pod.deleting_since is not None
    world.departed["llm-uid"] = {pod.uid: ended(pod, 1, pod.deleting_since)}

    made = [a for a in world.decide().plan.actions if isinstance(a, Create) and a.resource == RECOVERIES]
    (spec,) = (action.body["spec"] for action in made)

    assert spec["witnesses"][0] == {"pod": pod.name, "uid": pod.uid, "node": "n2"}
    assert (spec["nodes"], spec["gpus"]) == (["n0", "n1", "n2", "n3"], 32)


def gone_within_a_second(*ranks: int, before_s: int = 0, size: int = 4) -> Worlds:
    """Returns a gang that began at NOW. The first pods of these ranks disappeared within that second, and
    were replaced."""
    world = cluster(nodes=size).running(gang("llm", ranks=size), stepping=False)
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, created=NOW)
    created = NOW - timedelta(seconds=before_s)
    world.departed["llm-uid"] = {
        f"old-{rank}-uid": ended(
            msgspec.structs.replace(
                pods[f"llm-{rank}-uid"], uid=f"old-{rank}-uid", created=created, deleting_since=NOW
            ),
            1,
            NOW,
        )
        for rank in ranks
    }
    return world.later(2)


def test_a_rank_that_is_replaced_within_the_second_in_which_its_peers_began_is_lost() -> None:
    assert gone_within_a_second(2).decide().restarts == ["llm"]


@pytest.mark.parametrize(
    "world",
    [
        gone_within_a_second(0, 1, 2, 3),
        gone_within_a_second(*range(32 - DEPARTED_MAX, 32), size=32),
        gone_within_a_second(2, before_s=60),
    ],
    ids=["all of them", "more than are remembered", "one of an older gang"],
)
def test_a_gang_that_its_framework_has_made_anew_within_a_second_has_lost_nothing(world: Worlds) -> None:
    assert world.decide().restarts == []


def missed(world: Worlds, *ranks: int, admitted: bool = True) -> Worlds:
    """The watch of pods broke, and the next list has new pods in the place of these, which had run."""
    pods = world.pods["llm-uid"]
    world.departed["llm-uid"] = {}
    for rank in ranks:
        old = pods.pop(f"llm-{rank}-uid")
        began = (world.now - timedelta(seconds=60)) if admitted else None
        gone = msgspec.structs.replace(
            old, created=NOW, admitted_at=began, deleting_since=world.now, is_missed=True
        )
        world.departed["llm-uid"][old.uid] = gone
        created = world.now - timedelta(seconds=20)
        pods[f"new-{rank}-uid"] = msgspec.structs.replace(old, uid=f"new-{rank}-uid", created=created)
    return world


def trains_again(world: Worlds) -> Worlds:
    """The pod in the place of rank 2 has made its first step before the watch was there again."""
    world.progress(world.pods["llm-uid"]["new-2-uid"], Edge.STEPPING, at=world.now - timedelta(seconds=10))
    return world


def running_for_two_minutes() -> Worlds:
    world = cluster().running(gang("llm", ranks=4))
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, created=NOW)
    return world.later(120)


def test_a_rank_that_was_replaced_while_the_watch_was_broken_is_lost_half_a_minute_later() -> None:
    """Until then the list of jobs may show that the job has ended."""
    world = missed(running_for_two_minutes(), 2)

    assert world.later(20).decide().restarts == []
    assert world.later(15).decide().restarts == ["llm"]


@pytest.mark.parametrize("lead_s", [-300, 300])
def test_a_rank_that_was_replaced_while_the_watch_was_broken_is_lost_whatever_its_nodes_clock_says(
    lead_s: float,
) -> None:
    world = missed(running_for_two_minutes(), 2)
    for uid, pod in world.departed["llm-uid"].items():
        at = pod.admitted_at
        assert at is not None
        skewed = at + timedelta(seconds=lead_s)
        world.departed["llm-uid"][uid] = msgspec.structs.replace(pod, scheduled_at=at, admitted_at=skewed)

    assert world.later(35).decide().restarts == ["llm"]


@pytest.mark.parametrize(
    "world",
    [
        missed(running_for_two_minutes(), 0, 1, 2, 3),
        missed(running_for_two_minutes(), 2, admitted=False),
        trains_again(missed(running_for_two_minutes(), 2)),
        missed(running_for_two_minutes(), 2).change_gang(size=3),
    ],
    ids=["the whole gang made again", "a pod that never ran", "the new pod makes steps", "scaled down"],
)
def test_a_gang_that_is_whole_again_after_a_broken_watch_has_lost_nothing(world: Worlds) -> None:
    assert world.later(35).decide().restarts == []


def test_ranks_that_fail_in_turn_leave_the_first_suspect_in_their_incident() -> None:
    """A gang that Rekindle may not restart can continue like this for days, and each change of the suspect
    would be a write."""
    world = cluster(nodes=8).running(gang(opted_in=False)).blind("n1").blind("n2")
    recovering(world.restart_in_place(rank=1, ago_s=6).restart_in_place(rank=2, ago_s=5.5))
    (before,) = world.incidents.values()

    recovering(world.later(60).restart_in_place(rank=1, ago_s=6))

    (after,) = world.incidents.values()
    assert [s.node for s in before.status.suspects] == ["n1"]
    assert after.status.suspects == before.status.suspects
    assert after.status.summary == before.status.summary


def test_what_a_rank_told_before_its_first_step_counts_though_its_agent_has_not_seen_its_end() -> None:
    world = cluster().running(gang("llm", ranks=4))
    pod = world.pods["llm-uid"]["llm-2-uid"]
    error = LogError(code="log-checkpoint", at=world.now)
    world.progress(pod, Edge.STARTED, at=world.now, first_error=error)
    plan = world.later(5).crash(rank=2).decide()

    (evidence,) = plan.incident.status.evidence
    assert plan.incident.status.blame is Blame.APPLICATION
    assert names(evidence.text, "log-checkpoint")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("exit-139", "exit-139: SIGSEGV"),
        ("exit-1", "exit-1"),
        ("exit-255", "exit-255"),
        ("deleted", "deleted"),
    ],
)
def test_an_exit_status_of_a_signal_has_its_name(code: str, words: str) -> None:
    assert exit_words(code) == words
