"""`xid NODE [CODE]` in the playground: the kernel of that node reports an Xid of its GPU.

The command appends one record to the file that the node's agent reads as the kernel log.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chaos.cluster.host import KERN_ERR, Gpu
from chaos.scenarios.faults import XID_TEXTS

__all__ = ["main"]


def main(args: list[str]) -> int:
    """Appends the record. Returns 2 if the node has no kernel log here."""
    options = _parser().parse_args(args)
    log: Path = options.nodes / options.node / "dev" / "kmsg"
    gpu_nodes = sorted(path.name for path in options.nodes.glob("gpu-*"))
    if options.node not in gpu_nodes:
        print(f"xid: NODE: {options.node}: expected one of {', '.join(gpu_nodes)}", file=sys.stderr)
        return 2
    sequence = len(log.read_bytes().splitlines())
    address = Gpu.of(options.node, 0).pci.removesuffix(".0")
    text = XID_TEXTS.get(options.code, "an error of the playground")
    line = f"NVRM: Xid (PCI:{address}): {options.code}, {text}"
    with log.open("ab", buffering=0) as file:
        file.write(f"{KERN_ERR},{sequence},{sequence * 1_000_000},-;{line}\n".encode())
    print(f"kernel log of {options.node}: {line}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="xid", description=__doc__)
    parser.add_argument("nodes", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("node", metavar="NODE", help="gpu-1 to gpu-6")
    parser.add_argument("code", type=int, nargs="?", default=79, metavar="CODE", help="the Xid (%(default)s)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
