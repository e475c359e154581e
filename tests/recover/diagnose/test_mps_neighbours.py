"""Tests which program may have ended a rank by MPS, on a node with eight GPUs. The kubelet's answer goes
through the agent's own reader and fold, and the resulting status through the controller's diagnosis."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.folds.core import AgentCore, Dirty
from detectors.folds.holders import MigDevice
from detectors.rules.facts import KernelLine
from detectors.service.settings import AgentSettings
from detectors.wire.contract import Device, NodeHealthStatus
from recover.api import Blame
from recover.model.modes import Mode
from tests.acting import apply
from tests.builders import BOOT, NOW, Worlds, cluster, gang
from tests.recover.diagnose.test_blast_radius import Job, change_pod, listed

SHARED = "nvidia.com/gpu.shared"
GPUS = tuple(Device(uuid=f"GPU-{n}", pci=f"0000:{0x18 + n:02x}:00.0", index=n, minor=n) for n in range(8))
MIG_DEVICES = {"MIG-5": MigDevice("GPU-0", instance=5), "MIG-6": MigDevice("GPU-0", instance=6)}


def exception(gpu: int, instance: str = "") -> str:
    """Returns a program's own fault, as the driver prints it."""
    return (
        f"NVRM: Xid (PCI:0000:{0x18 + gpu:02x}:00{instance}): 31, pid=4242, name=python3, Ch 00000008, "
        "intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_00000000"
    )


def shared(*ids: str) -> Job:
    return Job(ids, SHARED)


ALONE = Job(("GPU-4",))
CROWD = {
    "mine": shared("GPU-0::0"),
    "beside": shared("GPU-0::3"),
    "on-two": shared("GPU-0::5", "GPU-1::0"),
    "on-one": shared("GPU-1::2"),
    "far": shared("GPU-2::0"),
    "far-too": shared("GPU-2::7"),
    "alone": ALONE,
}
BY_MIG = {
    "mine": Job(("MIG-5::0",), "nvidia.com/mig-1g.10gb.shared"),
    "beside": Job(("MIG-5::1",), "nvidia.com/mig-1g.10gb.shared"),
    "other-instance": Job(("MIG-6::0",), "nvidia.com/mig-1g.10gb.shared"),
}
UNTOLD = CROWD | {"outdated_specs": Job(("GPU-3-1",))}


@pytest.mark.parametrize(
    ("jobs", "line", "lost", "may_be_another"),
    [
        (CROWD, exception(0), "mine", True),
        (CROWD, exception(1), "mine", True),  # on-two may have failed on GPU-1, and shares GPU-0 with mine
        (CROWD, exception(2), "mine", False),  # no program on GPU-2 shares a GPU with mine
        (CROWD, exception(0), "on-one", True),  # on-two may have failed on GPU-0
        (CROWD, exception(0), "far", False),
        (CROWD, exception(4), "alone", False),  # its own exception, on a GPU that it does not share
        (CROWD, exception(0), "alone", False),
        (UNTOLD, exception(2), "mine", True),  # the GPU of one pod is unknown
        (BY_MIG, exception(0, " GPU-I:05"), "mine", True),
        (BY_MIG, exception(0, " GPU-I:06"), "mine", False),
        (BY_MIG, exception(0, " GPU-I:06"), "other-instance", False),
        (BY_MIG, exception(0), "other-instance", False),
        (BY_MIG, exception(0), "mine", True),
    ],
)
async def test_another_program_may_have_ended_a_rank_only_where_both_share_what_failed(
    jobs: dict[str, Job], line: str, lost: str, may_be_another: bool
) -> None:
    held, there = await listed(jobs)
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    core.inventory(GPUS, "595.45.04", MIG_DEVICES)
    core.pods_listed(held, there)
    core.kernel_line(KernelLine(1, NOW, line))

    assert blame(jobs, core.status(NOW), lost) is (Blame.UNKNOWN if may_be_another else Blame.APPLICATION)


def blame(jobs: dict[str, Job], status: NodeHealthStatus, lost: str) -> Blame:
    """Returns the culprit if the rank of the job `lost` fails at the time of the exception."""
    world = playing(jobs, status)
    world.crash(lost, rank=0, ago_s=1)
    (found,) = [one for one in world.decide().incidents if one.spec.gang and one.spec.gang.name == lost]
    return found.status.blame


def playing(jobs: dict[str, Job], status: NodeHealthStatus) -> Worlds:
    world = cluster(nodes=1)
    for name, job in jobs.items():
        world.running(gang(name, ranks=1))
        change_pod(world, name, job)
    world.change_node("n0", labels={"nvidia.com/gpu.sharing-strategy": "mps"})
    known = world.health["n0"].status
    status = msgspec.structs.replace(known, findings=status.findings, devices=status.devices)
    world.health["n0"] = msgspec.structs.replace(world.health["n0"], status=status)
    return world


