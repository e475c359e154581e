"""Tests recover/diagnose/told_devices.py: annotations of layers that share GPUs, as these layers write
them and as anybody else may write them."""

from __future__ import annotations

import pytest

from detectors.wire.contract import Device
from recover.diagnose.told_devices import told_devices
from recover.model import Pod

DEVICES = [Device(uuid=f"GPU-{n}", minor=n) for n in range(3)]
HAMI = "hami.io/vgpu-devices-allocated"


def pod(annotations: dict[str, str], resource: str, accelerators: int) -> Pod:
    return Pod(
        namespace="ml",
        name="llm-0",
        uid="llm-0-uid",
        version="1",
        annotations=annotations,
        accelerators=accelerators,
        requests=((resource, accelerators),),
    )


@pytest.mark.parametrize(
    ("text", "accelerators", "told"),
    [
        ("GPU-1,NVIDIA,4096,30:;", 1, {"GPU-1"}),
        (";GPU-1,NVIDIA,4096,30:GPU-2,NVIDIA,4096,30:;", 2, {"GPU-1", "GPU-2"}),
        ("GPU-1,NVIDIA,4096,30:;GPU-1,NVIDIA,4096,30:;", 2, {"GPU-1"}),
        ("GPU-1[1g.10gb-0],NVIDIA,9856,0:;", 1, {"GPU-1"}),
        ("GPU-1,NVIDIA,4096,30:;", 2, None),
        ("GPU-elsewhere,NVIDIA,4096,30:;", 1, None),
        ("GPU-1,NVIDIA,4096,30:GPU-elsewhere,NVIDIA,4096,30:;", 1, None),
        ("GPU-1", 1, None),
        ("GPU-1,NVIDIA", 1, None),
        ("", 1, None),
        (";;", 1, None),
        ("[{}]", 1, None),
        ("GPU-1,NVIDIA,4096,30:;" * 1000, 1, None),
    ],
)
def test_hami_tells_all_devices_or_nothing(text: str, accelerators: int, told: set[str] | None) -> None:
    assert told_devices(pod({HAMI: text}, "nvidia.com/gpu", accelerators), DEVICES) == told


@pytest.mark.parametrize(
    ("text", "accelerators", "told"),
    [
        ("GPU-1,NVIDIA,1126,0:", 1, {"GPU-1"}),
        ("GPU-1,NVIDIA,1126,0:GPU-2,NVIDIA,1126,50:;GPU-0,NVIDIA,1126,50:", 3, {"GPU-0", "GPU-1", "GPU-2"}),
        ("GPU-1,NVIDIA,1126,0:", 2, None),
        ("", 1, None),
    ],
)
def test_volcano_tells_in_the_same_form(text: str, accelerators: int, told: set[str] | None) -> None:
    annotations = {"volcano.sh/vgpu-ids-new": text}

    assert told_devices(pod(annotations, "volcano.sh/vgpu-number", accelerators), DEVICES) == told
    assert told_devices(pod(annotations, "nvidia.com/gpu", accelerators), DEVICES) is None
    assert told_devices(pod({HAMI: text}, "volcano.sh/vgpu-number", accelerators), DEVICES) is None


@pytest.mark.parametrize(
    ("indices", "accelerators", "told"),
    [
        (["1"], 1, {"GPU-1"}),
        (["0,2"], 2, {"GPU-0", "GPU-2"}),
        (["0", "2"], 2, {"GPU-0", "GPU-2"}),
        (["0"], 2, None),
        (["7"], 1, None),
        (["0,"], 1, None),
        (["one"], 1, None),
        ([""], 1, None),
        ([], 1, None),
    ],
)
def test_gpu_manager_tells_all_devices_or_nothing(
    indices: list[str], accelerators: int, told: set[str] | None
) -> None:
    annotations = {f"tencent.com/predicate-gpu-idx-{n}": text for n, text in enumerate(indices)}
    assigned = annotations | {"tencent.com/gpu-assigned": "true"}

    assert told_devices(pod(assigned, "tencent.com/vcuda-core", accelerators), DEVICES) == told
    assert told_devices(pod(annotations, "tencent.com/vcuda-core", accelerators), DEVICES) is None


def test_each_layer_speaks_for_its_own_resource_alone() -> None:
    of_hami = {HAMI: "GPU-1,NVIDIA,4096,30:;"}
    of_gpu_manager = {"tencent.com/gpu-assigned": "true", "tencent.com/predicate-gpu-idx-0": "1"}

    assert told_devices(pod(of_hami, "tencent.com/vcuda-core", 1), DEVICES) is None
    assert told_devices(pod(of_gpu_manager, "nvidia.com/gpu", 1), DEVICES) is None


def test_without_device_files_the_numbers_of_gpu_manager_say_nothing() -> None:
    annotations = {"tencent.com/gpu-assigned": "true", "tencent.com/predicate-gpu-idx-0": "1"}
    by_uuid_alone = [Device(uuid="GPU-1", index=1)]

    assert told_devices(pod(annotations, "tencent.com/vcuda-core", 1), by_uuid_alone) is None


REAL = "huawei.com/AscendReal"
RANKS = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
RANK_TABLE = (
    '{"pod_name":"0","server_id":"10.0.0.1","devices":[{"device_id":"3","device_ip":"192.168.20.102"}]}'
)
"""Annotation as MindCluster's documentation shows it (docs/en/scheduling/usage/basic_scheduling)."""


@pytest.mark.parametrize(
    ("annotations", "accelerators", "told"),
    [
        ({REAL: "Ascend910-3"}, 1, {"npu-3"}),
        ({REAL: "Ascend910-1,Ascend910-0"}, 2, {"npu-0", "npu-1"}),
        ({REAL: "npu-12"}, 1, {"npu-12"}),
        ({REAL: "Ascend310P-4c.3cpu-100-0"}, 1, {"npu-0"}),
        ({REAL: "Ascend910-3", RANKS: RANK_TABLE.replace('"3"', '"5"')}, 1, {"npu-3"}),
        ({RANKS: RANK_TABLE}, 1, {"npu-3"}),
        ({RANKS: RANK_TABLE}, 2, None),
        ({RANKS: "{"}, 1, None),
        ({RANKS: "[" * 9000}, 1, None),
        ({REAL: "Ascend910-1"}, 2, None),
        ({REAL: "Ascend910-1,"}, 1, None),
        ({REAL: "GPU-1"}, 1, {"npu-1"}),
        ({REAL: "Ascend910"}, 1, None),
        ({"huawei.com/Ascend910": "Ascend910-3"}, 1, None),
        ({HAMI: "GPU-1,NVIDIA,4096,30:;"}, 1, None),
        ({}, 1, None),
    ],
)
def test_the_ascend_plugin_tells_all_chips_or_nothing(
    annotations: dict[str, str], accelerators: int, told: set[str] | None
) -> None:
    """The scheduler's wish is not always the set of chips that the plugin mounts."""
    assert told_devices(pod(annotations, "huawei.com/Ascend910", accelerators), []) == told
