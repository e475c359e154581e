"""Tests which pods a broken GPU affects, for each way to share a GPU: the table of docs/recovery.md.

The kubelet's answer goes through the agent's own reader, the kernel's lines go through its fold, and the
resulting status goes through the controller's diagnosis. Each job has one pod, on the same node.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import pytest

from detectors.folds.core import AgentCore
from detectors.folds.holders import HeldDevices, MigDevice
from detectors.rules.facts import KernelLine
from detectors.service.settings import AgentSettings
from detectors.service.settings import PodResources as Settings
from detectors.sources.pod_resources import PodResources
from detectors.wire.contract import Device, NodeHealthStatus
from tests.builders import BOOT, NOW, Worlds, cluster, gang
from tests.detectors.sources.kubelet import answer, kubelet, pod

LOST = "NVRM: Xid (PCI:0000:38:00): 79, GPU has fallen off the bus."
UNCONTAINED = "NVRM: Xid (PCI:0000:38:00): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"
UNCONTAINED_BY_5 = UNCONTAINED.replace("38:00)", "38:00 GPU-I:05)")
CONTAINED = "NVRM: Xid (PCI:0000:38:00): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
CONTAINED_IN_5 = CONTAINED.replace("38:00)", "38:00 GPU-I:05)")
CONTAINED_IN_CI = CONTAINED.replace("38:00)", "38:00 GPU-I:05 GPU-CI:00)")
CONTAINED_IN_6 = CONTAINED.replace("38:00)", "38:00 GPU-I:06)")
DRAINED_IN_5 = CONTAINED_IN_5.replace("D-RST: No", "D-RST: Yes")
RESET = (
    "NVRM: Xid (PCI:0000:38:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
)
ROW_NOTED = "NVRM: Xid (PCI:0000:38:00): 63, Row Remapper: New row (0x0e9b) marked for remapping"
BAD_PROGRAM = "NVRM: Xid (PCI:0000:38:00): 31, pid=1942, name=python3, Ch 02. MMU Fault: ENGINE GRAPHICS"

GPUS = (
    Device(uuid="GPU-0", pci="0000:38:00.0", index=0, minor=0),
    Device(uuid="GPU-1", pci="0000:39:00.0", index=1, minor=1),
)
MIG_DEVICES = {"MIG-5": MigDevice("GPU-0", instance=5), "MIG-6": MigDevice("GPU-0", instance=6)}


class Job(msgspec.Struct, frozen=True):
    """Devices of a job's pod as the kubelet, and any layer that shares GPUs, report them."""

    ids: tuple[str, ...] = ()
    resource: str = "nvidia.com/gpu"
    claimed: tuple[tuple[str, str], ...] = ()
    annotations: Mapping[str, str] = {}


def hami(*devices: str) -> Job:
    """Returns a job for which HAMi assigned other devices than the kubelet chose."""
    told = "".join(f"{device},NVIDIA,4096,30:" for device in devices)
    return Job(("GPU-1-7",), annotations={"hami.io/vgpu-devices-allocated": f";{told};"})


def gpu_manager(indices: str, *, assigned: str = "true") -> Job:
    annotations = {"tencent.com/gpu-assigned": assigned, "tencent.com/predicate-gpu-idx-0": indices}
    return Job(("tencent.com/vcuda-core-12",), "tencent.com/vcuda-core", annotations=annotations)


