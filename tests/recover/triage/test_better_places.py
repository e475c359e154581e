"""Tests that a job leaves a degraded node only for a better place that nobody else needs."""

from __future__ import annotations

import msgspec

from detectors.wire.contract import Fault, Severity
from recover.api import Phase
from recover.api.reasons import Reason
from recover.model import Quarantine, Taint
from tests.acting import advanced, end_pods, recovering
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names
from tests.recover.triage.test_capacity import GPU, template

SAVES = {"rekindle.dev/checkpoint-on-sigterm": "true"}
ROLES = {"Worker": template()}


def two_jobs(nodes: int) -> Worlds:
    """Returns `llm` on n0 to n2 and `bert` on n3 to n5. Both leave a degraded node at once."""
    world = cluster(nodes)
    for name in world.nodes:
        world.change_node(name, allocatable={GPU: 8}, capacity={GPU: 8})
    world.running(gang(ranks=3, templates=ROLES, annotations=SAVES))
    world.running(gang("bert", ranks=3, templates=ROLES, annotations=SAVES), first_node=3)
    for pods in world.pods.values():
        pods.update({uid: msgspec.structs.replace(pod, requests=((GPU, 8),)) for uid, pod in pods.items()})
    return world


def degrade(world: Worlds, node: str) -> Worlds:
    return world.finding(on=node, code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)


def test_a_job_leaves_a_degraded_node_for_a_free_one() -> None:
    assert degrade(two_jobs(7), "n1").decide().restarts == ["llm"]


def test_of_two_jobs_that_would_leave_for_the_same_free_node_one_leaves() -> None:
    world = degrade(degrade(two_jobs(7), "n1"), "n4")

    decision = world.decide()

    assert len(decision.restarts) == 1
    assert decision.reasons("restart-gang") == [Reason.NO_CAPACITY]
    assert len(degrade(degrade(two_jobs(8), "n1"), "n4").decide().restarts) == 2


def test_a_restart_that_is_being_written_counts() -> None:
    world = degrade(degrade(two_jobs(7), "n1"), "n4")
    (first,) = world.decide().restarts
    (other,) = {"llm", "bert"} - {first}

    world.being_started = {f"{other}-uid"}

    assert world.decide().restarts == [other]


def test_two_jobs_on_one_degraded_node_leave_together_only_if_both_fit() -> None:
    half = {"Worker": template(containers=({"resources": {"limits": {GPU: 4}}},))}
    for nodes, restarts in ((2, ["bert"]), (3, ["bert", "llm"])):
        world = cluster(nodes)
        for name in world.nodes:
            free = 4 if nodes == 2 and name == "n1" else 8
            world.change_node(name, allocatable={GPU: free}, capacity={GPU: 8})
        for job in ("bert", "llm"):
            world.running(gang(job, ranks=1, templates=half, annotations=SAVES))
        assert sorted(degrade(world, "n0").decide().restarts) == restarts


def test_places_that_a_stopped_job_needs_again_are_not_free() -> None:
    world = recovering(two_jobs(7).finding(on="n1"))
    for phase in (Phase.PLANNED, Phase.STOPPING, Phase.RESUMING):
        advanced(world, phase)
        if phase is Phase.STOPPING:
            end_pods(world)

        decision = degrade(world, "n4").decide()

        assert decision.restarts == []
        (told,) = [r for r in decision.incident.status.actions if r.action == "restart-gang"]
        assert told.reason == Reason.NO_CAPACITY
        assert names(told.message, "n4", "ml/llm", 3)


def test_a_node_that_is_broken_or_degraded_itself_is_no_better_place() -> None:
    broken = two_jobs(7).finding(on="n6").change_node("n6", annotations={"rekindle.dev/hold": "true"})
    assert degrade(broken, "n1").decide().restarts == []

    assert degrade(degrade(two_jobs(7), "n6"), "n1").decide().restarts == []

    rebooted = two_jobs(7).change_node(
        "n6",
        quarantine=Quarantine(incident="i", fault="memory-degraded", at=NOW, cordoned=False),
        taints=(Taint("rekindle.dev/unhealthy", "PreferNoSchedule", "memory-degraded"),),
    )
    assert degrade(rebooted, "n1").decide().restarts == []


def test_a_job_does_not_leave_a_degraded_node_for_places_that_pods_of_lower_priority_use() -> None:
    """The scheduler would evict them, or would put the job back on the degraded node."""
    world = two_jobs(6)
    pods = world.pods["llm-uid"]
    pods.update({uid: msgspec.structs.replace(pod, priority=1000) for uid, pod in pods.items()})

    decision = degrade(world, "n1").decide()

    assert decision.restarts == []
    assert decision.reasons("restart-gang") == [Reason.NO_CAPACITY]
