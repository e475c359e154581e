"""Whether the node has a pod of NVIDIA's dcgm-exporter, by the folders of the pods' logs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from detectors.sources.pod_logs import parse_pod_folder

__all__ = ["has_dcgm_exporter"]

_NAME = "dcgm-exporter"
"""In the pod's name: `dcgm-exporter-x2x4z`, and `nvidia-dcgm-exporter-x2x4z` of the GPU Operator.
Source: NVIDIA, dcgm-exporter and GPU Operator; GKE and AKS keep the name."""


def has_dcgm_exporter(host_root: Path) -> bool:
    """False where the folders cannot be read."""
    with contextlib.suppress(OSError):
        folders = (parse_pod_folder(name) for name in os.listdir(host_root / "var/log/pods"))
        return any(folder is not None and _NAME in folder[1] for folder in folders)
    return False
