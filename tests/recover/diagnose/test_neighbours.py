"""Tests recover/diagnose/neighbours.py: ranks that another program on their GPU may have ended, by MPS."""

from __future__ import annotations

import pytest

from detectors.wire.contract import Fault, Origin, Severity
from recover.api import Blame, Incident
from tests.builders import Worlds, cluster, gang

MPS = {"nvidia.com/gpu.sharing-strategy": "mps"}
GKE = {"cloud.google.com/gke-gpu-sharing-strategy": "mps"}


def shared(
    labels: dict[str, str], *, code: str = "xid-31", severity: Severity = Severity.FATAL, ago_s: float = 3
) -> Worlds:
    """Returns two jobs on n0, whose kernel log shows a program's exception. The rank of the first job is
    lost."""
    world = cluster(nodes=2).running(gang("mine", ranks=1)).running(gang("theirs", ranks=1))
    world.change_node("n0", labels=labels)
    world.finding(
        on="n0",
        code=code,
        fault=Fault.APPLICATION,
        origin=Origin.TENANT,
        severity=severity,
        final=False,
        ago_s=ago_s,
    )
    return world


def incident(world: Worlds) -> Incident:
    world.crash("mine", rank=0, ago_s=2)
    return world.decide().incident


@pytest.mark.parametrize("labels", [MPS, {"nvidia.com/mps.capable": "true"}, GKE])
def test_nobody_is_blamed_where_any_of_several_programs_may_have_ended_all(labels: dict[str, str]) -> None:
    world = shared(labels)

    found = incident(world)

    assert (found.spec.fault, found.status.blame) == (Fault.UNKNOWN, Blame.UNKNOWN)
    assert found.status.suspects == [], "its node has done nothing"
    assert "xid-31" in found.status.summary
    decision = world.decide()
    assert (decision.restarts, decision.cordons) == (["mine"], [])


def test_a_job_that_still_runs_beside_the_one_that_failed_is_left_alone() -> None:
    world = shared(MPS)
    incident(world)

    assert "theirs" not in world.decide().restarts


def test_each_program_fails_for_itself_where_the_gpu_is_shared_in_time() -> None:
    for strategy in ("time-slicing", "none"):
        found = incident(
            shared({"nvidia.com/gpu.sharing-strategy": strategy, "nvidia.com/mps.capable": "false"})
        )

        assert found.status.blame is Blame.APPLICATION


def test_a_node_that_offers_parts_by_mps_shares_by_mps() -> None:
    world = shared({})
    world.change_node("n0", capacity={"nvidia.com/mps-core": 100})

    assert incident(world).status.blame is Blame.UNKNOWN


@pytest.mark.parametrize(
    "world",
    [
        shared(MPS, severity=Severity.INFO),
        shared(MPS, ago_s=3000),
    ],
    ids=["no fatal exception", "an exception of long ago"],
)
def test_without_an_exception_at_that_time_the_program_is_blamed(world: Worlds) -> None:
    assert incident(world).status.blame is Blame.APPLICATION


def test_a_job_that_has_the_node_for_itself_is_blamed() -> None:
    world = shared(MPS)
    del world.gangs["theirs-uid"], world.pods["theirs-uid"]

    assert incident(world).status.blame is Blame.APPLICATION


def test_a_rank_that_ran_out_of_host_memory_had_no_exception() -> None:
    world = shared(MPS).crash("mine", rank=0, exit_code=137, reason="OOMKilled", ago_s=2)

    assert world.decide().incident.status.blame is Blame.RESOURCES


@pytest.mark.parametrize(("ago_s", "blame"), [(3600, Blame.APPLICATION), (4, Blame.UNKNOWN)])
def test_only_a_rank_that_ran_or_ended_about_then_may_have_had_the_exception(
    ago_s: float, blame: Blame
) -> None:
    world = shared(MPS).crash("theirs", rank=0, ago_s=ago_s)
    world.crash("mine", rank=0, ago_s=2)

    found = {one.spec.gang.name: one.status.blame for one in world.decide().incidents if one.spec.gang}
    assert found["mine"] is blame
