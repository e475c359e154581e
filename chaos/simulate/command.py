"""`rekindle chaos simulate`: plays random scripts of faults in virtual time, and prints what they contained
and which of them failed."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.simulate.many import Sums, play_seeds, sum_up
from chaos.simulate.script import Script
from chaos.simulate.shrinking import failure_of, shrink
from detectors.service.settings import SettingsError

__all__ = ["SEEDS_EXPECTED", "seeds_of", "simulate", "simulate_file"]

SEEDS_EXPECTED = "two whole numbers, the first not above the last, as 0..199"
_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")
_FAILURE_LINES_MAX = 30


def seeds_of(text: str) -> range:
    """Parses A..B; both ends are included. Raises SettingsError."""
    found = _RANGE.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise SettingsError(f"--seeds {text}: expected {SEEDS_EXPECTED}")
    return range(int(found[1]), int(found[2]) + 1)


def simulate(seeds: range, *, jobs: int, plays_max: int, folder: Path | None, console: Console) -> bool:
    """Prints the sums, and each failed seed with its smallest script. Returns whether none has failed."""
    runs = []
    for run in play_seeds(seeds, jobs):
        runs.append(run)
        if run.failure:
            _tell(run.seed, run.script, run.failure, plays_max, folder, console)
    _print_sums(sum_up(runs), console)
    return not any(run.failure for run in runs)


def simulate_file(path: Path, *, plays_max: int, console: Console) -> bool:
    """Plays one written script in the same way. Raises SettingsError."""
    try:
        script = msgspec.json.decode(path.read_bytes(), type=Script)
    except OSError as error:
        raise SettingsError(f"{path}: it cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise SettingsError(f"{path}: expected a script as `chaos simulate` writes it: {error}") from error
    failure = failure_of(script)
    if failure:
        _tell(None, script, failure, plays_max, None, console)
    else:
        console.print(f"{script}\nno violation", highlight=False, markup=False, soft_wrap=True)
    return not failure


def _tell(
    seed: int | None, script: Script, failure: str, plays_max: int, folder: Path | None, console: Console
) -> None:
    smallest = shrink(script, failure, plays_max=plays_max)
    name = "the script" if seed is None else f"seed {seed}"
    lines = smallest.failure.splitlines()
    said = [
        f"{name} FAILED; a shorter script, with {len(smallest.script.acts)} of its {len(script.acts)} acts, "
        "fails in the same way:",
        *str(smallest.script).splitlines(),
        *lines[:_FAILURE_LINES_MAX],
    ]
    if folder is not None and seed is not None:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f"seed-{seed}.json"
        place.write_bytes(msgspec.json.format(msgspec.json.encode(smallest.script)))
        said.append(f"the smaller script is in {place}; rekindle chaos simulate --script {place} plays it")
    console.print("\n".join([*said, ""]), highlight=False, markup=False, soft_wrap=True)


def _print_sums(sums: Sums, console: Console) -> None:
    for title, counts in (
        ("fault", sums.acts),
        ("refused requests, by reason", sums.refused),
        ("decision of the controller", sums.decided),
    ):
        table = Table(box=None)
        table.add_column("times", justify="right")
        table.add_column(title)
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(str(count), name)
        console.print(table)
    failed = f": {' '.join(map(str, sums.failed))}" if sums.failed else ""
    console.print(
        f"{sums.runs} seeds, {sums.seconds:.0f} s of computing, {len(sums.failed)} with a violation{failed}",
        highlight=False,
        soft_wrap=True,
    )
