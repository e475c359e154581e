"""The agents' pods, one on each node."""

from __future__ import annotations

import time
from typing import Any

from tests.cluster.cases import until
from tests.cluster.cluster import Cluster
from tests.cluster.install import SYSTEM, listed, one

__all__ = ["agent_on", "boot", "health", "in_agent", "until_ready"]

READY_S = 120.0


def agent_on(cluster: Cluster, node: str) -> str:
    """Returns the name of the agent's pod that is not being deleted, or an empty string while there is
    none."""
    names = [pod["metadata"]["name"] for pod in _pods(cluster, node)]
    assert len(names) <= 1, names
    return str(names[0]) if names else ""


def until_ready(cluster: Cluster, node: str) -> float:
    """Waits until the agent is Ready. Returns how long that took, in seconds."""
    return until(f"an agent on {node} that is Ready", lambda: _is_ready(cluster, node), READY_S)


def in_agent(cluster: Cluster, node: str, *command: str) -> str:
    """Returns what that command prints in the agent's container, which has Python and no shell."""
    return cluster.kubectl("exec", agent_on(cluster, node), f"--namespace={SYSTEM}", "--", *command)


def health(cluster: Cluster, node: str) -> dict[str, Any]:
    """Returns the status that the agent has published."""
    return dict(one(cluster, "nodehealth", node).get("status", {}))


def boot(cluster: Cluster, node: str) -> float:
    """Crashes the node and starts it. Returns after how many seconds its agent has reported the new boot,
    which ends the faults that were found before it."""
    machine = cluster.nodes[node]
    before = machine.boot_id
    machine.crash()
    machine.start()
    began = time.monotonic()
    until("a new boot", lambda: machine.boot_id not in ("", before), READY_S)
    cluster.wait_until_ready(node)
    until("its word of this boot", lambda: health(cluster, node)["bootId"] == machine.boot_id, READY_S)
    told_s = time.monotonic() - began
    until_ready(cluster, node)
    return told_s


def _pods(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    of_node = f"--field-selector=spec.nodeName={node}"
    pods = listed(cluster, "pods", "--selector=app.kubernetes.io/component=agent", of_node)
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _is_ready(cluster: Cluster, node: str) -> bool:
    conditions = [c for pod in _pods(cluster, node) for c in pod["status"].get("conditions", [])]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
