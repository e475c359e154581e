"""What the child process that asks NVML tells the agent: one sample of all GPUs of the node.

Every field that a GPU, its driver or the library does not know stays None or empty: that is no data, and
never a fault.
Sources: NVIDIA, NVML API reference; Deep-Spark/go-ixml, pkg/ixml/api.h.
"""

from __future__ import annotations

import msgspec

__all__ = ["READINGS_WANTED", "GpuReadings", "GpuSample", "InstanceReadings", "Sample"]

READINGS_WANTED = "readings"
"""The line by which the child is asked for readings, too; any other line asks for the GPUs' health alone."""


class InstanceReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Of one MIG GPU instance."""

    instance: int
    memory_used_bytes: int
    memory_total_bytes: int


class GpuReadings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What dashboards show of a GPU, and no finding is made of."""

    busy_percent: int | None = None
    """Of the driver's last sample period, which is a second at most: in so much of it some kernel ran."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    corrected_ever: int | None = None
    """Corrected ECC errors in the GPU's life."""
    instances: tuple[InstanceReadings, ...] = ()


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
    minor: int | None = None
    """N of its device file /dev/nvidiaN."""
    mig_devices: dict[str, int | None] = {}
    """UUID of each MIG device -> id of its GPU instance, as the driver writes it behind `GPU-I:`; None where
    it did not say."""
    is_mig: bool = False
    """Its MIG mode is on."""
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
    uncorrected: dict[str, int] | None = None
    """Uncorrectable ECC errors since the driver was loaded, by where they were; empty where none are."""
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
    health_bits: int | None = None
    """What is wrong by Iluvatar's library IXML; 0 is nothing, None for a GPU of another vendor."""
    readings: GpuReadings | None = None
    """None where nobody wants them."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    error: str = ""
    """Why nothing was found out at all; NVML is left for this time."""
    driver_version: str = ""
    gpus: tuple[GpuSample, ...] = ()
    is_by_ixml: bool = False
    """Iluvatar's library gave it, which knows no GPU of another vendor."""
