"""Detects a pod of NVIDIA's dcgm-exporter on the node from the folders of the pods' logs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from detectors.sources.pod_logs import parse_pod_folder

__all__ = ["has_dcgm_exporter"]

_NAME = "dcgm-exporter"
"""Part of the pod's name: `dcgm-exporter-x2x4z`, or `nvidia-dcgm-exporter-x2x4z` by the GPU Operator.
Source: NVIDIA, dcgm-exporter and GPU Operator; GKE and AKS keep the name.
"""


def has_dcgm_exporter(host_root: Path) -> bool:
    """Whether such a pod has a log folder; False if the folders cannot be read."""
    with contextlib.suppress(OSError):
        folders = (parse_pod_folder(name) for name in os.listdir(host_root / "var/log/pods"))
        return any(folder is not None and _NAME in folder[1] for folder in folders)
    return False
