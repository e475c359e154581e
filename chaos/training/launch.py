"""Runs the training undisturbed on this machine. A disturbed run must equal this reference, bit for bit."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

__all__ = ["free_port", "run_reference"]

_FINAL = re.compile(rb"^final weights sha256=([0-9a-f]{64})$", re.MULTILINE)


async def run_reference(
    *, steps: int, world_size: int, checkpoint_dir: Path, checkpoint_every: int, seed: int = 0
) -> str:
    """Returns the SHA-256 of the final weights. Raises RuntimeError if a rank fails.

    A cancellation ends its processes; for a time limit wrap the call in asyncio.timeout.
    """
    arguments = [f"--steps={steps}", f"--checkpoint-dir={checkpoint_dir}", f"--seed={seed}"]
    arguments += [f"--checkpoint-every={checkpoint_every}", f"--world-size={world_size}"]
    arguments += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    # The environment is as small as a container's. A resume that the caller's environment requests must not
    # reach the reference, and numpy's libraries choose their kernels by other variables. Each kernel rounds
    # the last bit in its own way.
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    ranks: list[Process] = []
    try:
        for rank in range(world_size):
            command = [sys.executable, "-m", "chaos.training", *arguments, f"--rank={rank}"]
            ranks.append(
                await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, env=environment)
            )
        outputs = await asyncio.gather(*(process.communicate() for process in ranks))
    finally:
        for process in ranks:
            if process.returncode is None:
                process.kill()
        for process in ranks:
            await process.wait()
    printed = outputs[0][0]
    final = _FINAL.search(printed)
    if final is None:
        raise RuntimeError(f"the undisturbed run failed: {printed[-500:].decode(errors='replace')}")
    return final[1].decode()


def free_port(but: Collection[int] = ()) -> int:
    """Returns a TCP port of loopback that is free now, and none of the ports `but`, which nobody may use yet.

    The port is below those that kernels give to outgoing connections (Linux: from 32768), so that no such
    connection takes it before its user listens there.
    """
    while True:
        port = secrets.choice(range(20_000, 30_000))
        if port in but:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
