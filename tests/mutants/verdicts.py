"""The verdict about a mutant, the file that keeps the verdicts, and the sums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.mutants.survivors import SURVIVORS

__all__ = ["SEEDS_PERCENT_MIN", "TOGETHER_PERCENT_MIN", "Verdict", "appended", "recorded", "sums", "told"]

SEEDS_PERCENT_MIN = 60
TOGETHER_PERCENT_MIN = 90


class Verdict(msgspec.Struct, frozen=True):
    name: str
    of_seeds: str
    """Random scripts that might have noticed the mutant, as A..B."""
    reached: int
    """Number of these scripts in which the mutant decides otherwise than the unchanged code."""
    seeds: str
    """Violation of the first script that noticed the mutant; empty if no script did."""
    tests: str | None
    """First test that failed; empty if all passed, None if they were not run."""
    seconds: float

    @property
    def survived(self) -> bool:
        return not self.seeds and not self.tests


def recorded(file: Path) -> dict[str, Verdict]:
    """Returns the verdicts by the mutant's name. Of several lines about one mutant the last counts."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    verdicts = [msgspec.json.decode(line, type=Verdict) for line in lines]
    return {verdict.name: verdict for verdict in verdicts}


def appended(file: Path, verdict: Verdict) -> None:
    with file.open("ab") as stream:
        stream.write(msgspec.json.encode(verdict) + b"\n")


def told(verdict: Verdict) -> str:
    seeds = "noticed" if verdict.seeds else "-"
    tests = "not run" if verdict.tests is None else "noticed" if verdict.tests else "-"
    head = f"{verdict.name:60} seeds {seeds:8} tests {tests:8} {verdict.seconds:6.0f} s"
    found = [text[:160] for text in (verdict.seeds, verdict.tests) if text]
    if not verdict.seeds:
        found.append(f"in {verdict.reached} scripts it decides otherwise")
    return "\n".join([head, *(f"    {text}" for text in found)])


def sums(verdicts: Sequence[Verdict], *, whole: bool) -> tuple[str, bool]:
    """Returns the text, and whether the result is good: each survivor is explained and, if `whole` says that
    these are the verdicts of the whole table, the goals are met."""
    count = max(1, len(verdicts))
    by_seeds = sum(bool(v.seeds) for v in verdicts)
    together = sum(not v.survived for v in verdicts)
    lines = [
        f"{len(verdicts)} mutants; the seeds alone notice {by_seeds} ({100 * by_seeds / count:.0f} %, goal "
        f"{SEEDS_PERCENT_MIN} %), with tests/recover {together} ({100 * together / count:.0f} %, goal "
        f"{TOGETHER_PERCENT_MIN} %)"
    ]
    survivors = [v.name for v in verdicts if v.survived]
    lines += [f"  nothing notices {name}: {SURVIVORS.get(name, 'NOT EXPLAINED')}" for name in survivors]
    met = 100 * by_seeds >= SEEDS_PERCENT_MIN * count and 100 * together >= TOGETHER_PERCENT_MIN * count
    return "\n".join(lines), (met or not whole) and all(name in SURVIVORS for name in survivors)
