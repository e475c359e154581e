"""The table of mutants fits the code as it is, and its runner plays no script in vain."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.model import ROOT, Mutant, NotApplicableError, applied
from tests.mutants.reach import changed_lines, seeds_that_reach
from tests.mutants.survivors import SURVIVORS
from tests.mutants.table import MUTANTS
from tests.mutants.verdicts import Verdict, appended, recorded, sums, told


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_changes_the_code_and_leaves_it_readable(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()

    changed = applied(mutant, text)

    assert changed != text
    compile(changed, mutant.file, "exec")


def test_a_mutant_whose_text_is_gone_is_told() -> None:
    gone = Mutant("gone", "recover/guard.py", "no such text", "", "a test")
    with pytest.raises(NotApplicableError, match=r"mutant gone: its search text stands 0 times"):
        applied(gone, "another text")


def test_names_are_unique_and_those_that_are_explained_exist() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
    assert set(SURVIVORS) <= set(names)


# --- which scripts are played -----------------------------------------------------------------------------

_CODE = """LIMIT = 3

def share(total,
          percent):
    if total > LIMIT:
        found = min(
            total,
            percent,
        )
        return found
    return total
"""


@pytest.mark.parametrize(
    ("search", "lines"),
    [
        ("percent,\n        )", range(6, 10)),
        ("return found", range(10, 11)),
        ("if total", range(5, 11)),
        ("return found\n    return total", range(10, 12)),
        ("LIMIT = 3", None),
        ("percent):", None),
    ],
)
def test_the_changed_lines_are_those_of_whole_statements(search: str, lines: range | None) -> None:
    assert changed_lines(Mutant("any", "any.py", search, "", "a test"), _CODE) == lines


def test_only_the_seeds_that_execute_a_changed_line_are_played() -> None:
    mutant = MUTANTS[0]
    lines = changed_lines(mutant, (ROOT / mutant.file).read_text())
    assert lines is not None
    reach = {mutant.file: {lines[0]: [7, 4], lines[-1] + 1: [9]}, "another.py": {lines[0]: [2]}}

    assert seeds_that_reach(mutant, range(20), reach) == [4, 7]


# --- verdicts ---------------------------------------------------------------------------------------------


def _verdict(name: str, *, seeds: str = "", tests: str | None = "") -> Verdict:
    return Verdict(name, "0..199", 12, seeds, tests, 3.0)


def test_of_a_recorded_mutant_the_last_verdict_counts(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    assert recorded(file) == {}
    for verdict in (_verdict("a"), _verdict("b"), _verdict("a", seeds="seed 3: late")):
        appended(file, verdict)

    assert recorded(file) == {"a": _verdict("a", seeds="seed 3: late"), "b": _verdict("b")}


def test_tests_that_were_not_run_are_told_so() -> None:
    assert "seeds noticed  tests not run" in told(_verdict("a", seeds="seed 3: late", tests=None))
    assert "12 of the scripts execute the changed lines" in told(_verdict("a"))


def test_a_survivor_without_an_explanation_and_a_missed_goal_fail_the_run() -> None:
    by_seeds = [_verdict(f"s{n}", seeds="seed 3: late", tests=None) for n in range(6)]
    by_tests = [_verdict(f"t{n}", tests="FAILED test_x") for n in range(4)]

    assert sums([*by_seeds, *by_tests], whole=True) == (
        "10 mutants; the seeds alone notice 6 (60 %, goal 60 %), with tests/recover 10 (100 %, goal 90 %)",
        True,
    )
    text, is_good = sums([*by_seeds, _verdict("survivor")], whole=False)
    assert "nothing notices survivor: NOT EXPLAINED" in text
    assert not is_good
    assert not sums(by_tests, whole=True)[1]
    assert sums(by_tests, whole=False)[1]
