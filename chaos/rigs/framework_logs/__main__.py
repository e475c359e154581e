"""`python -m chaos.rigs.framework_logs --output FOLDER [NAME ...]`: runs the frameworks and keeps their logs.
The exit status is 1 if a framework cannot be run."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from chaos.processes.locked_environment import MissingError
from chaos.rigs.framework_logs.capture import FailedError
from chaos.rigs.framework_logs.kept import keep
from chaos.rigs.framework_logs.runs import RUNS, played


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.rigs.framework_logs", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("names", nargs="*", choices=[[], *(run.name for run in RUNS)])
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for run in RUNS:
        if arguments.names and run.name not in arguments.names:
            continue
        began = time.monotonic()
        try:
            first, resumed = played(run)
        except (MissingError, FailedError) as error:
            print(f"{run.name}: {error}", file=sys.stderr)
            return 1
        keep(arguments.output, run.name, *first)
        keep(arguments.output, f"{run.name}-resumed", *resumed)
        print(f"{run.name}: {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
