"""Tests Verifying: the first new step, and what it shows about the checkpoint."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from detectors.wire.training import Edge
from recover.api import Phase
from recover.api.reasons import Reason
from recover.k8s.kinds import JOBS
from recover.model import Terminal
from tests.acting import acts, advanced, end_pods, first_step, look, only_recovery, recovering, step
from tests.builders import BOOT, cluster, gang
from tests.recover.recovery.phase_cases import choice, chosen, faulted


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
    assert ("removed the envFrom" in found.message) is not reads, "the start had added it"


def test_the_owner_of_a_job_whose_start_brings_no_envfrom_is_told_to_write_it() -> None:
    world = chosen(faulted(checkpoint="/ckpt"), choice(80))
    advanced(world, Phase.VERIFYING)
    job = world.gangs["llm-uid"]
    ref = msgspec.structs.replace(job.ref, api_version=JOBS.api_version, kind=JOBS.kind)
    world.gangs["llm-uid"] = msgspec.structs.replace(job, ref=ref, resource=JOBS)

    first_step(world, 81)
    step(world)

    (found,) = [c for c in only_recovery(world).status.conditions if c.type == "EnvironmentDelivered"]
    assert found.reason == "NotRead"
    assert "rekindle enable -f JOB.yaml writes the envFrom" in found.message


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
    """The job prints each hundredth step, and a step takes 20 s."""
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
    """The clock of the node is wrong by years, or its agent reports a false time."""
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
    """Otherwise two such faults would make the controller pass over a good checkpoint."""
    world = chosen(faulted(checkpoint="/ckpt"), choice(80))
    advanced(world, Phase.VERIFYING)
    recovering(world.finding(on="n5") if by_a_node else world.crash(rank=1))

    advanced(world, Phase.STOPPING)

    assert only_recovery(world).status.attempt == 2
    assert only_recovery(world).status.fruitless == held_against_it


def test_a_fault_of_a_node_where_the_attempt_before_ran_keeps_the_next_one_off_it() -> None:
    """The first attempt ran on n0 to n3, the second on n4 to n7. The controller judges n5 when the gang's
    pods there are gone."""
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
    """n1 is quarantined, and needs no affinity. If n2 were kept out as well, a full cluster would lack
    room."""
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
