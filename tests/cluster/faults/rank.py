"""A rank of the small training that a test can harm from inside. Runs in a pod; imports chaos.training only.

    python rank.py --steps=200 --checkpoint-dir=DIR ...

A file DIR/harm-RANK, `crash STEP` or `leak STEP`, befalls that rank at that step, once: it raises an error
that nobody catches, or takes memory until the kernel ends it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from chaos.training import model
from chaos.training.__main__ import main

__all__ = ["CRASH", "LEAK"]

CRASH, LEAK = "crash", "leak"
_undisturbed = model.batch


def befall(file: Path, step: int) -> None:
    try:
        harm, _, at = file.read_text(encoding="utf-8").partition(" ")
    except FileNotFoundError:
        return
    if step < int(at):
        return
    file.unlink()  # before it acts: the restarted rank shall not meet it again
    if harm == CRASH:
        raise ValueError("batch 17 of shard 3: expected 16 inputs, found 15")
    hoard = []
    while harm == LEAK:
        hoard.append(os.urandom(1 << 20))


def run() -> int:
    (folder,) = (Path(a.partition("=")[2]) for a in sys.argv if a.startswith("--checkpoint-dir="))

    def batch(seed: int, step: int, rank: int) -> tuple[model.Vector, model.Vector]:
        befall(folder / f"harm-{rank}", step)
        return _undisturbed(seed, step, rank)

    model.batch = batch
    return main()


if __name__ == "__main__":
    sys.exit(run())
