"""NVIDIA's GPUs as sysfs shows them: which GPUs NVML should know, and which another owner uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from detectors.sources.inventory import bus_gpus, bus_of
from detectors.wire.gpu_sample import Sample
from tests.detectors.sources.pci_tree import BRIDGE, COMPUTE, DISPLAY, MELLANOX, NETWORK, NVIDIA, device


def test_gpus_are_told_by_who_has_them(tmp_path: Path) -> None:
    device(tmp_path, "0000:18:00.0", NVIDIA, DISPLAY)
    device(tmp_path, "0000:19:00.0", NVIDIA, COMPUTE)
    device(tmp_path, "0000:1a:00.0", NVIDIA, COMPUTE, driver="")
    device(tmp_path, "0000:1b:00.0", NVIDIA, COMPUTE, driver="vfio-pci")
    device(tmp_path, "0000:1b:00.4", NVIDIA, COMPUTE, is_virtual=True)
    device(tmp_path, "0000:1c:00.0", NVIDIA, BRIDGE)
    device(tmp_path, "0000:1d:00.0", MELLANOX, NETWORK, driver="mlx5_core")
    (tmp_path / "sys/bus/pci/devices/unreadable").symlink_to("nowhere")
    (tmp_path / "sys/bus/pci/devices/0000:1e:00.0").symlink_to("nowhere")

    found = bus_gpus(tmp_path)

    assert sorted(map(str, found.ours)) == ["0000:18:00", "0000:19:00", "0000:1a:00"]
    assert sorted(map(str, found.others)) == ["0000:1b:00"]


def test_a_machine_without_that_bus_has_none(tmp_path: Path) -> None:
    assert bus_gpus(tmp_path) == bus_gpus(tmp_path / "nowhere")


@pytest.mark.parametrize(("shown", "all_"), [("all", True), (None, True), ("0,1", False), ("void", False)])
def test_a_container_that_was_given_some_gpus_does_not_miss_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str | None, all_: bool
) -> None:
    device(tmp_path, "0000:18:00.0", NVIDIA, DISPLAY)
    if shown is None:
        monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", shown)

    assert bool(bus_of(Sample(), tmp_path).ours) == all_


def test_iluvatars_library_does_not_miss_a_gpu_of_nvidias(tmp_path: Path) -> None:
    """Servers have display adapters, too, and may lack NVIDIA's driver."""
    device(tmp_path, "0000:18:00.0", NVIDIA, DISPLAY, driver="")

    assert bus_of(Sample(), tmp_path).ours
    assert not bus_of(Sample(is_by_ixml=True), tmp_path).ours
