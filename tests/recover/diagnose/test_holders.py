"""Tests recover/diagnose/holders.py: which jobs a broken device affects if several jobs share its node."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Device, DevicePod, Fault, Severity, Subject, SubjectKind
from recover.model import Container, Pod, PodPhase
from tests.acting import recovering
from tests.builders import Worlds, cluster, gang


def shared(**held: str) -> Worlds:
    """Returns two jobs of two ranks, each with a rank on n0 and one on n1. `held` gives for a job its
    device on n0, as n0's agent knows it; all other devices are unknown."""
    world = cluster().running(gang("mine", ranks=2)).running(gang("theirs", ranks=2))
    place(world, {f"{job}-0-uid": device for job, device in held.items()})
    return world


def place(world: Worlds, devices_of_pods: dict[str, str]) -> None:
    devices = [
        Device(
            uuid=uuid,
            pods=[
                DevicePod(uid=uid, namespace="ml", name=uid)
                for uid, held in devices_of_pods.items()
                if held == uuid
            ],
        )
        for uuid in ("GPU-n0", "GPU-other")
    ]
    status = msgspec.structs.replace(world.health["n0"].status, devices=devices)
    world.health["n0"] = msgspec.structs.replace(world.health["n0"], status=status)


def change_device(world: Worlds, uuid: str, **changes: object) -> None:
    status = world.health["n0"].status
    devices = [msgspec.structs.replace(d, **changes) if d.uuid == uuid else d for d in status.devices]
    status = msgspec.structs.replace(status, devices=devices)
    world.health["n0"] = msgspec.structs.replace(world.health["n0"], status=status)


def change_pod(world: Worlds, job: str, rank: int, **changes: object) -> Pod:
    pods = world.pods[f"{job}-uid"]
    pods[f"{job}-{rank}-uid"] = msgspec.structs.replace(pods[f"{job}-{rank}-uid"], **changes)
    return pods[f"{job}-{rank}-uid"]


def restarted(world: Worlds) -> list[str]:
    return sorted(world.decide().restarts)


def test_only_the_job_that_holds_the_broken_device_is_restarted_and_the_node_is_taken_out() -> None:
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(on="n0")

    decision = world.decide()

    assert decision.restarts == ["mine"]
    assert decision.cordons == ["n0"]
    assert [victim.name for victim in decision.incident.status.victims] == ["mine"]


def test_two_jobs_that_share_one_device_are_both_harmed() -> None:
    assert restarted(shared(mine="GPU-n0", theirs="GPU-n0").finding(on="n0")) == ["mine", "theirs"]


def test_a_pod_whose_devices_nobody_knows_counts_as_a_holder() -> None:
    assert restarted(shared(theirs="GPU-other").finding(on="n0")) == ["mine"]
    assert restarted(shared(mine="GPU-n0").finding(on="n0")) == ["mine", "theirs"]
    assert restarted(shared().finding(on="n0")) == ["mine", "theirs"]


def test_a_fault_of_the_node_harms_all_whatever_they_hold() -> None:
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(on="n0")
    change_finding(world, subject=Subject(kind=SubjectKind.NODE))

    assert restarted(world) == ["mine", "theirs"]


def test_a_device_that_is_known_by_its_address_only_may_be_anybodys() -> None:
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(on="n0")
    change_finding(world, subject=Subject(kind=SubjectKind.DEVICE, pci="0000:38:00"))

    assert restarted(world) == ["mine", "theirs"]


def test_a_device_without_a_uuid_is_not_one_that_has_another_address() -> None:
    """A GPU that fails while the node boots never shows its UUID, and the kubelet offers the others."""
    world = shared(theirs="GPU-other").finding(on="n0")
    change_finding(world, subject=Subject(kind=SubjectKind.DEVICE, pci="0000:38:00"))
    change_device(world, "GPU-other", pci="00000000:9B:00.0")
    decision = world.decide()

    assert (decision.restarts, decision.cordons) == (["mine"], ["n0"])
    change_device(world, "GPU-other", pci="0000:38:00.0")
    assert restarted(world) == ["mine", "theirs"]


def test_a_job_that_died_is_started_off_the_node_although_it_held_another_device() -> None:
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(on="n0").crash("theirs", rank=1)

    decision = world.decide()

    assert sorted(decision.restarts) == ["mine", "theirs"]
    assert len(decision.incidents) == 1, "the node's fault explains it, as close as it is in time"


