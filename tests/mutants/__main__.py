"""`python -m tests.mutants`: plays each mutant of the table against the random scripts and, if no script
notices the mutant, against tests/recover. A run takes about an hour on one core. The exit status is 1 if the
goals are missed or a survivor is not explained."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from chaos.simulate.drawing import situation_of
from tests.mutants.model import Mutant, copied
from tests.mutants.reach import Reach
from tests.mutants.reached_tests import FILE, ONLY
from tests.mutants.table import MUTANTS
from tests.mutants.verdicts import Verdict, appended, recorded, sums, told

ALLOWED_S = 1800.0
"""Maximum time of one program. A mutant that loops without end is noticed by this limit. All scripts without
a mutant may take longer on a busy machine."""
_FIRST = 12
"""Number of scripts of each mutant that are played before the other scripts of any mutant."""
_PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider")


def main() -> int:
    options = _options()
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    verdicts = recorded(options.record) if options.record else {}
    open_ones = [
        mutant for mutant in chosen if options.only or not _is_done(verdicts.get(mutant.name), options)
    ]
    if open_ones:
        reach = _without_mutant(options)
        if reach is None:
            return 1
        for verdict in _verdicts(open_ones, reach, options):
            print(told(verdict), flush=True)
            verdicts[verdict.name] = verdict
    text, is_good = sums([verdicts[mutant.name] for mutant in chosen], whole=chosen == list(MUTANTS))
    print(f"\n{text}")
    return 0 if is_good else 1


def _verdicts(mutants: Sequence[Mutant], reached: _Reached, options: argparse.Namespace) -> Iterator[Verdict]:
    """Yields the verdicts. A few scripts notice most mutants, so the first scripts of all mutants give most
    verdicts early."""
    rest = list(mutants)
    with ThreadPoolExecutor(options.jobs) as pool:
        for chunk in (slice(0, _FIRST), slice(_FIRST, None)):
            played = pool.map(partial(_verdict, chunk=chunk, reached=reached, options=options), rest)
            open_ones = []
            for mutant, verdict in zip(rest, played, strict=True):
                if verdict is None:
                    open_ones.append(mutant)
                else:
                    yield verdict
            rest = open_ones


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seeds", default="0..199", metavar="A..B", help="random scripts to play (0..199)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="mutants at a time")
    parser.add_argument("--only", default="", metavar="NAME", help="mutants whose name contains this, again")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="append each verdict to this file at once, and play no mutant that has one there",
    )
    tests = parser.add_mutually_exclusive_group()
    tests.add_argument("--no-tests", action="store_true", help="leave tests/recover out")
    tests.add_argument("--all-tests", action="store_true", help="also where a script notices the mutant")
    return parser.parse_args()


def _wants_tests(seeds: str, options: argparse.Namespace) -> bool:
    return not options.no_tests and (not seeds or options.all_tests)


def _is_done(verdict: Verdict | None, options: argparse.Namespace) -> bool:
    if verdict is None or verdict.of_seeds != options.seeds:
        return False
    return verdict.tests is not None or not _wants_tests(verdict.seeds, options)


class _Reached(msgspec.Struct, frozen=True):
    """Seeds and tests, by mutant, in which the mutant would have decided otherwise."""

    seeds: Reach
    tests: dict[str, list[str]]


def _without_mutant(options: argparse.Namespace) -> _Reached | None:
    """Returns None if the code without a mutant does not pass."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree, file = copied(Path(folder), None), Path(folder) / "reached.json"
        tested = [*_PYTEST, "-p", "tests.mutants.reached_tests", "tests/recover"]
        tests = "" if options.no_tests else _noticed(tree, tested, {FILE: str(file), ONLY: options.only})
        reach = ["-m", "tests.mutants.reach", options.seeds, str(options.jobs)]
        if options.record:
            reach.append(str(options.record.absolute().with_suffix(".reach.jsonl")))
        traced = _run(tree, reach, allowed_s=None)
        if tests or traced.returncode != 0:
            seeds = (traced.stdout.strip() or _first_word(traced)) if traced.returncode else "seeds pass"
            print(f"without any mutant: tests {tests or 'pass'}\n{seeds}")
            return None
        reached = (
            {} if options.no_tests else msgspec.json.decode(file.read_bytes(), type=dict[str, list[str]])
        )
    return _Reached(msgspec.json.decode(traced.stdout, type=Reach), reached)


def _verdict(
    mutant: Mutant, *, chunk: slice, reached: _Reached, options: argparse.Namespace
) -> Verdict | None:
    """Plays this chunk of the scripts that the mutant changes. Returns None if no script of the chunk notices
    the mutant, and other scripts are left."""
    began = time.monotonic()
    changed = sorted(reached.seeds[mutant.name], key=lambda seed: situation_of(seed) is None)
    scripts = changed[chunk]
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = copied(Path(folder), mutant)
        played = ["-m", "tests.mutants.seeds", ",".join(map(str, scripts))]
        seeds = _noticed(tree, played) if scripts else ""
        if not seeds and chunk.stop is not None and chunk.stop < len(changed):
            return None
        tests = None
        if _wants_tests(seeds, options):
            chosen = Path(folder) / "chosen"
            chosen.write_text("\n".join(reached.tests[mutant.name]))
            tests = _noticed(tree, [*_PYTEST, f"@{chosen}"]) if reached.tests[mutant.name] else ""
    verdict = Verdict(mutant.name, options.seeds, len(changed), seeds, tests, time.monotonic() - began)
    if options.record:
        appended(options.record, verdict)
    return verdict


def _noticed(tree: Path, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Returns the last line that reports the failure. Returns an empty string if the program ends with status
    0."""
    try:
        done = _run(tree, arguments, variables)
    except subprocess.TimeoutExpired:
        return f"no end within {ALLOWED_S:g} s"
    return _first_word(done)


def _run(
    tree: Path,
    arguments: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    allowed_s: float | None = ALLOWED_S,
) -> subprocess.CompletedProcess[str]:
    ours = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **ours, **(variables or {})}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=allowed_s,
        check=False,
    )


def _first_word(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "seed"))]
    return lines[-1] if lines else (done.stderr.splitlines() or ["it failed without a word"])[-1]


if __name__ == "__main__":
    sys.exit(main())
