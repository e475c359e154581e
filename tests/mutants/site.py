"""Finds the place where a mutant differs from the unchanged code: the smallest statement and, for a condition
or a value, both expressions. With these a run of the unchanged code can tell whether the mutant would have
gone another way."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import msgspec

from tests.mutants.model import Mutant, applied

__all__ = ["Site", "site_of"]


class Site(msgspec.Struct, frozen=True):
    lines: range
    """Lines that are executed before the mutant can make any difference."""
    function: str
    """Name of the function of these lines. The name is empty for lines outside of every function, which an
    import executes."""
    both: tuple[CodeType, CodeType] | None = None
    """Unchanged expression and the mutant's expression, if the two statements differ in nothing else."""
    is_test: bool = False
    """Whether only the truth of the expressions' values counts."""

    def differs(self, frame: FrameType) -> bool:
        """Whether the mutant would go another way from here. True if that is not known. Decisions are pure,
        so their evaluation changes nothing, unless it uses up an iterator."""
        if frame.f_code.co_name != self.function:
            return False  # a comprehension on one of these lines
        if self.both is None or any(isinstance(value, Iterator) for value in frame.f_locals.values()):
            return True
        found = [_value(code, {**frame.f_globals, **frame.f_locals}) for code in self.both]
        if self.is_test:
            found = [value if isinstance(value, Exception) else bool(value) for value in found]
        return bool(found[0] != found[1])


def _value(code: CodeType, names: dict[str, Any]) -> object:
    """Returns the value of the expression. An error is a value that equals no other. The call is traced like
    any other: an answer that the call stores, as in `Awaiting`, prevents the run itself from making the same
    call again."""
    try:
        return sys.call_tracing(_evaluated, (code, names))
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:
        return error


def _evaluated(code: CodeType, names: dict[str, Any]) -> object:
    sys.settrace(sys.gettrace())  # without that call_tracing of Python 3.11 traces nothing
    return eval(code, names)


def site_of(mutant: Mutant, text: str) -> Site:
    old, new = ast.parse(text), ast.parse(applied(mutant, text))
    return _in_block(old.body, new.body, "", range(1, text.count("\n") + 2))


def _in_block(old: list[ast.stmt], new: list[ast.stmt], function: str, around: range) -> Site:
    """Returns the site in a block. `around` are the lines of the statement that contains the block."""
    before, after = list(map(ast.dump, old)), list(map(ast.dump, new))
    while before and after and before[0] == after[0]:
        old, new, before, after = old[1:], new[1:], before[1:], after[1:]
    while before and after and before[-1] == after[-1]:
        old, new, before, after = old[:-1], new[:-1], before[:-1], after[:-1]
    if len(old) == len(new) == 1:
        return _in_statement(old[0], new[0], function)
    if len(old) == 1 and not new and isinstance(old[0], ast.If) and not old[0].orelse:
        return Site(_lines(old[0].body), function)
    return Site(_lines(old) if old else around, function)


def _in_statement(old: ast.stmt, new: ast.stmt, function: str) -> Site:
    if type(old) is not type(new):
        return Site(_lines([old]), function)
    differing = [
        (name, before, after)
        for name, before in ast.iter_fields(old)
        if _dumped(before) != _dumped(after := getattr(new, name))
    ]
    if len(differing) != 1:
        return Site(_lines([old]), function)
    ((name, before, after),) = differing
    if isinstance(before, list) and isinstance(before[0], ast.stmt):
        inner = old.name if isinstance(old, ast.FunctionDef | ast.AsyncFunctionDef) else function
        return _in_block(before, after, inner, _lines([old]))
    is_test = isinstance(old, ast.If) and name == "test"
    if not is_test and not (isinstance(old, ast.Return | ast.Assign) and name == "value"):
        return Site(_lines([old]), function)
    lines = range(old.lineno, before.end_lineno + 1)
    return Site(lines, function, (_compiled(before), _compiled(after)), is_test)


def _dumped(field: Any) -> list[object]:
    """Returns the value of a node's field, a list or not, in a form that can be compared."""
    parts = field if isinstance(field, list) else [field]
    return [ast.dump(part) if isinstance(part, ast.AST) else part for part in parts]


def _compiled(expression: ast.expr) -> CodeType:
    code = compile(ast.Expression(expression), "<mutant>", "eval")
    assert isinstance(code, CodeType)
    return code


def _lines(statements: list[ast.stmt]) -> range:
    last = statements[-1]
    return range(statements[0].lineno, (last.end_lineno or last.lineno) + 1)
