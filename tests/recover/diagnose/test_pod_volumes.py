"""Tests that the Incident of a gang shows what the agents report about the volumes of its ranks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault, NodeHealth, Origin, Severity, Subject, SubjectKind
from detectors.wire.training import Edge, LogError
from recover.api import Blame
from recover.diagnose.gang_faults import gang_faults, gang_state
from recover.policy.settings import Timing
from tests.builders import Worlds, cluster, gang

CKPT = "volume pvc-7 (nfs4, nas:/ckpt)"


def lost(error: str = "") -> Worlds:
    world = cluster(nodes=4).running(gang("llm", ranks=3))
    world.crash(rank=1)
    (pod,) = [p for p in world.pods["llm-uid"].values() if p.name == "llm-worker-1"]
    if error:
        at = world.now - timedelta(seconds=2)
        first = LogError(code=error, at=at, text="words of a tenant")
        world.progress(pod, Edge.ENDED, at=at, first_error=first)
    return world


def volume(
    world: Worlds, code: str, *, rank: int = 1, which: str = CKPT, ago_s: float = 30, ended_s: float = 0
) -> None:
    (pod,) = [p for p in world.pods["llm-uid"].values() if p.name == f"llm-worker-{rank}"]
    is_full = code in ("volume-full", "volume-inodes")
    world.finding(
        on=pod.node,
        code=code,
        fault=Fault.RESOURCES if is_full else Fault.STORAGE,
        origin=Origin.TENANT if is_full else Origin.KERNEL,
        severity=Severity.INFO,
        final=False,
        subject=Subject(kind=SubjectKind.POD, pod=pod.uid, volume="pvc-7"),
        ago_s=ago_s,
    )
    status = world.health[pod.node].status
    cleared = world.now - timedelta(seconds=ended_s) if ended_s else None
    found = msgspec.structs.replace(
        status.findings[-1], evidence=f"{which} is in a bad state", cleared_at=cleared
    )
    status = msgspec.structs.replace(status, findings=[*status.findings[:-1], found])
    world.health[pod.node] = msgspec.structs.replace(world.health[pod.node], status=status)


def judged(world: Worlds) -> tuple[Fault, Blame, list[str]]:
    plan = world.decide()
    assert plan.restarts == ["llm"]
    assert plan.cordons == []
    incident = plan.incident
    return incident.spec.fault, incident.status.blame, [s.node for s in incident.status.suspects]


@pytest.mark.parametrize("code", ["volume-full", "volume-inodes"])
def test_a_rank_that_has_no_room_names_its_volume_as_evidence(code: str) -> None:
    world = lost("log-no-space")
    volume(world, code)

    assert judged(world) == (Fault.RESOURCES, Blame.RESOURCES, [])
    incident = world.decide().incident
    assert CKPT in incident.status.summary
    assert (code, "n1", "llm-worker-1") in [(e.code, e.node, e.pod) for e in incident.status.evidence]


def test_a_full_volume_explains_a_rank_whose_log_says_nothing() -> None:
    world = lost()
    assert judged(world)[1] is Blame.APPLICATION
    volume(world, "volume-full")

    assert judged(world) == (Fault.RESOURCES, Blame.RESOURCES, [])
    assert "the log does not give the cause" in world.decide().incident.status.summary


def test_a_full_volume_explains_no_error_that_the_log_names() -> None:
    world = lost("log-nan")
    volume(world, "volume-full")

    assert judged(world)[1] is Blame.APPLICATION
    assert {e.code for e in world.decide().incident.status.evidence} == {"volume-full", "exit-1"}


@pytest.mark.parametrize(("rank", "ago_s", "ended_s"), [(0, 30, 0), (1, 900, 600)])
def test_another_ranks_volume_and_one_that_had_room_again_explain_nothing(
    rank: int, ago_s: float, ended_s: float
) -> None:
    world = lost()
    volume(world, "volume-full", rank=rank, ago_s=ago_s, ended_s=ended_s)

    assert judged(world)[1] is Blame.APPLICATION


def test_storage_that_fails_on_one_node_may_be_that_nodes() -> None:
    world = lost("log-storage")
    volume(world, "volume-broken")

    assert judged(world) == (Fault.UNKNOWN, Blame.UNKNOWN, ["n1"])
    assert CKPT in world.decide().incident.status.summary


@pytest.mark.parametrize("error", ["log-storage", ""])
def test_storage_that_fails_on_many_nodes_is_one_fault_and_no_nodes(error: str) -> None:
    world = lost(error)
    volume(world, "volume-broken")
    volume(world, "volume-silent", rank=2)

    assert judged(world) == (Fault.UNKNOWN, Blame.UNKNOWN, [])
    assert "and the same is true on 2 nodes" in world.decide().incident.status.summary


def test_two_volumes_that_only_share_a_name_are_two() -> None:
    world = lost("log-storage")
    volume(world, "volume-broken")
    volume(world, "volume-broken", rank=2, which="volume pvc-7 (ext4, /dev/sdb)")

    assert judged(world)[2] == ["n1"]


def test_a_gang_that_waits_for_a_silent_volume_hangs_and_says_for_which() -> None:
    world = cluster(nodes=4).running(gang("llm", ranks=3)).stall()
    for rank in range(3):
        volume(world, "volume-silent", rank=rank)

    incident = world.decide().incident
    assert (incident.spec.fault, incident.status.blame) == (Fault.HANG, Blame.UNKNOWN)
    assert "and the same is true on 3 nodes; no node is the culprit" in incident.status.summary
    assert {e.code for e in incident.status.evidence} == {"stalled", "volume-silent"}
    assert world.decide().cordons == []


class Counting(dict[str, NodeHealth]):
    """The reports of the nodes, and how often all of them are read."""

    reads = 0

    def items(self) -> Any:
        self.reads += 1
        return super().items()

    def values(self) -> Any:
        self.reads += 1
        return super().values()


@pytest.mark.parametrize("silent", [0, 20])
def test_the_reports_of_all_nodes_are_not_read_for_each_rank(silent: int) -> None:
    """If shared storage is silent, tens of thousands of ranks hang at the same moment."""
    world = cluster(nodes=21).running(gang("llm", ranks=20)).stall()
    for rank in range(silent):
        volume(world, "volume-silent", rank=rank)
    seen = world.world()
    reports = Counting(seen.health)
    state = gang_state(seen, seen.gangs["llm-uid"], Timing(), world.now)

    gang_faults(
        msgspec.structs.replace(seen, health=reports), {"llm-uid": state}, frozenset(), Timing(), world.now
    )

    assert reports.reads == bool(silent)


def test_the_incident_of_a_lost_rank_names_why_its_node_has_booted() -> None:
    world = lost()
    world.finding(
        on="n1",
        code="boot-after-panic",
        fault=Fault.HOST,
        severity=Severity.INFO,
        final=False,
        subject=Subject(kind=SubjectKind.NODE),
    )

    incident = world.decide().incident
    assert "boot-after-panic" in {e.code for e in incident.status.evidence}
    assert incident.status.blame is Blame.APPLICATION