async def test_the_pods_of_shared_gpus_are_published_around_an_exception_and_not_for_ever() -> None:
    held, there = await listed(CROWD)
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    core.inventory(GPUS, "595.45.04", {})
    core.pods_listed(held, there)
    core.mark_written()

    def pods_told(seconds: float) -> int:
        core.tick(later := NOW + timedelta(seconds=seconds))
        return sum(len(device.pods) for device in core.status(later).devices)

    assert pods_told(0) == 0
    core.kernel_line(KernelLine(1, NOW, exception(0)))
    assert pods_told(60) == 8
    core.mark_written()
    core.pods_listed(held[:-1], there)
    assert core.dirty is Dirty.NOTHING, "who has gone is still told"
    assert pods_told(3600) == 0
    assert core.dirty is Dirty.COARSE
    core.kernel_line(KernelLine(2, NOW + timedelta(hours=1), exception(0)))
    assert core.dirty is Dirty.EDGE, "a repetition brings them back at once"


async def test_where_each_pod_has_its_own_gpus_an_exception_publishes_no_pods() -> None:
    held, there = await listed({"a": Job(("GPU-0",)), "b": Job(("GPU-1",))})
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    core.inventory(GPUS, "595.45.04", {})
    core.pods_listed(held, there)
    core.kernel_line(KernelLine(1, NOW, exception(0)))

    assert not any(device.pods for device in core.status(NOW).devices)


async def playing_after(line: str) -> tuple[Worlds, AgentCore]:
    """Returns a world right after this line, in which the jobs of CROWD run and none may be restarted, and
    the agent of their node."""
    held, there = await listed(CROWD)
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    core.inventory(GPUS, "595.45.04", MIG_DEVICES)
    core.pods_listed(held, there)
    core.kernel_line(KernelLine(1, NOW, line))
    world = playing(CROWD, core.status(NOW))
    world.mode = Mode.OBSERVE
    return world, core


def report(world: Worlds, status: NodeHealthStatus) -> None:
    known = world.health["n0"]
    told = msgspec.structs.replace(known.status, findings=status.findings, devices=status.devices)
    world.health["n0"] = msgspec.structs.replace(known, status=told)


def said_of(world: Worlds, name: str) -> list[tuple[Blame, str]]:
    """Returns culprit and summary of each Incident of the gang itself, after one more reconcile pass."""
    apply(world, world.decide().plan)
    own = [one.status for one in world.incidents.values() if one.spec.gang and one.spec.gang.name == name]
    return [(status.blame, status.summary) for status in own]


async def test_a_program_stays_blamed_when_the_agent_no_longer_publishes_who_holds_the_gpus() -> None:
    world, core = await playing_after(exception(0))
    world.crash("far", rank=0, ago_s=1)
    ((blame, words),) = said_of(world, "far")
    assert blame is Blame.APPLICATION

    core.tick(later := NOW + timedelta(minutes=20))
    world.later(1200)
    report(world, core.status(later))

    assert not any(device.pods for device in world.health["n0"].status.devices)
    assert said_of(world, "far") == [(blame, words)]


@pytest.mark.parametrize("after_s", [60, 1200])
async def test_nobody_stays_blamed_when_the_neighbours_leave(after_s: float) -> None:
    world, _ = await playing_after(exception(0))
    world.crash("mine", rank=0, ago_s=1)
    ((blame, words),) = said_of(world, "mine")
    assert blame is Blame.UNKNOWN

    for name in ("beside", "on-two"):
        world.pods[f"{name}-uid"].clear()
    world.later(after_s)

    assert said_of(world, "mine") == [(blame, words)]


async def test_an_exception_that_is_told_after_the_loss_still_clears_the_program() -> None:
    world, core = await playing_after(exception(0))
    world.crash("mine", rank=0, ago_s=1)
    report(world, NodeHealthStatus())
    ((blame, _),) = said_of(world, "mine")
    assert blame is Blame.APPLICATION

    world.later(5)
    report(world, core.status(NOW))

    ((blame, words),) = said_of(world, "mine")
    assert blame is Blame.UNKNOWN
    assert "xid-31" in words


async def test_a_later_loss_of_the_same_job_is_judged_for_itself() -> None:
    world, _ = await playing_after(exception(0))
    world.crash("mine", rank=0, ago_s=1)
    assert said_of(world, "mine")[0][0] is Blame.UNKNOWN

    for name in ("beside", "on-two"):
        world.pods[f"{name}-uid"].clear()
    world.later(30)
    world.crash("mine", rank=0, exit_code=7, ago_s=1)

    assert said_of(world, "mine")[0][0] is Blame.APPLICATION