WHOLE = {"a": Job(("GPU-0",)), "b": Job(("GPU-1",)), "both": Job(("GPU-0", "GPU-1"))}
IN_TIME = {"a": Job(("GPU-0::0",)), "b": Job(("GPU-0::3",)), "c": Job(("GPU-1::0",))}
BY_MPS = {name: Job(job.ids, "nvidia.com/gpu.shared") for name, job in IN_TIME.items()}
BY_MIG = {
    "in-5": Job(("MIG-5",), "nvidia.com/mig-1g.10gb"),
    "in-6": Job(("MIG-6",), "nvidia.com/mig-1g.10gb"),
    "in-both": Job(("MIG-5", "MIG-6"), "nvidia.com/mig-1g.10gb"),
    "other-gpu": Job(("GPU-1",)),
}
BY_OLD_MIG = {"in-5": Job(("MIG-GPU-0/5/0",)), "in-6": Job(("MIG-GPU-0/6/0",)), "other-gpu": Job(("GPU-1",))}
MIG_IN_TIME = {"in-5": Job(("MIG-5::0",)), "also-in-5": Job(("MIG-5::1",)), "in-6": Job(("MIG-6::0",))}
BY_HAMI = {
    "a": hami("GPU-0"),
    "b": hami("GPU-1"),
    "mig": hami("GPU-0[1g.10gb-2]"),
    "outdated_specs": Job(("GPU-1-3",)),
    "of-another-node": hami("GPU-elsewhere"),
}
BY_GPU_MANAGER = {
    "a": gpu_manager("0"),
    "b": gpu_manager("1"),
    "both": gpu_manager("0,1"),
    "only-wished": gpu_manager("1", assigned="false"),
    "no-such-card": gpu_manager("7"),
}
BY_CLAIM = {
    "a": Job(claimed=(("gpu.nvidia.com", "gpu-0"),)),
    "b": Job(claimed=(("gpu.nvidia.com", "gpu-1"), ("compute-domain.nvidia.com", "channel-3"))),
    "mig": Job(claimed=(("gpu.nvidia.com", "gpu-0-mig-1g10gb-19-2"),)),
    "of-another-driver": Job(claimed=(("gpu.example.com", "gpu-1"),)),
}


# fmt: off
TABLE = [
    pytest.param(WHOLE, [
        ((LOST,), {"a", "both"}),
        ((CONTAINED,), {"a", "both"}),
        ((BAD_PROGRAM,), set()),
    ], id="whole GPUs"),
    pytest.param(IN_TIME, [
        ((LOST,), {"a", "b"}),
        ((CONTAINED,), {"a", "b"}),
        ((BAD_PROGRAM,), set()),
    ], id="time-slicing"),
    pytest.param(BY_MPS, [
        ((LOST,), {"a", "b"}),
        ((BAD_PROGRAM,), set()),
    ], id="MPS"),
    pytest.param(BY_MIG, [
        ((LOST,), {"in-5", "in-6", "in-both"}),
        ((UNCONTAINED,), {"in-5", "in-6", "in-both"}),
        ((UNCONTAINED_BY_5,), {"in-5", "in-6", "in-both"}),
        ((CONTAINED_IN_5,), {"in-5", "in-both"}),
        ((CONTAINED_IN_CI,), {"in-5", "in-both"}),
        ((DRAINED_IN_5,), {"in-5", "in-both"}),
        ((CONTAINED_IN_6,), {"in-6", "in-both"}),
        ((CONTAINED_IN_5, CONTAINED_IN_6), {"in-5", "in-6", "in-both"}),
        ((CONTAINED_IN_5, ROW_NOTED, BAD_PROGRAM), {"in-5", "in-both"}),
        ((CONTAINED_IN_5, RESET), {"in-5", "in-6", "in-both"}),
        ((CONTAINED_IN_5, UNCONTAINED), {"in-5", "in-6", "in-both"}),
        ((CONTAINED,), {"in-5", "in-6", "in-both"}),
    ], id="MIG"),
    pytest.param(BY_OLD_MIG, [
        ((LOST,), {"in-5", "in-6"}),
        ((CONTAINED_IN_5,), {"in-5"}),
    ], id="MIG before R470"),
    pytest.param(MIG_IN_TIME, [
        ((LOST,), {"in-5", "also-in-5", "in-6"}),
        ((CONTAINED_IN_5,), {"in-5", "also-in-5"}),
    ], id="time-slicing of MIG"),
    pytest.param(BY_HAMI, [
        ((LOST,), {"a", "mig", "outdated_specs", "of-another-node"}),
    ], id="HAMi"),
    pytest.param(BY_GPU_MANAGER, [
        ((LOST,), {"a", "both", "only-wished", "no-such-card"}),
    ], id="GPU-Manager"),
    pytest.param(BY_CLAIM, [
        ((LOST,), {"a", "mig", "of-another-driver"}),
        ((CONTAINED_IN_5,), {"a", "mig", "of-another-driver"}),
    ], id="DRA"),
]
# fmt: on


