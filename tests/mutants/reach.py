"""`python -m tests.mutants.reach A..B`: plays those random scripts on the code as it is, and prints as JSON
which of them execute which lines of the files of the table. Exit status 1 if a script has a violation.

A script is deterministic, so a mutant changes a run only after the run has executed the changed lines. A
script that never executes these lines cannot notice the mutant, and need not be played.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import msgspec

from chaos.simulate.command import seeds_of
from chaos.simulate.many import play_seed
from tests.mutants.model import ROOT, Mutant
from tests.mutants.table import MUTANTS

__all__ = ["Reach", "changed_lines", "seeds_that_reach"]

Reach = Mapping[str, Mapping[int, list[int]]]
"""File of the table -> line -> seeds that execute the line."""


def seeds_that_reach(mutant: Mutant, seeds: range, reach: Reach) -> list[int]:
    lines = changed_lines(mutant, (ROOT / mutant.file).read_text())
    if lines is None:
        return list(seeds)
    found = reach.get(mutant.file, {})
    return sorted({seed for line in lines for seed in found.get(line, ())})


def changed_lines(mutant: Mutant, text: str) -> range | None:
    """The lines of the statements that the mutant changes; None where they stand outside of every function,
    so that an import executes them."""
    start = text.index(mutant.search)
    first = text.count("\n", 0, start) + 1
    last = text.count("\n", 0, start + len(mutant.search) - 1) + 1
    statements = list(_statements(text))
    begin, end = _innermost(statements, first), _innermost(statements, last)
    if begin is None or end is None:
        return None
    return range(begin.lineno, (end.end_lineno or last) + 1)


def _statements(text: str) -> Iterator[ast.stmt]:
    """Those inside of functions."""
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for child in function.body:
                yield from (node for node in ast.walk(child) if isinstance(node, ast.stmt))


def _innermost(statements: list[ast.stmt], line: int) -> ast.stmt | None:
    around = [one for one in statements if one.lineno <= line <= (one.end_lineno or one.lineno)]
    return min(around, key=lambda one: (one.end_lineno or one.lineno) - one.lineno, default=None)


def main(text: str) -> int:
    reach: dict[str, dict[int, list[int]]] = {file: defaultdict(list) for file in {m.file for m in MUTANTS}}
    files = {str(ROOT / file): file for file in reach}
    executed: set[tuple[str, int]] = set()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            executed.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def call(frame: FrameType, _: str, __: Any) -> Any:
        return line if frame.f_code.co_filename in files else None

    for seed in seeds_of(text):
        executed.clear()
        sys.settrace(call)
        failure = play_seed(seed).failure
        sys.settrace(None)
        if failure:
            print(f"seed {seed}: {failure.splitlines()[0][:300]}")
            return 1
        for file, number in executed:
            reach[files[file]][number].append(seed)
    print(msgspec.json.encode(reach).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
