"""Tests failures of a gang that begin on the same node twice in a row: a program fails anywhere, a node with
an unseen fault always in the same place."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault
from detectors.wire.training import Edge, LogError
from recover.api import Blame, Phase
from recover.diagnose.diagnosis import JOB_FAILED
from tests.acting import acts, advanced, apply, first_step, only_recovery, start_pods, step
from tests.builders import Decision, Worlds, cluster, gang
from tests.facts import names


def failed_once(code: int = 1, error: str = "") -> Worlds:
    """Returns a gang that failed on n1, and trains again on the same nodes."""
    world = cluster(nodes=8).running(gang())
    fails(world, 1, code=code, error=error)
    apply(world, world.decide().plan)
    advanced(world, Phase.RESUMING)
    step(world)
    world.later(2)
    start_pods(world, first_node=0)
    step(world.later(2))
    first_step(world, 101)
    step(world.later(1))
    assert only_recovery(world).status.phase is Phase.SUCCEEDED
    world.incidents.clear()
    return world.later(600)


def fails(world: Worlds, rank: int, *, code: int = 1, error: str = "") -> None:
    world.crash(rank=rank, exit_code=code)
    if error:
        (pod,) = [p for p in world.pods["llm-uid"].values() if p.name == f"llm-worker-{rank}"]
        told = LogError(code=error, at=world.now, text="its last words")
        world.progress(pod, Edge.ENDED, at=world.now, first_error=told)


def suspects(decision: Decision) -> list[str]:
    return [suspect.node for suspect in decision.incident.status.suspects]


def test_the_first_failure_of_a_program_makes_no_node_a_suspect() -> None:
    world = cluster(nodes=8).running(gang())
    fails(world, 1)

    assert suspects(world.decide()) == []


def test_a_failure_that_only_the_status_of_the_job_showed_began_on_no_node() -> None:
    world = failed_once()
    for key, before in world.recoveries.items():
        causes = [msgspec.structs.replace(cause, error=JOB_FAILED) for cause in before.status.causes]
        status = msgspec.structs.replace(before.status, causes=causes)
        spec = msgspec.structs.replace(
            before.spec,
            causes=[msgspec.structs.replace(cause, error=JOB_FAILED) for cause in before.spec.causes],
        )
        world.recoveries[key] = msgspec.structs.replace(before, spec=spec, status=status)
    fails(world, 1)

    assert suspects(world.decide()) == []


def test_a_second_failure_on_the_same_node_makes_the_restart_prefer_others_and_blames_no_node() -> None:
    world = failed_once()
    fails(world, 1)

    decision = world.decide()

    assert suspects(decision) == ["n1"]
    assert decision.cordons == []
    assert (decision.incident.spec.fault, decision.incident.status.blame) == (
        Fault.APPLICATION,
        Blame.APPLICATION,
    )
    assert names(decision.incident.status.summary, "n1", "previous failure")
    apply(world, decision.plan)
    assert "explain-incident" not in acts(world.decide().plan), "the same words at each reconcile"
    world.recoveries = {key: r for key, r in world.recoveries.items() if r.active}
    assert advanced(world, Phase.RESUMING).status.suspects == ["n1"]


def test_a_second_failure_on_another_node_makes_no_node_a_suspect() -> None:
    world = failed_once()
    fails(world, 2)

    assert suspects(world.decide()) == []


@pytest.mark.parametrize("hours", [23, 25])
def test_failures_more_than_a_day_apart_are_not_compared(hours: int) -> None:
    world = failed_once().later(hours * 3600)
    fails(world, 1)

    assert suspects(world.decide()) == (["n1"] if hours < 24 else [])


@pytest.mark.parametrize(("code", "error"), [(1, "log-nccl-remote"), (137, "")])
def test_a_failure_that_only_followed_another_or_used_up_memory_is_not_compared(
    code: int, error: str
) -> None:
    world = failed_once(code=code, error=error)
    if code == 137:
        key, recovery = next(iter(world.recoveries.items()))
        causes = [msgspec.structs.replace(c, fault=Fault.RESOURCES) for c in recovery.status.causes]
        status = msgspec.structs.replace(recovery.status, causes=causes)
        world.recoveries[key] = msgspec.structs.replace(recovery, status=status)
    fails(world, 1)

    assert suspects(world.decide()) == []


def test_a_failure_that_a_node_explained_is_not_compared() -> None:
    world = failed_once()
    key, recovery = next(iter(world.recoveries.items()))
    causes = [msgspec.structs.replace(c, blame=Blame.NODE, node="n1") for c in recovery.status.causes]
    status = msgspec.structs.replace(recovery.status, causes=causes)
    world.recoveries[key] = msgspec.structs.replace(recovery, status=status)
    fails(world, 1)

    assert suspects(world.decide()) == []
