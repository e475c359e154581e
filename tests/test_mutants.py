"""Tests that the table of mutants fits the present code, and that its runner plays no script in vain."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.model import ROOT, Mutant, NotApplicableError, applied
from tests.mutants.site import Site, site_of
from tests.mutants.survivors import SURVIVORS
from tests.mutants.table import MUTANTS
from tests.mutants.tracing import differing
from tests.mutants.verdicts import Verdict, appended, recorded, sums, told


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_changes_the_code_and_leaves_it_readable(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()

    changed = applied(mutant, text)

    assert changed != text
    compile(changed, mutant.file, "exec")


def test_a_mutant_whose_text_is_gone_is_told() -> None:
    gone = Mutant("gone", "recover/triage/guard.py", "no such text", "", "a test")
    with pytest.raises(NotApplicableError, match=r"mutant gone: its search text stands 0 times"):
        applied(gone, "another text")


def test_names_are_unique_and_those_that_are_explained_exist() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
    assert set(SURVIVORS) <= set(names)


# --- choice of the scripts --------------------------------------------------------------------------------

_CODE = """LIMIT = 3

def share(total, percent):
    look()
    if total > LIMIT:
        found = min(
            total, percent)
        return found
    if percent < 0:
        return 0
    return total
"""


def _site(search: str, replacement: str) -> Site:
    return site_of(Mutant("any", "any.py", search, replacement, "a test"), _CODE)


@pytest.mark.parametrize(
    ("search", "replacement", "lines", "function"),
    [
        ("total, percent)\n", "total)\n", range(6, 8), "share"),
        ("total > LIMIT", "total >= LIMIT", range(5, 6), "share"),
        ("    if percent < 0:\n        return 0\n", "", range(10, 11), "share"),
        ("return total", "pass", range(11, 12), "share"),
        ("    look()\n    if total", "    if not total", range(4, 9), "share"),
        ("LIMIT = 3", "LIMIT = 4", range(1, 2), ""),
        ("percent):", "percent=2):", range(3, 12), ""),
    ],
)
def test_the_site_of_a_mutant_is_what_runs_before_it_can_decide_otherwise(
    search: str, replacement: str, lines: range, function: str
) -> None:
    site = _site(search, replacement)

    assert (site.lines, site.function) == (lines, function)


@pytest.mark.parametrize(
    ("search", "replacement", "total", "differs"),
    [
        ("total > LIMIT", "total >= LIMIT", 2, False),
        ("total > LIMIT", "total >= LIMIT", 3, True),
        ("total > LIMIT", "total > LIMIT and 'yes'", 4, False),
        ("return total", "return abs(total)", 1, False),
        ("return total", "return abs(total)", -1, True),
        ("return total", "return nobody", 1, True),
        ("return total", "pass", 1, True),
    ],
)
def test_a_script_counts_where_the_mutant_would_have_decided_otherwise(
    search: str, replacement: str, total: int, differs: bool
) -> None:
    site, found = _site(search, replacement), []
    names: dict[str, Any] = {"look": lambda: found.append(site.differs(sys._getframe(1)))}
    exec(_CODE, names)

    names["share"](total, 9)

    assert found == [differs]


def test_an_iterator_is_not_used_up_by_the_look_at_a_mutant() -> None:
    text = "def found(rows):\n    look()\n    return list(rows)\n"
    site, differs = site_of(Mutant("any", "any.py", "list(", "tuple(", "a test"), text), []
    names: dict[str, Any] = {"look": lambda: differs.append(site.differs(sys._getframe(1)))}
    exec(text, names)

    assert names["found"](iter([1, 2])) == [1, 2]
    assert differs == [True]


_REMEMBERED = """known = {}

def decided(number):
    return judged(number) or number > 9

def judged(number):
    if number not in known:
        known[number] = asked(number)
    return known[number]

def asked(number):
    return number > 3
"""


def test_what_the_look_at_one_mutant_calls_is_looked_at_for_the_others() -> None:
    """The code without a mutant remembers the answer, so it does not call the function again."""
    file = "any.py"
    sites = {
        "outer": (file, site_of(Mutant("outer", file, "number > 9", "number > 0", "a test"), _REMEMBERED)),
        "inner": (file, site_of(Mutant("inner", file, "number > 3", "number > 2", "a test"), _REMEMBERED)),
    }
    names: dict[str, Any] = {}
    exec(compile(_REMEMBERED, str(ROOT / file), "exec"), names)

    with differing(sites) as found:
        names["decided"](3)

    assert found == {"outer", "inner"}


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
    assert "in 12 scripts it decides otherwise" in told(_verdict("a"))


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
