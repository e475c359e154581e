"""The table of mutants fits the code as it is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mutants.model import ROOT, Mutant, NotApplicableError, applied
from tests.mutants.survivors import SURVIVORS
from tests.mutants.table import MUTANTS


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
