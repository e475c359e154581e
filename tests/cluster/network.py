"""The cluster's network on this machine: a bridge, where the control plane listens, and a cable to each node.

Nothing is forwarded by the machine and no rule is made on it: nodes reach each other over the bridge, each
knows the others' pods, and none has a default route, so that no packet leaves the machine.
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
"""10.88.0.0/24 holds the machine and its nodes, 10.88.N.0/24 the pods of node N."""
SERVICES = "10.96.0.0/16"
DNS = "10.96.0.10"


def node_address(number: int) -> str:
    return f"10.88.0.{10 + number}"


def pods_of(number: int) -> str:
    return f"10.88.{number}.0/24"


def lay_bridge(record: Record) -> None:
    """Raises ClusterError if the machine uses these addresses for something else."""
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
    """Gives the network of that process an `eth0`, the other end of which hangs on the bridge."""
    cable = _cable(number)
    record.note_link(cable)
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "link", "set", cable, "master", BRIDGE, "up")
    run("ip", "route", "replace", pods_of(number), "via", node_address(number), "dev", BRIDGE)


def cut(number: int) -> None:
    """From now on nobody hears of that node, not even that its connections end."""
    run("ip", "link", "delete", _cable(number))


def _cable(number: int) -> str:
    return f"rekindle0n{number}"
