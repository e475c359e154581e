"""Lines of the kernel's log as NVIDIA's driver writes them, and the harm behind each of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

__all__ = [
    "BY_NAME",
    "CODE_OF_THE_FUTURE",
    "CONTAINED",
    "DOUBLE_BIT_ERROR",
    "FALLEN_OFF_THE_BUS",
    "FATAL",
    "GSP_TIMEOUT",
    "MMU_FAULT",
    "NVLINK_ERROR",
    "POWER_LOW",
    "POWER_SMOOTHING_OFF",
    "PREEMPTIVE_REMOVAL",
    "RETIRED_CODE",
    "ROW_REMAPPED",
    "UNCONTAINED",
    "WEAK",
    "Harm",
    "KernelText",
    "gpu_address",
]


class Harm(Enum):
    """The truth behind a line, by which the checks judge the controller."""

    FATAL = "fatal"
    """Work that runs there is lost, and no new work may be placed there until the machine has booted
    again."""
    DEGRADED = "degraded"
    """The node is still useful: it may get a soft taint, and a gang may be moved off it at a checkpoint."""
    UNKNOWN = "unknown"
    """The meaning is unknown, and nothing is wrong: at most a soft taint is justified."""
    NONE = "none"
    """A tenant can provoke the line at will, or the vendor states that nothing is wrong."""


class KernelText(msgspec.Struct, frozen=True):
    text: str
    harm: Harm = Harm.FATAL
    is_final: bool = False
    """Whether the device is lost permanently: no line that the driver prints a moment later reports less
    harm."""


FALLEN_OFF_THE_BUS = KernelText("NVRM: Xid ({pci}): 79, GPU has fallen off the bus.", is_final=True)
DOUBLE_BIT_ERROR = KernelText(
    "NVRM: Xid ({pci}): 48, An uncorrectable double bit error (DBE) has been detected on GPU in the "
    "framebuffer at physAddr 0xe9b9107e0 partition 3, subpartition 0.",
    is_final=True,
)
GSP_TIMEOUT = KernelText(
    "NVRM: Xid ({pci}): 119, pid=1263500, name=cache_mgr_main, Timeout after 6s of waiting for RPC response "
    "from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801813 0x4c).",
)
NVLINK_ERROR = KernelText(
    "NVRM: Xid ({pci}): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14(0x0, "
    "0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
)
ROW_REMAPPED = KernelText(
    "NVRM: Xid ({pci}): 63, pid=2187734, name=python, Row Remapper: New row (0x0000000e9b9107e0) marked for "
    "remapping, reset gpu to activate.",
    harm=Harm.NONE,
)
CONTAINED = KernelText(
    "NVRM: Xid ({pci}): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    harm=Harm.DEGRADED,
)
MMU_FAULT = KernelText(
    "NVRM: Xid ({pci}): 31, pid=1942, name=llama-bench, channel 0x00000002, intr 00000000. MMU Fault: ENGINE "
    "GRAPHICS GPC6 GPCCLIENT_T1_13 faulted @ 0x6f6f_320c2000. Fault is of type FAULT_PDE "
    "ACCESS_TYPE_VIRT_READ",
    harm=Harm.NONE,
)
PREEMPTIVE_REMOVAL = KernelText(
    "NVRM: Xid ({pci}): 45, pid=1818990, name=python3, Ch 00000001", harm=Harm.NONE
)

UNCONTAINED = KernelText(
    "NVRM: Xid ({pci}): 95, pid=7194, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
)
POWER_LOW = KernelText("NVRM: Xid ({pci}): 54, pid='<unknown>', name=<unknown>", harm=Harm.DEGRADED)
RETIRED_CODE = KernelText("NVRM: Xid ({pci}): 61, pid=1263500, name=python3", harm=Harm.UNKNOWN)
CODE_OF_THE_FUTURE = KernelText("NVRM: Xid ({pci}): 913, pid=1263500, name=python3", harm=Harm.UNKNOWN)
POWER_SMOOTHING_OFF = KernelText("NVRM: Xid ({pci}): 163, pid='<unknown>'", harm=Harm.NONE)

BY_NAME: Mapping[str, KernelText] = {
    "off-the-bus": FALLEN_OFF_THE_BUS,
    "double-bit-error": DOUBLE_BIT_ERROR,
    "gsp-timeout": GSP_TIMEOUT,
    "nvlink-error": NVLINK_ERROR,
    "uncontained": UNCONTAINED,
    "row-remapped": ROW_REMAPPED,
    "contained": CONTAINED,
    "power-low": POWER_LOW,
    "retired-code": RETIRED_CODE,
    "code-of-the-future": CODE_OF_THE_FUTURE,
    "power-smoothing-off": POWER_SMOOTHING_OFF,
    "mmu-fault": MMU_FAULT,
    "preemptive-removal": PREEMPTIVE_REMOVAL,
}
"""Lines by the names that scripts use."""
FATAL = tuple(name for name, line in BY_NAME.items() if line.harm is Harm.FATAL)
WEAK = tuple(name for name, line in BY_NAME.items() if line.harm in (Harm.DEGRADED, Harm.UNKNOWN))


def gpu_address(gpu: int) -> str:
    """Returns the PCI address of the n-th GPU of a node, as the kernel writes it."""
    return f"PCI:0000:{0x18 + gpu:02x}:00"