@pytest.mark.parametrize(("jobs", "cases"), TABLE)
async def test_exactly_the_jobs_are_harmed_that_hold_what_broke(
    jobs: dict[str, Job], cases: list[tuple[tuple[str, ...], set[str]]]
) -> None:
    held, there = await listed(jobs)

    for lines, harmed in cases:
        found = victims(jobs, published(held, there, lines))
        assert found == harmed, lines


async def test_an_agent_that_starts_again_accuses_no_pod_on_another_mig_device() -> None:
    """The kubelet answers first, and only NVML says to which GPU a MIG device belongs."""
    jobs = {name: BY_MIG[name] for name in ("in-5", "in-6", "other-gpu")}
    held, there = await listed(jobs)
    earlier = published(held, there, [CONTAINED_IN_5])
    assert victims(jobs, earlier) == {"in-5"}

    core = AgentCore(AgentSettings(), boot_id=BOOT)
    core.restore(earlier)
    core.inventory(GPUS, "595.45.04")
    core.pods_listed(held, there)

    assert victims(jobs, core.status(NOW)) == {"in-5"}


async def listed(jobs: Mapping[str, Job]) -> tuple[list[HeldDevices], frozenset[str]]:
    """Returns the devices and pods that the agent's reader of the kubelet hands on."""
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))  # a socket's path has at most 107 bytes
    heard = Heard()
    source = PodResources(root, heard, Settings(deadline_s=20))
    for name in jobs:
        (root / f"var/log/pods/ml_{name}-worker-0_{name}-0-uid").mkdir(parents=True)
    with kubelet(root) as played:
        played.answer = answer(
            *(
                pod(f"{name}-worker-0", *job.ids, resource=job.resource, claimed=job.claimed)
                for name, job in jobs.items()
            )
        )
        task = asyncio.create_task(source.run())
        await asyncio.wait_for(source.asked.wait(), 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    shutil.rmtree(root)
    assert not heard.why
    return heard.held, heard.there


class Heard:
    def __init__(self) -> None:
        self.held: list[HeldDevices] = []
        self.there: frozenset[str] = frozenset()
        self.why = ""

    def listed(self, pods: Iterable[HeldDevices], there: frozenset[str]) -> None:
        self.held, self.there = list(pods), there

    def covered(self) -> None:
        pass

    def blind(self, why: str) -> None:
        self.why = why


def published(held: list[HeldDevices], there: frozenset[str], lines: Iterable[str]) -> NodeHealthStatus:
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    core.inventory(GPUS, "595.45.04", MIG_DEVICES)
    core.pods_listed(held, there)
    for sequence, line in enumerate(lines):
        core.kernel_line(KernelLine(sequence, NOW, line))
    return core.status(NOW)


def victims(jobs: Mapping[str, Job], status: NodeHealthStatus) -> set[str]:
    """Returns the jobs that the Incident of the node names, once its verdict has settled."""
    world = cluster(nodes=1)
    for name, job in jobs.items():
        world.running(gang(name, ranks=1))
        change_pod(world, name, job)
    known = world.health["n0"].status
    status = msgspec.structs.replace(known, findings=status.findings, devices=status.devices)
    world.health["n0"] = msgspec.structs.replace(world.health["n0"], status=status)
    found = world.later(60).decide().incidents
    return {victim.name for incident in found for victim in incident.status.victims}


def change_pod(world: Worlds, name: str, job: Job) -> None:
    pods = world.pods[f"{name}-uid"]
    (uid,) = pods
    pods[uid] = msgspec.structs.replace(
        pods[uid],
        accelerators=0 if job.claimed else len(job.ids),
        has_claims=bool(job.claimed),
        requests=() if job.claimed else ((job.resource, len(job.ids)),),
        annotations=job.annotations,
    )
