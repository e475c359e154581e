"""`python -m chaos.training`: reads arguments and environment, and returns the exit status. The training is
in loop.py."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

__all__ = ["main"]

# These variables must be set before numpy is imported: a thread pool would cost start-up time, and a thread
# count that differs between two machines may change the last bit of a sum.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")


def main() -> int:
    # Not sys.exit: its SystemExit is lost if it is raised inside numpy (1 of 20 on a busy machine).
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    options = _parser().parse_args()

    from chaos.training.loop import Plan, train  # noqa: PLC0415  numpy must not slow --help

    rank: int = options.rank
    try:
        train(
            Plan(
                rank=rank,
                world_size=options.world_size,
                master=(options.master_addr, options.master_port),
                steps=options.steps,
                seed=options.seed,
                step_time_s=options.step_time_s,
                checkpoint_dir=options.checkpoint_dir,
                checkpoint_every=options.checkpoint_every,
                shard_write_s=options.shard_write_s,
                resume_from=Path(given) if (given := os.environ.get("REKINDLE_RESUME_FROM")) else None,
                output=options.output or options.checkpoint_dir / "final-weights.npy",
                rendezvous_timeout_s=options.rendezvous_timeout_s,
                collective_timeout_s=options.collective_timeout_s,
            )
        )
    except (RuntimeError, OSError) as error:
        print(f"RuntimeError: [rank {rank}] {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    env = os.environ
    parser = argparse.ArgumentParser(
        prog="python -m chaos.training",
        description="Trains a small network on made-up data, one process per rank, with gradients averaged "
        "over TCP. Two runs with the same arguments end with the same weights, bit for bit, however often "
        "they were interrupted and resumed.",
        epilog="Environment: RANK (or JOB_COMPLETION_INDEX), WORLD_SIZE, MASTER_ADDR and MASTER_PORT are the "
        "defaults of the arguments with these names. REKINDLE_RESUME_FROM is the checkpoint to resume from; "
        "without it, the newest finished one. Exit status: 0 trained, 1 failed, 143 ended by SIGTERM.",
    )
    add = parser.add_argument
    add("--steps", type=_count, required=True, metavar="N", help="train until this step")
    add("--checkpoint-dir", type=Path, required=True, metavar="DIR", help="shared by all ranks")
    add("--checkpoint-every", type=_count, default=20, metavar="N", help="steps between two (%(default)s)")
    add("--output", type=Path, metavar="FILE", help="the final weights (DIR/final-weights.npy)")
    add("--seed", type=int, default=0, metavar="N", help="of the first weights and the data (%(default)s)")
    add("--step-time-s", type=float, default=0.0, metavar="S", help="make each step this much longer")
    add("--shard-write-s", type=float, default=0.0, metavar="S", help="make writing a shard take this long")
    add(
        "--rendezvous-timeout-s",
        type=float,
        default=60.0,
        metavar="S",
        help="to meet all ranks (%(default)g)",
    )
    add("--collective-timeout-s", type=float, default=600.0, metavar="S", help="to hear a peer (%(default)g)")
    rank = env.get("RANK", env.get("JOB_COMPLETION_INDEX", "0"))
    add("--rank", type=int, default=rank, metavar="N", help="of this process (%(default)s)")
    add(
        "--world-size",
        type=_count,
        default=env.get("WORLD_SIZE", "1"),
        metavar="N",
        help="ranks (%(default)s)",
    )
    add(
        "--master-addr",
        default=env.get("MASTER_ADDR", "127.0.0.1"),
        metavar="HOST",
        help="rank 0 (%(default)s)",
    )
    add("--master-port", type=int, default=env.get("MASTER_PORT", "29500"), metavar="N", help="(%(default)s)")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
