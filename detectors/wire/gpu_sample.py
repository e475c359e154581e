"""Defines one sample of all GPUs of the node, which the child process that asks NVML sends to the agent.

Every field that a GPU, its driver or the library does not know stays None or empty: that is no data, and
never a fault.
Sources: NVIDIA, NVML API reference; Deep-Spark/go-ixml, pkg/ixml/api.h.
"""

from __future__ import annotations

import msgspec

__all__ = ["READINGS_WANTED", "GpuReadings", "GpuSample", "InstanceReadings", "Sample"]

READINGS_WANTED = "readings"
"""The line that asks the child for readings, too; any other line asks only for the GPUs' health."""


class InstanceReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Readings of one MIG GPU instance."""

    instance: int
    memory_used_bytes: int
    memory_total_bytes: int


class GpuReadings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Readings of a GPU for dashboards, from which no finding is made."""

    busy_percent: int | None = None
    """Percentage of the driver's last sample period (at most one second) in which a kernel ran."""
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
    """The answers of one GPU."""

    index: int
    """Index in NVML's list."""
    uuid: str = ""
    pci: str = ""
    """`dddd:bb:dd.f`; empty if the GPU did not even report that."""
    model: str = ""
    refused: str = ""
    """NVML's name of the error that says that the GPU is lost or needs a reset: GPU_IS_LOST or
    RESET_REQUIRED. If NVML gives no handle for the GPU, `refused` may also name another error, such as
    UNKNOWN. A GPU that has neither `refused` nor `pci` is hidden from the agent, for example because NVML
    denies the permission."""
    minor: int | None = None
    """N of its device file /dev/nvidiaN."""
    mig_devices: dict[str, int | None] = {}
    """UUID of each MIG device -> id of its GPU instance, as the driver writes it after `GPU-I:`; None if the
    driver did not report it."""
    is_mig: bool = False
    """Whether its MIG mode is on."""
    mig_changes: bool = False
    """Whether another MIG mode waits for a reset."""
    is_persistent: bool | None = None
    """Whether the driver keeps the GPU ready while no process has it open."""
    free_bytes: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    pages_pending: bool | None = None
    """Whether memory pages wait to be retired; for GPUs before Ampere."""
    sram_exceeded: bool | None = None
    uncorrected: dict[str, int] | None = None
    """Number of uncorrectable ECC errors since the driver was loaded, by location; empty if there are
    none."""
    uncorrected_ever: int | None = None
    recovery_action: int | None = None
    """Recovery action: 0 is none; the others as in Xid 154."""
    links: tuple[bool | None, ...] = ()
    """State of each NVLink, by number; None if a link reports nothing."""
    link_errors: int | None = None
    """Number of replays and recoveries of all NVLinks, counted by the GPU."""
    fabric_state: int | None = None
    """1 not begun, 2 in progress, 3 done."""
    fabric_status: int | None = None
    """NVML's return code of a fabric whose set-up is done."""
    fabric_health: int | None = None
    """Bits, two or more for each question."""
    slowdowns: int | None = None
    """The reasons for the present clocks, as bits."""
    margin_c: int | None = None
    """Number of degrees Celsius by which the GPU may become hotter before it slows itself down."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    replays: int | None = None
    """Number of packets that PCIe sent again."""
    is_inforom_bad: bool | None = None
    health_bits: int | None = None
    """Faults reported by Iluvatar's library IXML, as bits; 0 is no fault, None a GPU of another vendor."""
    readings: GpuReadings | None = None
    """Readings for dashboards; None if they were not requested."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    error: str = ""
    """Reason why there is no sample at all; the child process ends after such an answer."""
    driver_version: str = ""
    gpus: tuple[GpuSample, ...] = ()
    is_by_ixml: bool = False
    """Whether the sample is from Iluvatar's library, which knows no GPU of another vendor."""
