"""Registers the checks, in the order in which they run. docs/validation.md explains them."""

from __future__ import annotations

from detectors.validation import devices, kernel_log, memory, nccl, nvml_health
from detectors.validation.node_check import NodeCheck

__all__ = ["CHECKS"]

_TORCH = "an image with PyTorch for CUDA"

CHECKS: tuple[NodeCheck, ...] = (
    NodeCheck(
        name="devices",
        run=devices.run,
        deadline_s=60.0,
        proves="the node shows as many GPUs as it must have",
        needs="the NVIDIA driver",
    ),
    NodeCheck(
        name="nvml-health",
        run=nvml_health.run,
        deadline_s=120.0,
        proves="every GPU answers, and no GPU asks for a reset or a repair",
        needs="NVML in the pod",
    ),
    NodeCheck(
        name="memory-and-matmul",
        run=memory.run,
        deadline_s=600.0,
        proves="the memory of GPUs keeps data, and matrix products are right",
        needs=_TORCH,
    ),
    NodeCheck(
        name="nccl-pair",
        run=nccl.pairs,
        deadline_s=240.0,
        proves="pairs of GPUs exchange and add data without errors",
        needs=f"{_TORCH}, two GPUs",
    ),
    NodeCheck(
        name="nccl-loopback",
        run=nccl.loopback,
        deadline_s=240.0,
        proves="the GPUs exchange and add data over the network without errors",
        needs=f"{_TORCH}, two GPUs",
    ),
    NodeCheck(
        name="kernel-log",
        run=kernel_log.run,
        deadline_s=60.0,
        proves="the kernel has reported no fatal fault since the repair",
        needs="the kernel log",
    ),
)
