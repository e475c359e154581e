"""Our own chart in a running cluster, as its users put it there: Helm, and our own image on every node.

What stands in the cluster is read with kubectl, which knows nothing of our code.
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
"""What the GPU feature discovery would put on the nodes; the agents run where it stands."""
READY_S = 180
_PLACE = (f"--namespace={SYSTEM}", "--wait", f"--timeout={READY_S}s")


class Release:
    """The chart's release. Each call returns when agents and controllers are as asked for and Ready, with
    what Helm has printed; it raises HelmError with Helm's words."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """`folder` is Helm's own, for its caches and the values."""
        self._helm = Helm("helm4", folder, cluster.plane.kubeconfig())

    def install(self, values: Mapping[str, Any] | None = None) -> str:
        """The nodes must have our image, and their label (label_nodes)."""
        return self._helm.run("install", "rekindle", str(CHART), "--create-namespace", *self._flags(values))

    def upgrade(self, values: Mapping[str, Any]) -> str:
        """With these values in place of the earlier ones."""
        return self._helm.run("upgrade", "rekindle", str(CHART), *self._flags(values))

    def uninstall(self) -> str:
        return self._helm.run("uninstall", "rekindle", *_PLACE)

    def _flags(self, values: Mapping[str, Any] | None) -> list[str]:
        """Where our image lies is all that this cluster asks for."""
        return [*self._helm.values(dict(values or {})), f"--set=image.registry={REGISTRY}", *_PLACE]


def label_nodes(cluster: Cluster) -> None:
    cluster.kubectl("label", "node", *NODES, "--overwrite", f"{GPU_LABEL}=true")


def listed(cluster: Cluster, kind: str, *flags: str) -> list[dict[str, Any]]:
    """All objects of that kind, in all namespaces."""
    text = cluster.kubectl("get", kind, "--all-namespaces", "--output=json", *flags)
    return list(msgspec.json.decode(text)["items"])


def one(cluster: Cluster, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
    """The object; empty where there is none."""
    flags = ("--ignore-not-found", "--output=json", f"--namespace={namespace}")
    text = cluster.kubectl("get", kind, name, *flags)
    return dict(msgspec.json.decode(text)) if text else {}