def test_a_gang_whose_only_rank_there_has_crashed_is_explained_by_the_node() -> None:
    """The rank on the lost GPU ends before any reconcile pass; even without that rank the gang is the
    affected gang."""
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(on="n0", ago_s=3).crash("mine", rank=0, ago_s=2)

    decision = world.decide()

    assert decision.restarts == ["mine"]
    assert decision.incident.spec.fault is Fault.DEVICE_LOST
    assert [victim.name for victim in decision.incident.status.victims] == ["mine"]


def test_a_crash_long_after_the_nodes_fault_is_the_gangs_own() -> None:
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(on="n0", ago_s=3000).crash("theirs", rank=0)

    faults = {incident.spec.fault for incident in world.decide().incidents}

    assert Fault.APPLICATION in faults


def test_a_rank_that_held_the_device_and_is_gone_still_makes_its_gang_a_victim() -> None:
    world = shared(mine="GPU-other", theirs="GPU-other").finding(on="n0")
    change_pod(world, "mine", 1, node="n0", phase=PodPhase.SUCCEEDED)
    place(world, {"mine-0-uid": "GPU-other", "mine-1-uid": "GPU-n0", "theirs-0-uid": "GPU-other"})
    assert restarted(world) == ["mine"]

    gone = change_pod(world, "mine", 1, deleting_since=world.now - timedelta(seconds=0.1))
    del world.pods["mine-uid"][gone.uid]
    world.departed = {"mine-uid": {gone.uid: gone}}

    assert restarted(world) == ["mine"]


def test_a_pod_without_devices_is_no_victim_of_one() -> None:
    world = shared(mine="GPU-n0").finding(on="n0")
    change_pod(world, "theirs", 0, accelerators=0)

    assert restarted(world) == ["mine"]
    change_finding(world, subject=Subject(kind=SubjectKind.NODE))
    assert restarted(world) == ["mine", "theirs"]


def test_a_switch_between_gpus_harms_no_pod_without_devices() -> None:
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(
        on="n0",
        code="sxid-24007",
        fault=Fault.NVSWITCH,
        subject=Subject(kind=SubjectKind.SWITCH, pci="0:8b:00"),
    )
    assert restarted(world) == ["mine", "theirs"], "any GPU of the node may use the switch"

    change_pod(world, "theirs", 0, accelerators=0)

    assert restarted(world) == ["mine"]


@pytest.mark.parametrize(("ended_ago_s", "harmed"), [(3600, ["mine"]), (30, ["mine", "theirs"])])
def test_a_rank_that_had_ended_long_before_the_fault_did_not_hold_the_device(
    ended_ago_s: float, harmed: list[str]
) -> None:
    """The kubelet gave the device of the rank that ended to another job; the pod of the rank remains."""
    world = shared().finding(on="n0")
    place(world, {"theirs-0-uid": "GPU-n0", "theirs-1-uid": "GPU-other", "mine-0-uid": "GPU-n0"})
    change_pod(world, "theirs", 1, node="n0")
    ended = Container(
        "train", running=False, exit_code=0, finished_at=world.now - timedelta(seconds=ended_ago_s)
    )
    change_pod(world, "theirs", 0, phase=PodPhase.SUCCEEDED, containers=(ended,))

    assert restarted(world) == harmed


def test_a_job_is_as_urgent_as_its_own_devices_fault() -> None:
    """One job's device has rows to be remapped, which waits for a checkpoint; the other job's GPU is lost."""
    world = shared(mine="GPU-n0", theirs="GPU-other").finding(on="n0")
    world.finding(on="n0", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    change_finding(world, number=1, subject=Subject(kind=SubjectKind.DEVICE, device="GPU-other"))

    assert restarted(world) == ["mine"]
    recovering(world).later(world.settings.timing.checkpoint_grace_s + 1)
    assert restarted(world) == ["theirs"]


def change_finding(world: Worlds, *, number: int = 0, **changes: object) -> None:
    status = world.health["n0"].status
    findings = list(status.findings)
    findings[number] = msgspec.structs.replace(findings[number], **changes)
    status = msgspec.structs.replace(status, findings=findings)
    world.health["n0"] = msgspec.structs.replace(world.health["n0"], status=status)
