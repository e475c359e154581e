"""Implements the checks nccl-loopback and nccl-pair: the node's own GPUs add up their data by NCCL, and each
gets the right sum.

Each GPU has one process, as in a training (nccl_rank.py). The pairs use the path that NCCL finds best, which
is NVLink if the node has it. The loop-back runs with NVLink, PCIe and shared memory switched off: every byte
leaves by the node's network and comes back, as it does between nodes.
Source: NVIDIA, NCCL environment variables: NCCL_P2P_DISABLE, NCCL_SHM_DISABLE.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from os import environ
from pathlib import Path

from detectors.validation.node_check import CannotRunError, Node, Result, failed, passed
from detectors.validation.with_torch import cuda_torch

__all__ = ["exchange", "loopback", "pairs"]

_LOOK_S = 0.1
_BY_NETWORK = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


def loopback(node: Node) -> Result:
    count = _gpus()
    return exchange("all", count, "nccl", _BY_NETWORK) or passed(f"{count} GPUs by way of the network")


def pairs(node: Node) -> Result:
    count = _gpus()
    return exchange("pairs", count, "nccl", {}) or passed(f"each of {count} GPUs with the next one")


def _gpus() -> int:
    count = int(cuda_torch().cuda.device_count())
    if count < 2:
        raise CannotRunError("one GPU: there is no other on this node to exchange data with")
    return count


def exchange(who: str, ranks: int, backend: str, variables: Mapping[str, str]) -> Result | None:
    """Runs the exchange, and returns the failure; None if nothing failed. `who` is `all`, or `pairs` of
    neighbours in turn.

    Ranks that hang are ended with this process, at the check's deadline.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "detectors.validation.nccl_rank", who, backend, f"{folder}/meeting"]
        outputs = [Path(folder) / f"rank-{rank}" for rank in range(ranks)]
        children = []
        for rank, path in enumerate(outputs):
            with path.open("wb") as output:
                child = subprocess.Popen(
                    [*command, str(ranks), str(rank)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**environ, **variables},
                )
            children.append(child)
        culprit = _first_to_fail(children)
        if culprit is None:
            return None
        status = children[culprit].returncode
        words = outputs[culprit].read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return failed(f"rank {culprit} of {ranks} ended with {status}: {words[-1] if words else ''}")


def _first_to_fail(children: list[subprocess.Popen[bytes]]) -> int | None:
    """Returns the first rank that fails; None once all have ended successfully. The others may wait for a
    rank that failed, and are ended."""
    while True:
        statuses = [child.poll() for child in children]
        failures = [rank for rank, status in enumerate(statuses) if status]
        if failures:
            for child in children:
                child.kill()
                child.wait()
            return failures[0]
        if all(status == 0 for status in statuses):
            return None
        time.sleep(_LOOK_S)
