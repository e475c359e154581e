"""Rekindle's chart in a running cluster, installed as its users install it: by Helm, and with the image on
every node.

Objects in the cluster are read with kubectl, which is independent of Rekindle's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.chart.helm import CHART, Helm
from tests.chart.helm import NAMESPACE as SYSTEM
from tests.cluster.cluster import NODES, Cluster
from tests.cluster.images import REGISTRY

__all__ = ["GPU_LABEL", "SYSTEM", "Release", "label_nodes", "listed", "one"]

GPU_LABEL = "nvidia.com/gpu.present"
"""Label that the GPU feature discovery would put on the nodes. The agents run on nodes with this label."""
READY_S = 180
_PLACE = (f"--namespace={SYSTEM}", "--wait", f"--timeout={READY_S}s")


class Release:
    """The chart's release. Each call returns Helm's output when agents and controllers are as requested and
    Ready. It raises HelmError with Helm's output."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """`folder` is for Helm alone, for its caches and the values."""
        self._helm = Helm("helm4", folder, cluster.plane.kubeconfig())

    def install(self, values: Mapping[str, Any] | None = None) -> str:
        """Installs the chart. The nodes must have the image, and their label (label_nodes)."""
        return self._helm.run("install", "rekindle", str(CHART), "--create-namespace", *self._flags(values))

    def upgrade(self, values: Mapping[str, Any]) -> str:
        """Upgrades the release with these values in place of the earlier ones."""
        return self._helm.run("upgrade", "rekindle", str(CHART), *self._flags(values))

    def uninstall(self) -> str:
        return self._helm.run("uninstall", "rekindle", *_PLACE)

    def _flags(self, values: Mapping[str, Any] | None) -> list[str]:
        """Returns Helm's flags. The registry of the image is the only value that this cluster requires."""
        return [*self._helm.values(dict(values or {})), f"--set=image.registry={REGISTRY}", *_PLACE]


def label_nodes(cluster: Cluster) -> None:
    cluster.kubectl("label", "node", *NODES, "--overwrite", f"{GPU_LABEL}=true")


def listed(cluster: Cluster, kind: str, *flags: str) -> list[dict[str, Any]]:
    """Returns all objects of that kind, in all namespaces."""
    text = cluster.kubectl("get", kind, "--all-namespaces", "--output=json", *flags)
    return list(msgspec.json.decode(text)["items"])


def one(cluster: Cluster, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
    """Returns the object, or an empty mapping if there is none."""
    flags = ("--ignore-not-found", "--output=json", f"--namespace={namespace}")
    text = cluster.kubectl("get", kind, name, *flags)
    return dict(msgspec.json.decode(text)) if text else {}
