"""Turns one sample of the GPUs, and the pods that have them, into series for dashboards. Pure.

The data flow is sources/nvml.py -> here -> service/gpu_metrics.py, which a scrape reads. A value that a GPU
does not report has no series. The values of a GPU that pods share are not divided among the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from detectors.folds.holders import Share, Sharing
from detectors.service.gpu_metrics import Series
from detectors.wire.gpu_sample import GpuReadings, GpuSample, Sample

__all__ = ["gpu_series"]


def gpu_series(sample: Sample, shares: Iterable[Share]) -> Iterator[Series]:
    """Yields the series of the GPUs first, then those of pods: if there are too many series, the last are
    left out."""
    gpus = [gpu for gpu in sample.gpus if gpu.readings is not None and gpu.uuid and not gpu.refused]
    for gpu in gpus:
        yield from _of_gpu(gpu, gpu.readings or GpuReadings())
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    for share in shares:
        yield from _of_pod(share, by_uuid.get(share.uuid))


def _of_gpu(gpu: GpuSample, told: GpuReadings) -> Iterator[Series]:
    who = (str(gpu.index), gpu.uuid)
    yield from _one("rekindle_gpu_utilization_ratio", who, told.busy_percent, 0.01)
    yield from _one("rekindle_gpu_memory_used_bytes", who, told.memory_used_bytes)
    yield from _one("rekindle_gpu_memory_total_bytes", who, told.memory_total_bytes)
    yield from _one("rekindle_gpu_temperature_celsius", who, told.temperature_c)
    yield from _one("rekindle_gpu_power_watts", who, told.power_mw, 0.001)
    yield from _one("rekindle_gpu_power_limit_watts", who, told.power_limit_mw, 0.001)
    yield from _one("rekindle_gpu_clock_hertz", (*who, "sm"), told.sm_clock_mhz, 1e6)
    yield from _one("rekindle_gpu_clock_hertz", (*who, "memory"), told.memory_clock_mhz, 1e6)
    yield from _one("rekindle_gpu_ecc_errors_total", (*who, "corrected"), told.corrected_ever)
    yield from _one("rekindle_gpu_ecc_errors_total", (*who, "uncorrected"), gpu.uncorrected_ever)
    for part in told.instances:
        instance = (*who, str(part.instance))
        yield from _one("rekindle_gpu_instance_memory_used_bytes", instance, part.memory_used_bytes)
        yield from _one("rekindle_gpu_instance_memory_total_bytes", instance, part.memory_total_bytes)


def _of_pod(share: Share, gpu: GpuSample | None) -> Iterator[Series]:
    instance = "" if share.instance is None else str(share.instance)
    index = "" if gpu is None else str(gpu.index)
    who = (index, share.uuid, instance, share.pod.namespace, share.pod.name)
    yield from _one("rekindle_gpu_pod_info", (*who, share.sharing), 1)
    told = gpu.readings if gpu is not None else None
    if told is None:
        return
    if share.sharing is Sharing.WHOLE:
        yield from _one("rekindle_gpu_pod_utilization_ratio", who, told.busy_percent, 0.01)
        yield from _one("rekindle_gpu_pod_memory_used_bytes", who, told.memory_used_bytes)
    elif share.sharing is Sharing.MIG:
        used = (part.memory_used_bytes for part in told.instances if part.instance == share.instance)
        yield from _one("rekindle_gpu_pod_memory_used_bytes", who, next(used, None))


def _one(name: str, labels: tuple[str, ...], value: int | None, unit: float = 1) -> Iterator[Series]:
    if value is not None:
        yield Series(name, labels, value * unit)
