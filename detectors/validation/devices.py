"""Implements the check devices: the node shows as many GPUs as it must have. It runs first, because the other
checks depend on the GPUs that exist.

The check asks NVML, since NVML does not show a GPU that the driver cannot start. If NVML is not available,
the check counts the driver's own folders below /proc, and its message says so.
"""

from __future__ import annotations

from pathlib import Path

from detectors.sources.inventory import from_proc, of_sample
from detectors.sources.nvml_child import sampled_here
from detectors.validation.node_check import CannotRunError, Node, Result, failed, passed
from detectors.wire.contract import Device

__all__ = ["run"]


def run(node: Node) -> Result:
    sample = sampled_here()
    shown = from_proc(Path(node.host_root)).devices
    driver = Path(node.host_root) / "proc/driver/nvidia"
    if sample.error and not driver.is_dir():
        why = f"no NVIDIA driver on this node: {driver} is missing; {sample.error}"
        if node.devices_expected:
            return failed(f"0 of {node.devices_expected} GPUs: {why}")
        raise CannotRunError(why)
    devices, how = (
        (shown, f"{driver} shows them; {sample.error}")
        if sample.error
        else (of_sample(sample).devices, "by NVML")
    )
    of = f" of {node.devices_expected}" if node.devices_expected else ""
    told = f"{len(devices)}{of} GPUs ({how}{'' if of else '; the expected number is unknown'})"
    missing = _missing(node, devices, shown)
    gone = set(node.devices) - {device.uuid for device in devices}
    if gone or len(devices) < (node.devices_expected or 1):
        return failed(f"{told}{missing}")
    if len(devices) < len(shown):
        return failed(f"{told}, {len(shown)} below {driver}{missing}")
    return passed(told)


def _missing(node: Node, devices: tuple[Device, ...], shown: tuple[Device, ...]) -> str:
    """Returns the missing GPUs by name, as far as names are known."""
    here = {device.uuid for device in devices}
    names = {uuid for uuid in (*node.devices, *(device.uuid for device in shown)) if uuid not in here}
    return f"; missing: {', '.join(sorted(names))}" if names else ""
