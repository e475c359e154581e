"""Reads the values of a GPU for dashboards, in the same sample as its health; used by nvml_child.py.

A value that a GPU does not support is left out: it is not zero.
Source: NVIDIA, NVML API reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from detectors.wire.gpu_sample import GpuReadings, InstanceReadings

__all__ = ["Asked", "memory_of", "read"]

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_CORE_SENSOR = 0
_CORRECTED, _AGGREGATE = 0, 1


class Asked(Protocol):
    """One GPU; implemented in nvml_child.py."""

    def ask(self, name: str, *arguments: Any, part: Any = None) -> Any:
        """Asks about the GPU, or about a part of it; returns None if there is no answer."""

    @property
    def memory_version(self) -> int | None:
        """Version of the struct that separates the driver's own share of the memory; None if the package
        lacks it."""


def memory_of(gpu: Asked, part: Any = None) -> Any:
    """Returns the memory by version 2 if library and driver have it: version 2 separates the driver's own
    share."""
    version = gpu.memory_version
    memory = gpu.ask("nvmlDeviceGetMemoryInfo", version, part=part) if version is not None else None
    return gpu.ask("nvmlDeviceGetMemoryInfo", part=part) if memory is None else memory


def read(gpu: Asked, memory: Any) -> GpuReadings:
    """Returns the values. `memory` is the answer of `memory_of`, which the sample of the GPU's health already
    has."""
    busy = gpu.ask("nvmlDeviceGetUtilizationRates")
    return GpuReadings(
        busy_percent=int(busy.gpu) if busy is not None else None,
        memory_used_bytes=int(memory.used) if memory is not None else None,
        memory_total_bytes=int(memory.total) if memory is not None else None,
        temperature_c=_temperature(gpu),
        power_mw=gpu.ask("nvmlDeviceGetPowerUsage"),
        power_limit_mw=gpu.ask("nvmlDeviceGetEnforcedPowerLimit"),
        sm_clock_mhz=gpu.ask("nvmlDeviceGetClockInfo", _SM_CLOCK),
        memory_clock_mhz=gpu.ask("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
        corrected_ever=gpu.ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _AGGREGATE),
        instances=tuple(_instances(gpu)),
    )


def _temperature(gpu: Asked) -> int | None:
    """Returns the temperature by the newer call, which replaces the older one."""
    newer: int | None = gpu.ask("nvmlDeviceGetTemperatureV", _CORE_SENSOR)
    return gpu.ask("nvmlDeviceGetTemperature", _CORE_SENSOR) if newer is None else newer


def _instances(gpu: Asked) -> Iterator[InstanceReadings]:
    """Yields the values of each MIG device whose instance is known."""
    mode = gpu.ask("nvmlDeviceGetMigMode")
    if mode is None or not mode[0]:
        return
    for place in range(gpu.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
        part = gpu.ask("nvmlDeviceGetMigDeviceHandleByIndex", place)
        instance = gpu.ask("nvmlDeviceGetGpuInstanceId", part=part) if part is not None else None
        memory = memory_of(gpu, part) if part is not None else None
        if instance is not None and memory is not None:
            yield InstanceReadings(
                instance=int(instance),
                memory_used_bytes=int(memory.used),
                memory_total_bytes=int(memory.total),
            )
