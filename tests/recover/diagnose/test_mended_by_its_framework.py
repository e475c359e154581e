"""A gang that its framework has repaired trains on, and Rekindle leaves it alone."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.wire.training import Edge
from tests.builders import Worlds, cluster, gang


def replaced(world: Worlds, rank: int, *, ago_s: float, node: str, steps: bool = True) -> Worlds:
    """Adds a pod that the framework has created in place of the failed one, which the framework keeps."""
    old = world.pods["llm-uid"][f"llm-{rank}-uid"]
    created = world.now - timedelta(seconds=ago_s)
    new = msgspec.structs.replace(
        old,
        uid=f"llm-{rank}-new-uid",
        name=f"llm-{rank}-new",
        node=node,
        created=created,
        deleting_since=None,
    )
    world.pods["llm-uid"][new.uid] = new
    if steps:
        world.progress(new, Edge.STEPPING, at=created + timedelta(seconds=30))
    return world


def test_a_job_that_keeps_a_failed_pod_and_trains_with_its_replacement_is_not_stopped() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=110, node="n4")

    assert world.crash(rank=1, ago_s=120).decide().restarts == []


def lost_in_turn(world: Worlds, rank: int, *, created_ago_s: float, ago_s: float) -> Worlds:
    """Adds a replacement pod that was lost too, and that the framework keeps."""
    lost = world.crash(rank=rank, ago_s=ago_s).pods["llm-uid"][f"llm-{rank}-uid"]
    created = world.now - timedelta(seconds=created_ago_s)
    second = msgspec.structs.replace(lost, uid="second", name=f"llm-{rank}-second", created=created)
    world.pods["llm-uid"]["second"] = second
    return world


def test_a_rank_that_was_lost_twice_is_back_with_one_replacement() -> None:
    """A Job keeps every failed pod, for example while a quota refuses the Recovery."""
    world = replaced(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=110, node="n4")
    lost_in_turn(world, 1, created_ago_s=290, ago_s=120).crash(rank=1, ago_s=300)

    assert world.decide().restarts == []


def test_a_replacement_that_makes_no_step_brings_no_gang_back() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=110, node="n4", steps=False)

    assert world.crash(rank=1, ago_s=120).decide().restarts == ["llm"]


def test_of_two_lost_ranks_one_replacement_is_not_enough() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=3)), 1, ago_s=110, node="n4")

    assert world.crash(rank=1, ago_s=120).crash(rank=2, ago_s=119).decide().restarts == ["llm"]


def test_a_pod_that_lingers_on_a_silent_node_does_not_stop_the_gang_that_trains_without_it() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=110, node="n4").not_ready(
        "n1", ago_s=400
    )
    pod = world.pods["llm-uid"]["llm-1-uid"]
    told_to_go = world.now - timedelta(seconds=115)
    world.pods["llm-uid"][pod.uid] = msgspec.structs.replace(pod, deleting_since=told_to_go)

    assert world.decide().restarts == []


# --- an elastic gang ---------------------------------------------------------------------------------------


def elastic(*, may_lack: int = 1) -> Worlds:
    return cluster(nodes=8).running(gang(ranks=4)).change_gang(may_lack=may_lack)


def test_an_elastic_gang_that_lost_a_rank_trains_on_without_it() -> None:
    assert elastic().crash(rank=1).decide().restarts == []


def test_an_elastic_gang_that_lost_more_ranks_than_it_may_lack_is_started_again() -> None:
    assert elastic().crash(rank=1).crash(rank=2).decide().restarts == ["llm"]


def test_an_elastic_gang_whose_other_ranks_stall_is_started_again() -> None:
    assert elastic().stall().crash(rank=1).decide().restarts == ["llm"]


def test_an_elastic_gang_whose_steps_nobody_reads_is_started_again() -> None:
    unread = cluster(nodes=8).running(gang(ranks=4), stepping=False).change_gang(may_lack=1)
    without_agents = elastic()
    without_agents.health.clear()

    assert unread.crash(rank=1).decide().restarts == ["llm"]
    assert without_agents.crash(rank=1).decide().restarts == ["llm"]


def test_a_gang_that_is_not_elastic_is_started_again() -> None:
    assert elastic(may_lack=0).crash(rank=1).decide().restarts == ["llm"]


def test_a_node_that_breaks_under_an_elastic_gang_is_taken_out_and_its_gang_trains_on() -> None:
    decision = elastic().finding(on="n1").crash(rank=1).decide()

    assert (decision.cordons, decision.restarts) == (["n1"], [])


# --- pods that were being deleted -------------------------------------------------------------------------


def told_to_end(world: Worlds, *ranks: int, ago_s: float) -> Worlds:
    """Lets somebody else delete these pods, which use their grace period."""
    at = world.now - timedelta(seconds=ago_s)
    for rank in ranks:
        pod = world.pods["llm-uid"][f"llm-{rank}-uid"]
        world.pods["llm-uid"][pod.uid] = msgspec.structs.replace(pod, deleting_since=at)
    return world


def test_pods_that_end_since_people_had_suspended_their_job_are_no_losses_once_it_is_resumed() -> None:
    world = told_to_end(cluster(nodes=8).running(gang(ranks=2)), 0, 1, ago_s=60)

    resuming = world.change_gang(is_resuming=True).decide().restarts
    resumed = world.change_gang(is_resuming=False, resumed_at=world.now).decide().restarts

    assert (resuming, resumed) == ([], [])


def test_a_rank_that_is_deleted_after_its_job_was_resumed_is_lost() -> None:
    world = told_to_end(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=60)

    world.change_gang(resumed_at=world.now - timedelta(seconds=120))

    assert world.decide().restarts == ["llm"]


def test_a_gang_of_which_all_pods_were_told_to_end_and_all_were_made_again_is_left_alone() -> None:
    world = told_to_end(cluster(nodes=8).running(gang(ranks=2)), 0, 1, ago_s=60)

    for rank in (0, 1):
        replaced(world, rank, ago_s=1, node="", steps=False)

    assert world.decide().restarts == []


def test_a_rank_that_is_deleted_beside_one_that_stays_is_lost() -> None:
    world = told_to_end(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=60)

    assert replaced(world, 1, ago_s=59, node="n4", steps=False).decide().restarts == ["llm"]


def test_of_a_gang_whose_pods_are_deleted_on_a_silent_node_the_loss_counts() -> None:
    world = told_to_end(cluster(nodes=8).running(gang(ranks=2)), 0, 1, ago_s=60).not_ready("n1", ago_s=400)

    assert world.decide().restarts == ["llm"]


def test_a_job_that_was_resumed_has_lost_the_rank_whose_old_pod_stays_on_a_silent_node() -> None:
    world = told_to_end(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=60)
    world.change_gang(resumed_at=world.now - timedelta(seconds=50)).not_ready("n1", ago_s=10)

    assert world.decide().restarts == ["llm"]
