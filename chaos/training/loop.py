"""The training: meet, load, then each step: batch, gradient, average over the ranks, update, checkpoint."""

from __future__ import annotations

import hashlib
import io
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chaos.training import checkpoint, network
from chaos.training.collective import Peers

__all__ = ["Plan", "train"]


@dataclass(frozen=True)
class Plan:
    rank: int
    world_size: int
    master: tuple[str, int]
    steps: int
    seed: int
    step_time_s: float
    checkpoint_dir: Path
    checkpoint_every: int
    shard_write_s: float
    resume_from: Path | None
    output: Path
    rendezvous_timeout_s: float
    collective_timeout_s: float


def train(plan: Plan) -> None:
    """Trains to the last step. Raises RuntimeError if a peer is lost or a checkpoint is damaged."""
    if not 0 <= plan.rank < plan.world_size:
        raise RuntimeError(f"not a rank of world size {plan.world_size}: expected 0 to {plan.world_size - 1}")
    with Peers.meet(
        plan.rank,
        plan.world_size,
        plan.master,
        deadline_s=plan.rendezvous_timeout_s,
        timeout_s=plan.collective_timeout_s,
    ) as peers:
        step, state = _start(plan, peers)
        while step < plan.steps:
            step += 1
            x, y = network.batch(plan.seed, step, plan.rank)
            gradient, loss = network.gradient(state, x, y)
            _pause(plan.step_time_s)
            # The loss is sent with the gradient, so that every rank prints the same figure.
            average = peers.sum(np.append(gradient, loss)) / plan.world_size
            network.update(state, average[:-1], step)
            print(f"step {step}/{plan.steps} loss={average[-1]:.4f}", flush=True)
            if step % plan.checkpoint_every == 0:
                checkpoint.save(plan.checkpoint_dir, step, state, peers, write_s=plan.shard_write_s)
        peers.barrier()
    if plan.rank == 0:
        print(f"final weights sha256={_write_weights(plan.output, state)}", flush=True)


def _pause(seconds: float) -> None:
    """Sleeps in short pieces: if a signal comes just before a sleep, Python handles it only after that
    sleep."""
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        time.sleep(min(left_s, 0.5))


def _start(plan: Plan, peers: Peers) -> tuple[int, network.State]:
    """Returns the step and state from which to continue. Rank 0 finds the newest checkpoint, so that all
    ranks take the same one."""
    path = plan.resume_from
    if path is None:
        newest = checkpoint.newest(plan.checkpoint_dir) if plan.rank == 0 else None
        answer = peers.from_first(str(newest or "").encode()).decode()
        path = Path(answer) if answer else None
    if path is None:
        print("starting from scratch", flush=True)
        return 0, network.first_state(plan.seed)
    step, state = checkpoint.load(path)
    print(f"resumed from step {step} ({path})", flush=True)
    return step, state


def _write_weights(path: Path, state: network.State) -> str:
    """Writes the parameters, completely or not at all, and returns the file's SHA-256."""
    buffer = io.BytesIO()
    np.save(buffer, state.parameters)
    checkpoint.write_atomically(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()
