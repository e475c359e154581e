"""What the child process that asks NVML tells the agent: one look at all GPUs of the node.

Every field that a GPU, its driver or the library does not know stays None or empty: that is no data, and
never a fault.
Source: NVIDIA, NVML API reference.
"""

from __future__ import annotations

import msgspec

__all__ = ["GpuSample", "Sample"]


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one GPU answered."""

    index: int
    """Its place in NVML's list."""
    uuid: str = ""
    pci: str = ""
    """`dddd:bb:dd.f`; empty where the GPU did not say even that."""
    model: str = ""
    refused: str = ""
    """NVML's name of the error that says what became of the GPU: GPU_IS_LOST or RESET_REQUIRED; where there
    is not even a handle, any other, as UNKNOWN. With neither this nor `pci`: one that we may not see."""
    mig_devices: tuple[str, ...] = ()
    mig_changes: bool = False
    """Another MIG mode waits for a reset."""
    is_persistent: bool | None = None
    """The driver keeps the GPU ready while nobody has it open."""
    free_bytes: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    pages_pending: bool | None = None
    """Memory pages that wait to be retired, of GPUs before Ampere."""
    sram_exceeded: bool | None = None
    uncorrected: dict[str, int] = {}
    """Uncorrectable ECC errors since the driver was loaded, by where they were; none where none are."""
    uncorrected_ever: int | None = None
    recovery_action: int | None = None
    """0 is none; the others as in Xid 154."""
    links: tuple[bool | None, ...] = ()
    """Which NVLinks are up, by number; None where one tells nothing."""
    link_errors: int | None = None
    """Replays and recoveries of all NVLinks, counted by the GPU."""
    fabric_state: int | None = None
    """1 not begun, 2 in progress, 3 done."""
    fabric_status: int | None = None
    """NVML's return code of a fabric whose set-up is done."""
    fabric_health: int | None = None
    """Bits, two or more for each question."""
    slowdowns: int | None = None
    """The reasons why the clocks are as they are, as bits."""
    margin_c: int | None = None
    """How much hotter the GPU may become before it slows itself down, in degrees Celsius."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    replays: int | None = None
    """Packets that PCIe sent again."""
    is_inforom_bad: bool | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    error: str = ""
    """Why nothing was found out at all; NVML is left for this time."""
    driver_version: str = ""
    gpus: tuple[GpuSample, ...] = ()
