"""Lines of the kernel's log as NVIDIA's driver writes them, and which of them show broken hardware."""

from __future__ import annotations

import msgspec

__all__ = [
    "CONTAINED",
    "DOUBLE_BIT_ERROR",
    "FALLEN_OFF_THE_BUS",
    "GSP_TIMEOUT",
    "MMU_FAULT",
    "NVLINK_ERROR",
    "PREEMPTIVE_REMOVAL",
    "ROW_REMAPPED",
    "KernelText",
    "gpu_address",
]


class KernelText(msgspec.Struct, frozen=True):
    """`hardware` is the truth that the checks hold the controller to: False where a tenant provokes the line
    at will, or the vendor says to ignore it. `cordons` is False where the node stays of use."""

    text: str
    hardware: bool
    cordons: bool = True


FALLEN_OFF_THE_BUS = KernelText("NVRM: Xid ({pci}): 79, GPU has fallen off the bus.", hardware=True)
DOUBLE_BIT_ERROR = KernelText(
    "NVRM: Xid ({pci}): 48, An uncorrectable double bit error (DBE) has been detected on GPU in the "
    "framebuffer at physAddr 0xe9b9107e0 partition 3, subpartition 0.",
    hardware=True,
)
GSP_TIMEOUT = KernelText(
    "NVRM: Xid ({pci}): 119, pid=1263500, name=cache_mgr_main, Timeout after 6s of waiting for RPC response "
    "from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801813 0x4c).",
    hardware=True,
)
NVLINK_ERROR = KernelText(
    "NVRM: Xid ({pci}): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14(0x0, "
    "0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    hardware=True,
)
ROW_REMAPPED = KernelText(
    "NVRM: Xid ({pci}): 63, pid=2187734, name=python, Row Remapper: New row (0x0000000e9b9107e0) marked for "
    "remapping, reset gpu to activate.",
    hardware=False,
)
CONTAINED = KernelText(
    "NVRM: Xid ({pci}): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    hardware=True,
    cordons=False,
)
MMU_FAULT = KernelText(
    "NVRM: Xid ({pci}): 31, pid=1942, name=llama-bench, channel 0x00000002, intr 00000000. MMU Fault: ENGINE "
    "GRAPHICS GPC6 GPCCLIENT_T1_13 faulted @ 0x6f6f_320c2000. Fault is of type FAULT_PDE "
    "ACCESS_TYPE_VIRT_READ",
    hardware=False,
)
PREEMPTIVE_REMOVAL = KernelText(
    "NVRM: Xid ({pci}): 45, pid=1818990, name=python3, Ch 00000001", hardware=False
)


def gpu_address(gpu: int) -> str:
    """Where the n-th GPU of a node sits, as the kernel writes it."""
    return f"PCI:0000:{0x18 + gpu:02x}:00"
