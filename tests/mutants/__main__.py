"""`python -m tests.mutants`: each mutant of the table against tests/recover and the random scripts. An hour
or more."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from tests.mutants.model import Mutant, copied
from tests.mutants.survivors import SURVIVORS
from tests.mutants.table import MUTANTS

ALLOWED_S = 1800.0
"""Of one run. A mutant that loops for ever is noticed by that."""


class Verdict(msgspec.Struct, frozen=True):
    mutant: Mutant
    tests: str
    """What noticed it there; empty if nothing did."""
    seeds: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seeds", default="0..199", metavar="A..B", help="random scripts to play (0..199)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="mutants at a time")
    parser.add_argument("--only", default="", metavar="NAME", help="mutants whose name contains this")
    parser.add_argument("--no-tests", action="store_true", help="leave tests/recover out")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if (wrong := _verdict(None, options)) is not None and (wrong.tests or wrong.seeds):
        print(f"without any mutant: tests {wrong.tests or 'pass'}; seeds {wrong.seeds or 'pass'}")
        return 1
    verdicts = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(lambda mutant: _verdict(mutant, options), chosen):
            verdicts.append(verdict)
            print(_told(verdict), flush=True)
    return _sums(verdicts, tests=not options.no_tests)


def _verdict(mutant: Mutant | None, options: argparse.Namespace) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = copied(Path(folder), mutant)
        tests = "" if options.no_tests else _noticed(tree, [*_PYTEST, "tests/recover"])
        seeds = _noticed(tree, ["-m", "tests.mutants.seeds", options.seeds])
    nobody = Mutant("none", "", "", "", "")
    return Verdict(mutant or nobody, tests, seeds, time.monotonic() - began)


_PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider")


def _noticed(tree: Path, arguments: Sequence[str]) -> str:
    """The last line that tells what went wrong; empty where the program ends well."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ALLOWED_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {ALLOWED_S:g} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "seed"))]
    return lines[-1] if lines else (done.stderr.splitlines() or ["it failed without a word"])[-1]


def _told(verdict: Verdict) -> str:
    tests, seeds = ("noticed" if found else "-" for found in (verdict.tests, verdict.seeds))
    head = f"{verdict.mutant.name:45} tests {tests:8} seeds {seeds:8} {verdict.seconds:6.0f} s"
    return "\n".join([head, *(f"    {found[:160]}" for found in (verdict.tests, verdict.seeds) if found)])


def _sums(verdicts: Sequence[Verdict], *, tests: bool) -> int:
    count = len(verdicts)
    by_seeds = [v for v in verdicts if v.seeds]
    together = [v for v in verdicts if v.seeds or v.tests]
    print(f"\n{count} mutants; the seeds alone notice {_share(len(by_seeds), count)}", end="")
    print(f", with tests/recover {_share(len(together), count)}" if tests else "")
    for verdict in verdicts:
        if not (verdict.tests or verdict.seeds):
            name = verdict.mutant.name
            print(f"  nobody notices {name}: {SURVIVORS.get(name, 'NOT EXPLAINED: ' + verdict.mutant.why)}")
    return 0


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / max(1, whole):.0f} %)"


if __name__ == "__main__":
    sys.exit(main())
