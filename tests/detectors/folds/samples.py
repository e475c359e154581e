"""Samples of the GPUs of a node, as the child that reads NVML reports them."""

from __future__ import annotations

from typing import Any

import msgspec

from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.gpu_sample import GpuSample, Sample

__all__ = ["COUNT", "LINKS", "LOST", "gpu", "node", "pci", "place", "without"]

COUNT = 4
LINKS = (True,) * 18
LOST = GpuSample(index=2, refused="GPU_IS_LOST")


def pci(index: int) -> str:
    return f"0000:{0x10 * (index + 1):02x}:00"


def place(index: int) -> PciAddress:
    found = parse_pci(pci(index))
    assert found is not None
    return found


def gpu(index: int, **answers: Any) -> GpuSample:
    """Returns a healthy GPU that differs in these answers."""
    healthy: dict[str, Any] = {
        "rows_pending": False,
        "rows_failed": False,
        "sram_exceeded": False,
        "uncorrected": {},
        "uncorrected_ever": 0,
        "links": LINKS,
        "slowdowns": 1,
        "margin_c": 40,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "replays": 0,
        "recovery_action": 0,
        "link_errors": 0,
    }
    who = {"uuid": f"GPU-{index}", "pci": f"{pci(index)}.0", "model": "NVIDIA H100"}
    return GpuSample(index=index, **(who | healthy | answers))


def node(*changed: GpuSample, count: int = COUNT, driver: str = "595.45.04") -> Sample:
    """Returns a sample of all GPUs, with these GPUs among them."""
    by_index = {number: gpu(number) for number in range(count)} | {one.index: one for one in changed}
    return Sample(driver_version=driver, gpus=tuple(by_index.values()))


def without(*gone: int) -> Sample:
    """Returns a sample without these GPUs: NVML's list is shorter, and its numbers move up."""
    left = [gpu(number) for number in range(COUNT) if number not in gone]
    numbered = (msgspec.structs.replace(one, index=number) for number, one in enumerate(left))
    return Sample(driver_version="595.45.04", gpus=tuple(numbered))
