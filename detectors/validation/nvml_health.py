"""Implements the check nvml-health: every GPU answers NVML, and no GPU reports that it needs something.

A value that a device does not support is no data, and never a fault. The counters are the volatile ones: a
reset or a reboot has cleared them, so their errors have come since.
Source: NVIDIA, NVML API reference: field 230, remapped rows, clocks event reasons.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detectors.commands.extras import install
from detectors.validation.node_check import CannotRunError, Node, Result, failed, passed

__all__ = ["run"]

_CLOCK_CHECKS = 3
_CLOCK_PAUSE_S = 1.0
"""Pause in seconds between checks of the clocks. A clock is lowered for a moment at every change of load:
only a reason that stays counts."""
_CLOCK_REASONS = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
_RECOVERY_ACTION = 230
_ACTIONS = {
    1: "a reset",
    2: "a reboot of the node",
    3: "its peers drained",
    4: "a drain and a reset",
    5: "its IMEX domain recovered",
    6: "a bus reset",
    7: "a reboot of the system",
}


def run(node: Node) -> Result:
    try:
        import pynvml  # noqa: PLC0415  only here: the package is optional
    except ImportError as error:
        raise CannotRunError(
            f"nvidia-ml-py is not installed in this image: {error}; {install('agent')} brings it"
        ) from error
    driver = Path(node.host_root) / "proc/driver/nvidia"
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        if driver.is_dir() and isinstance(error, pynvml.NVMLError_LibraryNotFound):
            raise CannotRunError(
                "libnvidia-ml.so.1 is not in this container: its pod needs NVIDIA's runtime class"
            ) from error
        if not driver.is_dir():
            raise CannotRunError(
                f"no NVIDIA driver on this node: {driver} is missing; NVML: {error}"
            ) from error
        return failed(f"NVML: {error}")
    if not count:
        raise CannotRunError("NVML shows no GPU")
    bad = [trouble for index in range(count) if (trouble := _trouble(pynvml, index))]
    if bad:
        return failed("; ".join(bad))
    return passed(
        f"GPUs that answer: {count}; no pending or failed remap, ECC error, slowdown or recovery action"
    )


def _trouble(nvml: Any, index: int) -> str:
    """Returns a description of the faults of one device; empty if it has none."""
    name = f"GPU {index}"
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = _text(nvml.nvmlDeviceGetUUID(handle))
        found = [trouble for check in _CHECKS for trouble in _supported(nvml, check(nvml, handle))]
    except nvml.NVMLError as error:
        return f"{name}: {error}"
    return f"{name}: {', '.join(found)}" if found else ""


def _supported(nvml: Any, found: Iterator[str]) -> list[str]:
    """Returns what a check found. Raises NVML's errors, except those about values that the device or the
    driver does not support."""
    try:
        return list(found)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return []


def _remapped_rows(nvml: Any, handle: Any) -> Iterator[str]:
    _, _, pending, failure = nvml.nvmlDeviceGetRemappedRows(handle)
    if failure:
        yield "a row could not be remapped: the GPU must be replaced"
    if pending:
        yield "a row waits to be remapped: the GPU needs a reset"


def _retired_pages(nvml: Any, handle: Any) -> Iterator[str]:
    """Checks the pages of GPUs before Ampere."""
    if nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle):
        yield "a memory page waits to be retired: the GPU needs a reset"


def _sram(nvml: Any, handle: Any) -> Iterator[str]:
    struct = getattr(nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    if struct is None:  # an older package
        return
    status = struct()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    if status.bThresholdExceeded:
        yield "uncorrectable errors of its SRAM are above NVIDIA's threshold: the GPU must be examined"


def _recovery_action(nvml: Any, handle: Any) -> Iterator[str]:
    (field,) = nvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_ACTION])
    if field.nvmlReturn == 0 and (action := int(field.value.uiVal)):
        yield f"the driver asks for {_ACTIONS.get(action, f'recovery action {action}')}"


def _ecc_errors(nvml: Any, handle: Any) -> Iterator[str]:
    uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    if count := nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile):
        yield f"{count} uncorrectable ECC errors"


def _slowdown(nvml: Any, handle: Any) -> Iterator[str]:
    reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    for _ in range(_CLOCK_CHECKS - 1):
        if not any(reasons & bit for bit in _CLOCK_REASONS):
            return
        time.sleep(_CLOCK_PAUSE_S)
        reasons &= nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    yield from (reason for bit, reason in _CLOCK_REASONS.items() if reasons & bit)


_CHECKS = (_remapped_rows, _retired_pages, _sram, _recovery_action, _ecc_errors, _slowdown)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
