"""The cluster's network on this machine: a bridge, where the control plane listens, and a cable to each node.

The machine forwards nothing and gets no rule. Nodes reach each other over the bridge, each node has routes to
the others' pods, and no node has a default route, so that no packet leaves the machine.
"""

from __future__ import annotations

import ipaddress

import msgspec

from tests.cluster.record import ClusterError, Record, run

__all__ = [
    "BRIDGE",
    "DNS",
    "GATEWAY",
    "NETWORK",
    "SERVICES",
    "connect",
    "cut",
    "lay_bridge",
    "node_address",
    "pods_of",
]

BRIDGE = "rekindle0"
GATEWAY = "10.88.0.1"
NETWORK = "10.88.0.0/16"
"""Address range of the cluster: 10.88.0.0/24 is for the machine and its nodes, 10.88.N.0/24 for the pods of
node N."""
SERVICES = "10.96.0.0/16"
DNS = "10.96.0.10"


def node_address(number: int) -> str:
    return f"10.88.0.{10 + number}"


def pods_of(number: int) -> str:
    return f"10.88.{number}.0/24"


def lay_bridge(record: Record) -> None:
    """Creates the bridge. Raises ClusterError if the machine uses these addresses for something else."""
    ours = [ipaddress.ip_network(NETWORK), ipaddress.ip_network(SERVICES)]
    for route in msgspec.json.decode(run("ip", "-json", "-4", "route", "show", "table", "all")):
        taken = route["dst"]
        if taken != "default" and any(ipaddress.ip_network(taken).overlaps(net) for net in ours):
            raise ClusterError(f"this machine has a route to {taken}, in the way of {NETWORK} and {SERVICES}")
    record.note_link(BRIDGE)
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def connect(record: Record, number: int, pid: int) -> None:
    """Gives the network of that process an `eth0`, the other end of which is attached to the bridge."""
    cable = _cable(number)
    record.note_link(cable)
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "link", "set", cable, "master", BRIDGE, "up")
    run("ip", "route", "replace", pods_of(number), "via", node_address(number), "dev", BRIDGE)


def cut(number: int) -> None:
    """Cuts the node off. From now on nobody hears from the node, and its peers do not even see that its
    connections end."""
    run("ip", "link", "delete", _cable(number))


def _cable(number: int) -> str:
    return f"rekindle0n{number}"
