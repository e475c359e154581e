"""The training that torchrun starts, one process per rank. Runs with the torch of environment.py, on CPUs.

The training is a small network, sharded by FSDP2, so that every rank owns and saves a part. Every few steps
dcp.async_save saves a checkpoint while the steps go on. All random values come from seed and step: two runs
with the same number of ranks end with the same weights, bit for bit, however often they were interrupted and
resumed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

INPUTS, HIDDEN, BATCH_ROWS = 32, 256, 32


class SlowWriter(dcp.FileSystemWriter):  # type: ignore[misc]  # torch is not installed where mypy runs
    """DCP's own writer on slow storage, so that a save spans several steps."""

    def __init__(self, path: Path, slow_s: float) -> None:
        super().__init__(path)
        self._slow_s = slow_s

    def write_data(self, plan: dcp.SavePlan, planner: dcp.SavePlanner) -> torch.futures.Future:
        time.sleep(self._slow_s / 2)
        written = super().write_data(plan, planner)
        time.sleep(self._slow_s / 2)
        return written


class Saver:
    """Runs at most one save at a time. A failed save ends the training as soon as the failure is known."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # A separate group: a save's collectives run beside those of the steps.
        self._group = dist.new_group(backend="gloo")
        self._running: Future[object] | None = None
        self._of_step = 0

    def begin(self, step: int, state: dict[str, object], slow_s: float) -> None:
        self.finish(step)
        print(f"checkpoint step-{step} begun", flush=True)
        self._of_step = step
        writer = SlowWriter(self._root / f"step-{step}", slow_s)
        self._running = dcp.async_save(state, storage_writer=writer, process_group=self._group)

    def look(self, step: int) -> None:
        """Finishes a save that is done. Called after each step."""
        if self._running is not None and self._running.done():
            self.finish(step)

    def finish(self, step: int) -> None:
        """Waits for the save. Raises the error of the save, on any rank."""
        if self._running is not None:
            self._running.result()
            self._running = None
            print(f"checkpoint step-{self._of_step} finished after step {step}", flush=True)


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    try:
        _train(options)
    finally:
        dist.destroy_process_group()


def _train(options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    torch.manual_seed(options.seed)
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = _resumed(options.checkpoint_dir, model, optimizer)
    saver = Saver(options.checkpoint_dir)
    while step < options.steps:
        step += 1
        pace = _pace(options)
        x, y = _batch(options.seed, step, rank)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pace.step_s)
        print(f"step {step}/{options.steps} loss={loss.item():.4f}", flush=True)
        saver.look(step)
        if step % options.checkpoint_every == 0:
            saver.begin(step, _state(model, optimizer, step), pace.save_s)
    saver.finish(step)
    weights = b"".join(p.full_tensor().detach().numpy().tobytes() for p in model.parameters())
    if rank == 0:
        part = options.output.with_suffix(".part")
        part.write_bytes(weights)
        part.replace(options.output)
        print(f"final weights sha256={hashlib.sha256(weights).hexdigest()}", flush=True)


class Pace(NamedTuple):
    """Additional time of each step and each save."""

    step_s: float
    save_s: float


def _pace(options: argparse.Namespace) -> Pace:
    if options.pace_file is None:
        return Pace(options.step_time_s, options.slow_save_s)
    return Pace(*map(float, options.pace_file.read_text(encoding="utf-8").split()))


def _batch(seed: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns this rank's rows of this step. A resumed run sees the same rows."""
    random = torch.Generator().manual_seed((seed * 1_000_003 + step) * 1_000 + rank)
    x = torch.randn(BATCH_ROWS, INPUTS, generator=random)
    return x, torch.sin(x[:, :1] + x[:, 1:2]) + 0.5 * x[:, 2:3] * x[:, 3:4]


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, object]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": torch.tensor(step)}


def _resumed(root: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Loads the checkpoint that REKINDLE_RESUME_FROM names, or otherwise the newest one. Returns the step
    after which the checkpoint was saved, or 0 if there is none."""
    told = os.environ.get("REKINDLE_RESUME_FROM")
    # Rank 0 finds the newest checkpoint, so that all ranks take the same one.
    found = [told or (str(_newest(root) or "") if dist.get_rank() == 0 else "")]
    dist.broadcast_object_list(found)
    if not found[0]:
        print("starting from scratch", flush=True)
        return 0
    state = _state(model, optimizer, 0)
    dcp.load(state, checkpoint_id=found[0])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    step: int = state["step"].item()  # type: ignore[attr-defined]
    print(f"resumed from step {step} ({found[0]})", flush=True)
    return step


def _newest(root: Path) -> Path | None:
    """Returns the newest complete checkpoint: DCP writes .metadata last."""
    finished = [index.parent for index in root.glob("step-*/.metadata")]
    return max(finished, key=lambda folder: int(folder.name.removeprefix("step-")), default=None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torchrun chaos/rigs/torch_training/train.py", description=__doc__)
    add = parser.add_argument
    add("--steps", type=int, required=True, metavar="N", help="train until this step")
    add("--checkpoint-dir", type=Path, required=True, metavar="DIR", help="shared by all ranks")
    add("--checkpoint-every", type=int, default=20, metavar="N", help="steps between two (%(default)s)")
    add("--output", type=Path, required=True, metavar="FILE", help="the final weights")
    add("--seed", type=int, default=0, metavar="N", help="of weights and data (%(default)s)")
    add("--step-time-s", type=float, default=0.0, metavar="S", help="make each step this much longer")
    add("--slow-save-s", type=float, default=0.0, metavar="S", help="make each save this much longer")
    add("--pace-file", type=Path, metavar="FILE", help="holds these two numbers instead, and may change")
    return parser.parse_args()


if __name__ == "__main__":
    main()
