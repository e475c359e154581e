"""`python -m chaos.rigs.torch_soak`: reads the arguments, prints lines and returns an exit status. The course
of the soak is in soak.py and rounds.py."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from chaos.processes.locked_environment import MissingError
from chaos.rigs.torch_soak.manifest import HANG_S
from chaos.rigs.torch_soak.report import line, summary
from chaos.rigs.torch_soak.rounds import Outcome, RoundError
from chaos.rigs.torch_soak.soak import FAULTS_PER_JOB, soak
from chaos.rigs.torch_training.environment import TORCH
from chaos.scenarios.stage import StageError

__all__ = ["main"]


def main() -> int:
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        python = TORCH.interpreter()
    except MissingError as error:
        print(f"python -m chaos.rigs.torch_soak: {error}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="rekindle-torch-"))
    outcomes: list[Outcome] = []

    def tell(told: str | Outcome) -> None:
        if isinstance(told, Outcome):
            outcomes.append(told)
            told = line(len(outcomes), told)
        print(told, flush=True)

    print(
        f"seed {options.seed}: {options.faults} faults, {FAULTS_PER_JOB} a job of {options.ranks} ranks; "
        f"hang limit {HANG_S} s, no limit of attempts for one cause",
        flush=True,
    )
    ok = interrupted = False
    try:
        right = asyncio.run(
            soak(folder, python, faults=options.faults, seed=options.seed, ranks=options.ranks, tell=tell)
        )
        ok = right and not any(o.wrong for o in outcomes)
    except (RoundError, StageError, RuntimeError) as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if outcomes:
            print("\n".join(summary(outcomes)))
        if ok or interrupted:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"The logs are in {folder}", file=sys.stderr)
    return 130 if interrupted else 0 if ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.rigs.torch_soak",
        description="Trains real torchrun jobs (gloo, CPU, FSDP2, asynchronous DCP saves) on the demo "
        "cluster and strikes them at random: SIGKILL of a pod or of a rank below torchrun, SIGSTOP of a "
        "rank, a full disk in a save. After each fault the gang must resume from its newest finished "
        "checkpoint, with one stop and one resume, and lose no more steps than an interval, the steps made "
        "during one save, and one. At the end of each job its weights must equal an undisturbed run's, bit "
        "for bit.",
        epilog="Needs the environment that `python -m chaos.rigs.torch_training.environment` makes. Exit "
        "status: 0 all of that held, 1 not, 2 wrong usage or no environment, 130 interrupted.",
    )
    add = parser.add_argument
    add("--faults", type=_count, default=50, metavar="N", help="how many (%(default)s)")
    add("--seed", type=int, default=1, metavar="N", help="of what strikes, and when (%(default)s)")
    add("--ranks", type=_ranks, default=2, metavar="N", help="of each job (%(default)s)")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _ranks(text: str) -> int:
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError(f"{text}: a gang has at least 2 ranks")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
