"""The first error of some lines, as the fold of a pod finds it, for the tests of first errors."""

from __future__ import annotations

from collections.abc import Iterable

from detectors.folds.pods import PodFold
from detectors.rules import first_error
from tests.detectors.folds.folding import ERRORS, at

ROWS = first_error.compiled(ERRORS)


def first(lines: Iterable[str], every_s: float = 0.01) -> first_error.Errors:
    errors = first_error.Errors()
    for n, line in enumerate(lines):
        errors = first_error.observe(errors, line, at(n * every_s), ROWS)
    return errors


def code(lines: Iterable[str], every_s: float = 0.01) -> str:
    error = first(lines, every_s).error
    return error.code if error is not None else ""


TRACEBACK = "Traceback (most recent call last):"


def first_error_code(fold: PodFold) -> str:
    published = fold.published()
    assert published is not None
    assert published.first_error is not None
    return published.first_error.code


HANDLED = ["Traceback (most recent call last):", "ValueError: the metrics' server answered nonsense"]


OWN = [TRACEBACK, '  File "train.py", line 3, in <module>', "ValueError: bad shape"]
BAR = " 12%|#2   | 12/100 [00:10<01:15,  1.17it/s]"
