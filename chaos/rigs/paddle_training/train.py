"""The training of one rank of a PaddleJob. Runs with the Paddle of environment.py, on CPUs.

The training is a small network on synthetic data; the gradients of all ranks are averaged over gloo. All
random values come from seed and step. The first rank saves with paddle.save, as Paddle's own examples do.

With --conflict-at a failed allocation is simulated, because there is no GPU: at that step each rank prints
Paddle's own message for it and fails, unless Paddle itself reports that its allocator is naive_best_fit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import paddle  # type: ignore[import-not-found]  # not installed where mypy runs
import paddle.distributed as dist  # type: ignore[import-not-found]

INPUTS, HIDDEN, BATCH_ROWS = 8, 16, 32
FLAG = "FLAGS_allocator_strategy"
CONFLICT = """\
SystemError: (Fatal) Operator matmul raises an struct paddle::memory::allocation::BadAlloc exception.
The exception content is
:ResourceExhaustedError:

Out of memory error on GPU 0. Cannot allocate 762.939697MB memory on GPU 0, 3.256321GB memory has been \
allocated and available memory is only 1.527736GB.

Please check whether there is any other process using GPU 0.
1. If yes, please stop them, or start PaddlePaddle on another GPU.
2. If no, please decrease the batch size of your model."""
"""Message of cuda_allocator.cc, with more free memory than is requested."""


def main() -> int:
    options = _options()
    strategy = paddle.get_flags(FLAG)[FLAG]
    print(f"{FLAG} read back from Paddle {paddle.__version__}: {strategy}", flush=True)
    paddle.set_device("cpu")
    _meet(options.rank, options.ranks)
    paddle.seed(options.seed)
    model = paddle.nn.Sequential(
        paddle.nn.Linear(INPUTS, HIDDEN), paddle.nn.Tanh(), paddle.nn.Linear(HIDDEN, 1)
    )
    optimizer = paddle.optimizer.Adam(1e-2, parameters=model.parameters())
    step = _resumed(options.checkpoint_dir, model, optimizer)
    while step < options.steps:
        step += 1
        if step == options.conflict_at and strategy != "naive_best_fit":
            print("an allocation that fails is simulated, since there is no GPU here", flush=True)
            print(CONFLICT, file=sys.stderr, flush=True)
            return 1
        loss = _loss(model, options.seed, step, options.rank)
        (loss / options.ranks).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.clear_grad()
        time.sleep(options.step_time_s)
        print(f"step {step}/{options.steps} loss={float(loss):.4f}", flush=True)
        if step % options.checkpoint_every == 0 and options.rank == 0:
            _save(options.checkpoint_dir / f"step-{step}", model, optimizer)
    return 0


def _meet(rank: int, ranks: int) -> None:
    """Connects all ranks at PADDLE_MASTER. The other variables are those that Paddle's own launcher would
    set."""
    here = f"{os.environ.get('POD_IP', '127.0.0.1')}:0"  # gloo takes free ports
    os.environ |= {
        "PADDLE_DISTRI_BACKEND": "gloo",
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(ranks),
        "PADDLE_CURRENT_ENDPOINT": here,
    }
    dist.init_parallel_env()


def _loss(model: paddle.nn.Layer, seed: int, step: int, rank: int) -> paddle.Tensor:
    """Returns the loss of this rank's rows of this step. A resumed run sees the same rows."""
    paddle.seed((seed * 1_000_003 + step) * 1_000 + rank)
    x = paddle.randn([BATCH_ROWS, INPUTS])
    return paddle.nn.functional.mse_loss(model(x), paddle.sin(x[:, :1] + x[:, 1:2]))


def _save(folder: Path, model: paddle.nn.Layer, optimizer: paddle.optimizer.Optimizer) -> None:
    paddle.save(model.state_dict(), str(folder / "model.pdparams"))
    paddle.save(optimizer.state_dict(), str(folder / "model.pdopt"))


def _resumed(root: Path, model: paddle.nn.Layer, optimizer: paddle.optimizer.Optimizer) -> int:
    """Loads the checkpoint that REKINDLE_RESUME_FROM names, or otherwise the newest one. Returns the step
    after which the checkpoint was saved, or 0 if there is none."""
    told = os.environ.get("REKINDLE_RESUME_FROM")
    folder = Path(told) if told else _newest(root)
    if folder is None:
        print("starting from scratch", flush=True)
        return 0
    model.set_state_dict(paddle.load(str(folder / "model.pdparams")))
    optimizer.set_state_dict(paddle.load(str(folder / "model.pdopt")))
    step = int(folder.name.removeprefix("step-"))
    print(f"resumed from step {step} ({folder})", flush=True)
    return step


def _newest(root: Path) -> Path | None:
    """Returns the newest complete checkpoint: the optimizer's state is saved last."""
    found = [state.parent for state in root.glob("step-*/model.pdopt")]
    return max(found, key=lambda folder: int(folder.name.removeprefix("step-")), default=None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos/rigs/paddle_training/train.py", description=__doc__)
    add = parser.add_argument
    add("--rank", type=int, required=True, metavar="N", help="of this process")
    add("--ranks", type=int, required=True, metavar="N", help="that meet at PADDLE_MASTER")
    add("--steps", type=int, required=True, metavar="N", help="train until this step")
    add("--checkpoint-dir", type=Path, required=True, metavar="DIR", help="shared by all ranks")
    add("--checkpoint-every", type=int, default=20, metavar="N", help="steps between two (%(default)s)")
    add("--conflict-at", type=int, default=0, metavar="N", help="simulate it at this step (0: never)")
    add("--seed", type=int, default=0, metavar="N", help="of weights and data (%(default)s)")
    add("--step-time-s", type=float, default=0.0, metavar="S", help="make each step this much longer")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
