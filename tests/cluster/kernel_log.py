"""Writes records of a node's kernel: tests append them, in the form in which readers get them, to the node's
/dev/kmsg."""

from __future__ import annotations

import time
from collections.abc import Sequence

from chaos.simulated.lines import FALLEN_OFF_THE_BUS, KernelText, gpu_address
from tests.cluster.node import Node

__all__ = ["kernel_says", "program_says", "xid"]

KERN_ERR = 3
USER_WARNING = 1 << 3 | 4
"""Priority that the kernel gives to a line that a program has written to /dev/kmsg without a level."""


def kernel_says(node: Node, *lines: str) -> int:
    """Appends all lines in one write. Returns the sequence number of the last line; the first line of a boot
    has 0."""
    return _append(node, KERN_ERR, lines)


def program_says(node: Node, line: str) -> int:
    """Appends a line as a program with permissions on the node writes it to /dev/kmsg."""
    return _append(node, USER_WARNING, [line])


def _append(node: Node, priority: int, lines: Sequence[str]) -> int:
    with node.kmsg.open("r+b", buffering=0) as log:
        sequence = log.read().count(b"\n")
        usec = int(time.monotonic() * 1e6)
        records = (f"{priority},{n},{usec},-;{line}\n" for n, line in enumerate(lines, start=sequence))
        log.write("".join(records).encode())
    return sequence + len(lines) - 1


def xid(node: Node, what: KernelText = FALLEN_OFF_THE_BUS, gpu: int = 0) -> int:
    """Appends the NVIDIA driver's line about the node's n-th GPU."""
    return kernel_says(node, what.text.format(pci=gpu_address(gpu)))
