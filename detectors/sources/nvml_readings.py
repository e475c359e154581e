"""What dashboards show of a GPU, read in the same sample as its health; for nvml_child.py.

What a GPU does not support is left out: it is no zero.
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
    """One GPU; `nvml_child.py` has it."""

    def ask(self, name: str, *arguments: Any, part: Any = None) -> Any:
        """None where the GPU, or that part of it, has no answer."""

    @property
    def memory_version(self) -> int | None:
        """Of the struct by which the driver's own share of the memory is told apart."""


def memory_of(gpu: Asked, part: Any = None) -> Any:
    """Version 2 where library and driver have it: it tells the driver's own share apart."""
    version = gpu.memory_version
    memory = gpu.ask("nvmlDeviceGetMemoryInfo", version, part=part) if version is not None else None
    return gpu.ask("nvmlDeviceGetMemoryInfo", part=part) if memory is None else memory


def read(gpu: Asked, memory: Any) -> GpuReadings:
    """`memory` is the answer of `memory_of`, which the sample of the GPU's health has asked for."""
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
    """By the newer call, which replaces the older one."""
    newer: int | None = gpu.ask("nvmlDeviceGetTemperatureV", _CORE_SENSOR)
    return gpu.ask("nvmlDeviceGetTemperature", _CORE_SENSOR) if newer is None else newer


def _instances(gpu: Asked) -> Iterator[InstanceReadings]:
    """Each MIG device whose instance is known."""
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
