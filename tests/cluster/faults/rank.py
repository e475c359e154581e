"""A rank of the small training that a test can harm from inside. Runs in a pod, and imports chaos.training
only.

    python rank.py --steps=200 --checkpoint-dir=DIR ...

A file DIR/harm-RANK with `crash STEP`, `leak STEP` or `spoil STEP` harms that rank at that step, once. The
rank raises an error that nobody catches, takes memory until the kernel ends it, or crashes so that its newest
checkpoint will not load. Before a checkpoint is loaded, each rank prints what DeepSpeed prints when it is
initialised.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from chaos.training import checkpoint, network
from chaos.training.__main__ import main

__all__ = ["CRASH", "LEAK", "SPOIL"]

CRASH, LEAK, SPOIL = "crash", "leak", "spoil"
_undisturbed, _loaded = network.batch, checkpoint.load
_INITIALISED = "[INFO] [logging.py:123:log_dist] [Rank 0] step=0, skipped=0, lr=[5e-05], mom=[(0.9, 0.999)]"
_NOT_LOADED = "PytorchStreamReader failed reading zip archive: failed finding central directory"


def befall(file: Path, step: int) -> None:
    try:
        harm, _, at = file.read_text(encoding="utf-8").partition(" ")
    except FileNotFoundError:
        return
    if step < int(at):
        return
    file.unlink()  # before the harm: the restarted rank must not find the file again
    if harm == SPOIL:
        newest = checkpoint.newest(file.parent)
        file.with_name(file.name.replace("harm", "spoiled")).write_text(newest.name if newest else "")
    if harm in (CRASH, SPOIL):
        raise ValueError("batch 17 of shard 3: expected 16 inputs, found 15")
    hoard = []
    while harm == LEAK:
        hoard.append(os.urandom(1 << 20))


def run() -> int:
    (folder,) = (Path(a.partition("=")[2]) for a in sys.argv if a.startswith("--checkpoint-dir="))

    def batch(seed: int, step: int, rank: int) -> tuple[network.Vector, network.Vector]:
        befall(folder / f"harm-{rank}", step)
        return _undisturbed(seed, step, rank)

    def load(path: Path) -> tuple[int, network.State]:
        print(_INITIALISED, flush=True)
        if any(file.read_text() == path.name for file in folder.glob("spoiled-*")):
            raise RuntimeError(_NOT_LOADED)
        return _loaded(path)

    network.batch, checkpoint.load = batch, load
    return main()


if __name__ == "__main__":
    sys.exit(run())
