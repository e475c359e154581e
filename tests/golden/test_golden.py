"""Compares what users see with the golden files: see the docstring of this package."""

from __future__ import annotations

import difflib

import pytest

from tests.golden.files import kept, path_of, rendered
from tests.golden.templates import ROOT, sentences_of

_LINES_MAX = 60


def test_what_users_see_is_unchanged() -> None:
    old, new = kept(), rendered()

    assert old.keys() == new.keys()
    if changed := [name for name in new if new[name] != old[name]]:
        told = [_difference(name, old[name], new[name]) for name in changed]
        pytest.fail("\n".join([*told, _ADVICE]), pytrace=False)


_ADVICE = """
What users see has changed. If nothing but the house was to change, mend that (rooms.py has the imports,
SCENES.txt the names of tests). If the words were to change: make golden, and read the diff."""


def _difference(name: str, old: str, new: str) -> str:
    place = path_of(name).relative_to(ROOT)
    lines = list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), str(place), "now", n=1, lineterm="")
    )
    more = [f"... and {len(lines) - _LINES_MAX} lines more"] if len(lines) > _LINES_MAX else []
    return "\n".join([*lines[:_LINES_MAX], *more])


def test_where_a_sentence_stands_and_what_its_values_are_called_is_no_matter() -> None:
    here = 'def f(node):\n    """Words."""\n    return Line(f"{node.name} is {age:.1f} s old" + " or so")\n'
    there = 'TEXT = " or so"\nclass A:\n    def g(self):\n        yield f"{n!s} is {self.a:.1f} s old"\n'

    assert set(sentences_of(here)) == {"{} is {:.1f} s old", " or so"}
    assert set(sentences_of(there)) == {"{!s} is {:.1f} s old", " or so"}


def test_what_nobody_reads_is_no_sentence() -> None:
    text = 'log.info("a word", why=f"it {x}")\nassert x, "never so"\nre.compile("a b")\nkey = "a-b"\n'

    assert set(sentences_of(text)) == set()
