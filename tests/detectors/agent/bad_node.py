"""A node where almost everything is broken and every source reports much: 8 GPUs with 18 NVLinks each, 72
pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from detectors.folds.core import AgentCore
from detectors.folds.holders import Given, HeldDevices
from detectors.rules.facts import KernelLine, PodRef
from detectors.service.settings import AgentSettings
from detectors.wire.contract import CoverageState, Device, DevicePod, NodeHealthStatus, Source

__all__ = ["GPUS", "LINKS", "NOW", "PODS", "broken"]

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
GPUS, LINKS, PODS = 8, 18, 72

_LINK = (
    "NVRM: Xid (PCI:{pci}): 145, pid=11436, name=cache_mgr_main, RLW_SRC_TRACK Fatal XC1 i0 Link {link:02} "
    "(0x040868e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)"
)
_OTHERS = (
    "48, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr",
    "63, pid=2187734, name=python, Row Remapper: New row (0x0000000e9b9107e0) marked for remapping",
    "119, pid=1263500, name=cache_mgr_main, Timeout after 6s of waiting for RPC response from GPU4 GSP!",
    "79, GPU has fallen off the bus.",
    "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
)


def broken() -> NodeHealthStatus:
    """Returns the status that the agent would like to publish half an hour after the faults began."""
    core = AgentCore(
        AgentSettings(),
        boot_id="0f1e2d3c-0000-4000-8000-000000000000",
        catalogue_problems=("/etc/rekindle/catalogue.toml: [[xid]] row 1: " + "x" * 400,) * 9,
    )
    devices = [Device(uuid=_uuid(gpu), pci=f"{_pci(gpu)}.0", model="NVIDIA B200") for gpu in range(GPUS)]
    core.inventory(devices, "595.45.04")
    for source in Source:
        core.cover(source, CoverageState.BLIND, NOW, why=f"{source}: " + "w" * 400)
    _pods(core)
    sequence = 0
    for round_ in range(15):  # two minutes apart: each link is a new finding again
        for gpu in range(GPUS):
            links = [_LINK.format(pci=_pci(gpu), link=link) for link in range(LINKS)]
            for text in (*links, *(f"NVRM: Xid (PCI:{_pci(gpu)}): {other}" for other in _OTHERS)):
                sequence += 1
                at = NOW + timedelta(minutes=2 * round_, milliseconds=sequence)
                core.kernel_line(KernelLine(sequence=sequence, at=at, text=text))
    return core.status(NOW + timedelta(minutes=30))


def _pods(core: AgentCore) -> None:
    held = []
    for number in range(PODS):
        uid = f"{number:08x}-1111-4222-8333-444455556666"
        namespace, name = f"research-team-{number % 9}", f"llama-pretraining-worker-{number}"
        ref = PodRef(namespace, name, uid, "pytorch")
        given = Given(namespace, name, {"nvidia.com/gpu": [f"{_uuid(number % GPUS)}::{number}"]})
        held.append(HeldDevices(DevicePod(uid=uid, namespace=namespace, name=name), given))
        core.log_line(ref, "step 41/100 loss 0.3", NOW)
        core.log_line(ref, "CUDA_ERROR_UNKNOWN " + "k" * 600, NOW)
        core.log_line(ref, "Traceback (most recent call last):", NOW)
        core.log_line(ref, "torch.OutOfMemoryError: " + "é" * 600, NOW)
        for line in range(60):
            core.log_line(ref, f"{line} " + "last\x00words\x1b[31m of <rank> " * 4, NOW)
        if number % 2:
            core.pod_ended(ref, NOW + timedelta(seconds=number))
    core.pods_listed(held, frozenset(one.pod.uid for one in held))


def _uuid(gpu: int) -> str:
    return f"GPU-{gpu:08x}-0000-4000-8000-0123456789ab"


def _pci(gpu: int) -> str:
    return f"0000:{0x38 + gpu:02x}:00"
