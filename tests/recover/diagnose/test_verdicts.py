"""Tests what a lost rank is blamed on: the program, a limit of the job, or something beneath the program."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, Origin, Severity, Subject, SubjectKind
from detectors.wire.training import Edge, LogError
from recover.api import Blame
from recover.triage.attempts import cause_key
from tests.acting import only_recovery, recovering
from tests.builders import Worlds, cluster, gang
from tests.facts import names

RANK = 2
POD = f"llm-{RANK}-uid"
NODE = f"n{RANK}"


def gang_that_lost(*, exit_code: int = 1, reason: str = "Error") -> Worlds:
    world = cluster(nodes=8).running(gang("llm", ranks=4))
    assert world.pods["llm-uid"][POD].node == NODE
    return world.crash(rank=RANK, exit_code=exit_code, reason=reason)


def says(world: Worlds, code: str) -> None:
    """Sets the first error of the rank's log."""
    at = world.now - timedelta(seconds=2)
    error = LogError(code=code, at=at, text="words of a tenant")
    world.progress(world.pods["llm-uid"][POD], Edge.ENDED, at=at, first_error=error)


def kernel_killed(world: Worlds, *, pod: str = POD, ago_s: float = 20.0) -> None:
    """Reports that the kernel killed a process: one of this pod, or one of a node that had no memory left."""
    subject = Subject(kind=SubjectKind.POD, pod=pod) if pod else Subject(kind=SubjectKind.NODE)
    world.finding(
        on=NODE,
        code="oom-of-pod" if pod else "oom-of-node",
        fault=Fault.RESOURCES,
        origin=Origin.TENANT,
        severity=Severity.INFO,
        subject=subject,
        ago_s=ago_s,
    )


def judged(world: Worlds) -> tuple[Fault, Blame, list[str]]:
    """Returns fault class, blame and suspects of the only Incident. Asserts that the gang is restarted and
    that no node is taken out of service."""
    plan = world.decide()
    assert plan.restarts == ["llm"]
    assert plan.cordons == []
    incident = plan.incident
    return incident.spec.fault, incident.status.blame, [s.node for s in incident.status.suspects]


def test_a_rank_that_its_kubelet_calls_killed_for_memory_has_reached_its_limit() -> None:
    world = gang_that_lost(exit_code=137, reason="OOMKilled")

    assert judged(world) == (Fault.RESOURCES, Blame.RESOURCES, [])
    assert [e.code for e in world.decide().incident.status.evidence] == ["oom-killed"]


def test_what_the_kernel_says_of_memory_needs_no_agent_that_watches_devices() -> None:
    world = gang_that_lost(exit_code=137, reason="OOMKilled")
    del world.health[NODE]

    assert judged(world) == (Fault.RESOURCES, Blame.RESOURCES, [])


@pytest.mark.parametrize("error", ["", "log-rank-killed", "log-torch-wrapper"])
def test_a_launcher_whose_worker_the_kernel_has_killed_has_reached_its_limit(error: str) -> None:
    """The launcher exits with its own code, and the kubelet gives no reason."""
    world = gang_that_lost(exit_code=1)
    if error:
        says(world, error)
    kernel_killed(world)

    assert judged(world) == (Fault.RESOURCES, Blame.RESOURCES, [])
    assert names(world.decide().incident.status.summary, "oom-killed")


@pytest.mark.parametrize(("pod", "ago_s"), [("another-uid", 20.0), (POD, 600.0)])
def test_neither_another_pods_kill_nor_one_that_was_survived_explains_a_loss(pod: str, ago_s: float) -> None:
    world = gang_that_lost()
    kernel_killed(world, pod=pod, ago_s=ago_s)

    assert judged(world) == (Fault.APPLICATION, Blame.APPLICATION, [])


def test_where_the_node_itself_had_no_memory_left_the_restart_prefers_other_nodes() -> None:
    world = gang_that_lost(exit_code=137, reason="OOMKilled")
    kernel_killed(world, pod="")

    assert judged(world) == (Fault.HOST, Blame.UNKNOWN, [NODE])


@pytest.mark.parametrize("error", ["log-no-space", "log-host-oom", "log-shm", "log-open-files"])
def test_what_a_log_says_is_used_up_is_neither_the_programs_fault_nor_a_nodes(error: str) -> None:
    world = gang_that_lost()
    says(world, error)

    assert judged(world) == (Fault.RESOURCES, Blame.RESOURCES, [])


@pytest.mark.parametrize("error", ["log-storage", "log-cuda-ecc", "log-ib-completion", "log-cuda-no-device"])
def test_what_a_log_says_broke_beneath_the_program_blames_nobody_and_prefers_other_nodes(error: str) -> None:
    """No finding confirms the log's error, so the controller takes no node out of service."""
    world = gang_that_lost()
    says(world, error)

    assert judged(world) == (Fault.UNKNOWN, Blame.UNKNOWN, [NODE])


def test_where_nobody_watched_the_node_no_log_clears_it() -> None:
    world = gang_that_lost()
    says(world, "log-no-space")
    status = msgspec.structs.replace(world.health[NODE].status, coverage=[])
    world.health[NODE] = msgspec.structs.replace(world.health[NODE], status=status)

    assert judged(world) == (Fault.UNKNOWN, Blame.UNKNOWN, [NODE])


def test_attempts_of_a_gang_that_reaches_its_limit_are_counted_wherever_its_ranks_ran() -> None:
    world = gang_that_lost(exit_code=137, reason="OOMKilled")

    recovering(world)

    (cause,) = only_recovery(world).spec.causes
    assert (cause.fault, cause.blame) == (Fault.RESOURCES, Blame.RESOURCES)
    assert cause_key(cause) == ("crash", "oom-killed")
