"""A node's GPUs, which exist only in files: one file that the device plugin reads, and the files that the
NVIDIA driver would show below /proc/driver."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from chaos.simulated.lines import gpu_address
from tests.detectors.sources.nvml_standin import Answers, library

__all__ = ["DRIVER", "NVML", "all_well", "gpu_id", "lay_driver", "lay_nvml"]

DRIVER = "proc-driver"
"""Folder that the node sees as /proc/driver."""
NVML = "/proc/driver/nvidia/libnvidia-ml.so.1"
"""Path of the stand-in for NVML on the node, once it is installed. No real driver has NVML there."""
_ANSWERS = "nvidia/nvml-answers"
_INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
GPU UUID: \t {id}
Bus Type: \t PCIe
Bus Location: \t {pci}
Device Minor: \t {index}
"""


def gpu_id(node: str, index: int) -> str:
    """Returns the id of the node's n-th GPU, which is the same in every run."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}-{index}')}"


def lay_driver(folder: Path, node: str, gpus: int) -> None:
    """Writes the driver's files into the node's folder, with the addresses that the node's kernel names in an
    Xid."""
    driver = folder / DRIVER / "nvidia"
    for index in range(gpus):
        pci = gpu_address(index).removeprefix("PCI:") + ".0"
        gpu = driver / "gpus" / pci
        gpu.mkdir(parents=True)
        text = _INFORMATION.format(id=gpu_id(node, index), pci=pci, index=index)
        (gpu / "information").write_text(text, encoding="utf-8")
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  595.45.04\n"
    (driver / "version").write_text(version, encoding="utf-8")


def lay_nvml(folder: Path) -> None:
    """Copies the library into the node's folder. `all_well` must first set what it answers."""
    shutil.copy(library(f"/host/proc/driver/{_ANSWERS}"), folder / DRIVER / "nvidia" / Path(NVML).name)


def all_well(folder: Path, node: str, gpus: int) -> Answers:
    """Makes NVML report, from now on, that all GPUs of the node are healthy."""
    answers = Answers(folder / DRIVER / _ANSWERS, gpus)
    for index in range(gpus):
        bus = gpu_address(index).split(":")[2]
        answers.answer(index, uuid=gpu_id(node, index), bus=int(bus, 16))
    return answers
