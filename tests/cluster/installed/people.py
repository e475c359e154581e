"""Reads Rekindle's actions as people see them with kubectl, and reacts to them as people do."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from chaos.simulated.lines import Harm, KernelText
from tests.cluster.cases import until
from tests.cluster.cluster import GPUS_PER_NODE, Cluster
from tests.cluster.install import listed
from tests.cluster.kernel_log import xid
from tests.cluster.record import ClusterError

__all__ = ["doings", "mend", "open_incidents", "quarantined", "recoveries"]

_QUARANTINE = "rekindle.dev/quarantined-by"
_TAINT = "rekindle.dev/unhealthy"
_GPU_WAS_RESET = KernelText(
    "NVRM: Xid ({pci}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    harm=Harm.NONE,
)
MENDED_S = 120.0


def quarantined(cluster: Cluster) -> set[str]:
    """Returns the nodes that Rekindle has quarantined."""
    nodes = listed(cluster, "nodes")
    return {
        node["metadata"]["name"] for node in nodes if _QUARANTINE in node["metadata"].get("annotations", {})
    }


def mend(cluster: Cluster) -> None:
    """Resets all GPUs, and removes Rekindle's taints as a person would after a reset. No incident stays
    open."""
    for node in cluster.nodes.values():
        for gpu in range(GPUS_PER_NODE):
            xid(node, _GPU_WAS_RESET, gpu)
    until("the end of all incidents", lambda: _is_mended(cluster), MENDED_S)


def _is_mended(cluster: Cluster) -> bool:
    """Whether no node is quarantined and no incident is open. Rekindle may still act on faults from before
    the reset, so this removes taints until nothing is left."""
    for node in listed(cluster, "nodes"):
        if any(taint["key"] == _TAINT for taint in node["spec"].get("taints", [])):
            with suppress(ClusterError):  # the controller has just removed it
                cluster.kubectl("taint", "node", node["metadata"]["name"], f"{_TAINT}-")
    return not quarantined(cluster) and not open_incidents(cluster)


def open_incidents(cluster: Cluster) -> list[dict[str, Any]]:
    found = listed(cluster, "incidents.rekindle.dev")
    return [body for body in found if body.get("status", {}).get("phase", "Open") == "Open"]


def recoveries(cluster: Cluster, gang: str) -> list[dict[str, Any]]:
    found = listed(cluster, "recoveries.rekindle.dev")
    return [body for body in found if body["spec"]["gang"]["name"] == gang]


def doings(cluster: Cluster) -> set[str]:
    """Returns everything that Rekindle has done, or reported about faults."""
    told = listed(cluster, "incidents.rekindle.dev,recoveries.rekindle.dev")
    cordoned = {
        node["metadata"]["name"] for node in listed(cluster, "nodes") if node["spec"].get("unschedulable")
    }
    return {
        *(f"{body['kind']} {body['metadata']['name']}" for body in told),
        *(f"{name} is held" for name in quarantined(cluster)),
        *(f"{name} is cordoned" for name in cordoned),
    }
