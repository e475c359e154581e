"""Starts the training: torchrun's command, and an undisturbed run to compare with."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from chaos.processes.children import spawn
from chaos.training.launch import free_port

__all__ = ["ENVIRONMENT", "PROGRAM", "run_undisturbed", "torchrun"]

PROGRAM = Path(__file__).with_name("train.py")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
"""Environment of the training: one thread, so that sums do not depend on the number of threads, and ranks
that meet on loopback."""
_FINAL = re.compile(r"^final weights sha256=([0-9a-f]{64})$", re.MULTILINE)


def torchrun(
    python: Path, *, nodes: int, per_node: int, node: str, address: str, port: str, program: list[str]
) -> list[str]:
    """Returns torchrun's command, with static rendezvous and without torchrun's own restarts: the gang is
    restarted as a whole."""
    return [
        str(python),
        "-m",
        "torch.distributed.run",
        f"--nnodes={nodes}",
        f"--nproc-per-node={per_node}",
        f"--node-rank={node}",
        f"--master-addr={address}",
        f"--master-port={port}",
        "--max-restarts=0",
        str(PROGRAM),
        *program,
    ]


async def run_undisturbed(python: Path, *, ranks: int, steps: int, checkpoint_every: int) -> str:
    """Returns the SHA-256 of the final weights. Raises RuntimeError, with the last lines, if the run
    fails."""
    with tempfile.TemporaryDirectory(prefix="rekindle-undisturbed-") as name:
        folder = Path(name)
        program = [f"--steps={steps}", f"--checkpoint-dir={folder}", f"--checkpoint-every={checkpoint_every}"]
        program.append(f"--output={folder / 'final-weights'}")
        command = torchrun(
            python,
            nodes=1,
            per_node=ranks,
            node="0",
            address="127.0.0.1",
            port=str(free_port()),
            program=program,
        )
        # A resume that the caller's environment requests must not reach this run.
        environment = {**ENVIRONMENT, "REKINDLE_RESUME_FROM": ""}
        child = await spawn("undisturbed training", command, folder / "log", environment)
        try:
            await child.process.wait()
        finally:
            await child.stop()
        final = _FINAL.search((folder / "log").read_text(encoding="utf-8", errors="replace"))
        if child.process.returncode or final is None:
            raise RuntimeError(f"the undisturbed run failed:\n{child.last_lines()}")
        return final[1]
