"""Series of a scrape about readings of GPUs and about the pods that use them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from detectors.folds.gpu_series import gpu_series
from detectors.folds.holders import Given, HeldDevices, Holders, MigDevice, Share
from detectors.service.gpu_metrics import GPU_TABLE, GpuMetrics
from detectors.sources.exporters import has_dcgm_exporter
from detectors.wire.contract import Device, DevicePod
from detectors.wire.gpu_sample import GpuReadings, GpuSample, InstanceReadings, Sample

GPUS = tuple(Device(uuid=f"GPU-{number}", index=number) for number in range(4))
ALL = GpuReadings(
    busy_percent=93,
    memory_used_bytes=60,
    memory_total_bytes=80,
    temperature_c=41,
    power_mw=612_500,
    power_limit_mw=700_000,
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    corrected_ever=7,
)
IN_PARTS = GpuReadings(
    memory_used_bytes=25,
    instances=tuple(
        InstanceReadings(instance=one, memory_used_bytes=one, memory_total_bytes=10) for one in (7, 8)
    ),
)


def sample(*readings: GpuReadings | None) -> Sample:
    told = enumerate(readings)
    return Sample(gpus=tuple(GpuSample(index=n, uuid=f"GPU-{n}", readings=one) for n, one in told))


def shares(**ids: list[str]) -> list[Share]:
    """Returns the shares of pods with these device ids."""
    found = Holders()
    found.mig_devices({"MIG-a": MigDevice("GPU-1", 7), "MIG-b": MigDevice("GPU-1", 8)})
    given = [
        HeldDevices(
            DevicePod(uid=name, namespace="ml", name=name), Given("ml", name, {"nvidia.com/gpu": one})
        )
        for name, one in ids.items()
    ]
    found.listed(given, frozenset(ids))
    return found.shares(GPUS)


def scraped(sample: Sample, pods: Iterable[Share] = (), series_max: int = 1000) -> list[str]:
    metrics = GpuMetrics(series_max=series_max, kept_s=60, clock_s=lambda: 0)
    metrics.sampled(gpu_series(sample, pods))
    return text_of(metrics)


def text_of(metrics: GpuMetrics) -> list[str]:
    registry = CollectorRegistry()
    registry.register(metrics)
    lines = generate_latest(registry).decode().splitlines()
    return [line.removeprefix("rekindle_") for line in lines if not line.startswith("#")]


def test_readings_are_told_in_base_units() -> None:
    assert scraped(sample(ALL)) == [
        'gpu_utilization_ratio{gpu="0",uuid="GPU-0"} 0.93',
        'gpu_memory_used_bytes{gpu="0",uuid="GPU-0"} 60.0',
        'gpu_memory_total_bytes{gpu="0",uuid="GPU-0"} 80.0',
        'gpu_temperature_celsius{gpu="0",uuid="GPU-0"} 41.0',
        'gpu_power_watts{gpu="0",uuid="GPU-0"} 612.5',
        'gpu_power_limit_watts{gpu="0",uuid="GPU-0"} 700.0',
        'gpu_clock_hertz{clock="sm",gpu="0",uuid="GPU-0"} 1.98e+09',
        'gpu_clock_hertz{clock="memory",gpu="0",uuid="GPU-0"} 2.619e+09',
        'gpu_ecc_errors_total{gpu="0",kind="corrected",uuid="GPU-0"} 7.0',
        "agent_gpu_series_left_out 0.0",
    ]


def test_what_a_gpu_does_not_tell_has_no_series_and_never_a_zero() -> None:
    silent = Sample(gpus=(GpuSample(index=0, readings=ALL), GpuSample(index=1, uuid="GPU-1", refused="LOST")))

    assert scraped(sample(GpuReadings(), None)) == ["agent_gpu_series_left_out 0.0"]
    assert scraped(silent) == ["agent_gpu_series_left_out 0.0"]


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        (
            {"llm": ["GPU-0"]},
            [
                ("info", "0", "GPU-0", "", "llm", "whole", 1),
                ("utilization_ratio", "0", "GPU-0", "", "llm", "", 0.93),
                ("memory_used_bytes", "0", "GPU-0", "", "llm", "", 60),
            ],
        ),
        (
            {"a": ["MIG-a"], "b": ["MIG-b"]},
            [
                ("info", "1", "GPU-1", "7", "a", "mig", 1),
                ("info", "1", "GPU-1", "8", "b", "mig", 1),
                ("memory_used_bytes", "1", "GPU-1", "7", "a", "", 7),
                ("memory_used_bytes", "1", "GPU-1", "8", "b", "", 8),
            ],
        ),
        (
            {"a": ["GPU-0::1"], "b": ["GPU-0::2"]},
            [
                ("info", "0", "GPU-0", "", "a", "shared", 1),
                ("info", "0", "GPU-0", "", "b", "shared", 1),
            ],
        ),
        (
            {"a": ["MIG-a::0"], "b": ["MIG-a::1"]},
            [
                ("info", "1", "GPU-1", "7", "a", "shared", 1),
                ("info", "1", "GPU-1", "7", "b", "shared", 1),
            ],
        ),
        (
            {"hami": ["GPU-0-3"], "whole": ["GPU-0"]},
            [
                ("info", "0", "GPU-0", "", "whole", "shared", 1),
                ("info", "", "", "", "hami", "unplaced", 1),
            ],
        ),
    ],
    ids=["whole", "MIG", "MPS or in time", "a shared MIG instance", "virtual GPU"],
)
def test_a_pod_is_told_what_it_alone_holds_and_a_shared_gpu_is_not_divided(
    pods: dict[str, list[str]], told: list[tuple[str, ...]]
) -> None:
    expected = []
    for kind, gpu, uuid, instance, pod, sharing, value in told:
        shared = f',sharing="{sharing}"' if sharing else ""
        labels = f'gpu="{gpu}",gpu_instance="{instance}",namespace="ml",pod="{pod}"{shared},uuid="{uuid}"'
        expected.append(f"gpu_pod_{kind}{{{labels}}} {float(value)}")

    found = scraped(sample(ALL, IN_PARTS), shares(**pods))

    assert [line for line in found if line.startswith("gpu_pod_")] == expected
    assert sum(line.startswith("gpu_instance_") for line in found) == 4


def test_above_the_ceiling_the_pods_series_are_left_out_first_and_counted() -> None:
    found = scraped(sample(ALL), shares(llm=["GPU-0"]), series_max=10)

    assert len(found) == 11
    assert found[-2].startswith("gpu_pod_info{")
    assert found[-1] == "agent_gpu_series_left_out 2.0"


def test_an_old_sample_is_not_told_and_neither_is_anything_before_the_first() -> None:
    now_s = 100.0
    metrics = GpuMetrics(series_max=1000, kept_s=60, clock_s=lambda: now_s)
    assert text_of(metrics) == []

    metrics.sampled(gpu_series(sample(ALL), ()))
    now_s += 60
    assert text_of(metrics)
    now_s += 1
    assert text_of(metrics) == []

    metrics.sampled(gpu_series(sample(ALL), ()))
    metrics.clear()
    assert text_of(metrics) == []


def test_every_series_stands_in_the_table_with_as_many_labels() -> None:
    labels = {row.name: len(row.labels) for row in GPU_TABLE}
    told = gpu_series(sample(ALL, IN_PARTS), shares(llm=["GPU-0"], a=["MIG-a"]))

    assert [one.name for one in told if labels[one.name] != len(one.labels)] == []


def test_the_exporter_of_dcgm_is_known_by_its_pod(tmp_path: Path) -> None:
    logs = tmp_path / "var/log/pods"
    assert not has_dcgm_exporter(tmp_path)
    (logs / "gpu-operator_nvidia-device-plugin-x2x4z_uid-1").mkdir(parents=True)
    assert not has_dcgm_exporter(tmp_path)

    (logs / "gpu-operator_nvidia-dcgm-exporter-x2x4z_uid-2").mkdir()

    assert has_dcgm_exporter(tmp_path)
