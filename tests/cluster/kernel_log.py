"""What a node's kernel writes: records that tests append, as readers get them, to the node's /dev/kmsg."""

from __future__ import annotations

import time

from chaos.simulate.lines import FALLEN_OFF_THE_BUS, KernelText, gpu_address
from tests.cluster.node import Node

__all__ = ["kernel_says", "xid"]

KERN_ERR = 3


def kernel_says(node: Node, *lines: str) -> int:
    """All lines in one write. Returns the sequence number of the last; the first of a boot has 0."""
    with node.kmsg.open("r+b", buffering=0) as log:
        sequence = log.read().count(b"\n")
        usec = int(time.monotonic() * 1e6)
        records = (f"{KERN_ERR},{n},{usec},-;{line}\n" for n, line in enumerate(lines, start=sequence))
        log.write("".join(records).encode())
    return sequence + len(lines) - 1


def xid(node: Node, what: KernelText = FALLEN_OFF_THE_BUS, gpu: int = 0) -> int:
    """The NVIDIA driver's line about the node's n-th GPU."""
    return kernel_says(node, what.text.format(pci=gpu_address(gpu)))
