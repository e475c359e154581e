"""Serves the GPUs' series in a scrape: those of the last sample, and none once it is old. Docs are generated
from `GPU_TABLE`. folds/gpu_series.py makes the series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from detectors.service.metrics import Metric

__all__ = ["GPU_TABLE", "GpuMetrics", "Series"]

_GPU = ("gpu", "uuid")
_INSTANCE = (*_GPU, "gpu_instance")
_POD = (*_INSTANCE, "namespace", "pod")
_LEFT_OUT = "rekindle_agent_gpu_series_left_out"

GPU_TABLE = (
    Metric(
        "rekindle_gpu_utilization_ratio",
        "gauge",
        "Share of the driver's last sample period (at most one second) in which a kernel ran on "
        "the GPU. GPUs in MIG mode have no such value.",
        _GPU,
    ),
    Metric("rekindle_gpu_memory_used_bytes", "gauge", "Memory that is allocated on the GPU.", _GPU),
    Metric("rekindle_gpu_memory_total_bytes", "gauge", "Memory of the GPU.", _GPU),
    Metric("rekindle_gpu_temperature_celsius", "gauge", "Temperature of the GPU's core.", _GPU),
    Metric("rekindle_gpu_power_watts", "gauge", "Power that the GPU draws.", _GPU),
    Metric("rekindle_gpu_power_limit_watts", "gauge", "Power limit that the driver enforces.", _GPU),
    Metric("rekindle_gpu_clock_hertz", "gauge", "Clock of the GPU: sm or memory.", (*_GPU, "clock")),
    Metric(
        "rekindle_gpu_ecc_errors_total",
        "counter",
        "ECC errors of the GPU's memory during the lifetime of the GPU: kind corrected or uncorrected.",
        (*_GPU, "kind"),
    ),
    Metric(
        "rekindle_gpu_instance_memory_used_bytes",
        "gauge",
        "Memory that is allocated in a MIG GPU instance.",
        _INSTANCE,
    ),
    Metric("rekindle_gpu_instance_memory_total_bytes", "gauge", "Memory of a MIG GPU instance.", _INSTANCE),
    Metric(
        "rekindle_gpu_pod_info",
        "gauge",
        "1 for each GPU, or MIG GPU instance, of a pod. sharing: whole, mig, shared (several pods "
        "hold the GPU, by MPS or time slices), or unplaced (a virtual GPU: the agent does not know on "
        "which GPU the pod is).",
        (*_POD, "sharing"),
    ),
    Metric(
        "rekindle_gpu_pod_utilization_ratio",
        "gauge",
        "Utilization of a GPU that only one pod holds.",
        _POD,
    ),
    Metric(
        "rekindle_gpu_pod_memory_used_bytes",
        "gauge",
        "Memory that is allocated on a GPU, or in a MIG GPU instance, that only one pod holds.",
        _POD,
    ),
    Metric(
        _LEFT_OUT,
        "gauge",
        "Number of series about GPUs and their pods that the agent leaves out of /metrics, because there are "
        "more of them than gpu_metrics.series_max.",
    ),
)


class Series(msgspec.Struct, frozen=True):
    name: str
    labels: tuple[str, ...]
    """The values of the labels, in the order of the table."""
    value: float


class GpuMetrics(Collector):
    """The collector of the GPUs' series. It yields nothing before the first sample."""

    def __init__(self, *, series_max: int, kept_s: float, clock_s: Callable[[], float]) -> None:
        """Takes the bounds. `kept_s` is the time in seconds for which a sample is served. `clock_s` returns
        the seconds of a clock that is never set."""
        self._series_max = series_max
        self._kept_s = kept_s
        self._clock_s = clock_s
        self._series: list[Series] = []
        self._left_out = 0
        self._until_s = float("-inf")

    def sampled(self, series: Iterable[Series]) -> None:
        told = list(series)
        self._series = told[: self._series_max]
        self._left_out = len(told) - len(self._series)
        self._until_s = self._clock_s() + self._kept_s

    def clear(self) -> None:
        self._until_s = float("-inf")

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        if self._clock_s() > self._until_s:
            return
        by_name: dict[str, list[Series]] = {row.name: [] for row in GPU_TABLE}
        by_name[_LEFT_OUT].append(Series(_LEFT_OUT, (), self._left_out))
        for series in self._series:
            by_name[series.name].append(series)
        for row in GPU_TABLE:
            type_ = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
            family = type_(row.name, row.help, labels=row.labels)
            for series in by_name[row.name]:
                family.add_metric(series.labels, series.value)
            yield family

    def describe(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yields the names, for which the registry asks when the collector is registered, before any
        sample."""
        for row in GPU_TABLE:
            type_ = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
            yield type_(row.name, row.help, labels=row.labels)
