"""Tests detectors/wire/fitting.py: every object that its constructors make is valid by the CRDs, and no
other module cuts text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

import detectors
import recover
from detectors.wire.base import EVIDENCE_BYTES_MAX
from detectors.wire.contract import NodeHealthSpec, NodeHealthStatus
from detectors.wire.fitting import WHOLE, fit, fitted, limit, refitted
from detectors.wire.training import LogError
from recover.api import (
    ActionRecord,
    IncidentSpec,
    IncidentStatus,
    Outcome,
    Phase,
    PhaseTime,
    RecoverySpec,
    RecoveryStatus,
    Recreation,
)
from recover.api.recipe import RecipeStatus
from recover.api.structural import structural

NOW = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
ROOTS = (
    NodeHealthSpec,
    NodeHealthStatus,
    IncidentSpec,
    IncidentStatus,
    RecoverySpec,
    RecoveryStatus,
    RecipeStatus,
)
"""Structs that Rekindle writes. People write the specs of Recipes."""
NAMES = {
    "Answered",
    "DevicePod",
    "FoldedFindings",
    "GangRef",
    "LogPosition",
    "Requirement",
    "Signature",
    "Subject",
    "Toleration",
}
"""Structs of names, codes and ids, which are limited at their source. A name that is cut would be the name of
another object."""


def structs() -> dict[str, type[msgspec.Struct]]:
    """Returns the roots and every struct that they contain, by name."""
    found: dict[str, type[msgspec.Struct]] = {}
    left: list[type[msgspec.Struct]] = list(ROOTS)
    while left:
        struct = left.pop()
        if struct.__name__ not in found:
            found[struct.__name__] = struct
            left += (inner for field in fields_of(struct) for inner in held(field.type))
    return found


def fields_of(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


def held(kind: inspect.Type) -> Iterator[type[msgspec.Struct]]:
    match kind:
        case inspect.StructType(cls=cls):
            yield cls
        case inspect.Metadata(type=inner):
            yield from held(inner)
        case inspect.UnionType(types=members):
            for member in members:
                yield from held(member)
        case inspect.ListType(item_type=item):
            yield from held(item)


STRUCTS = structs()


def bounded_fields(struct: type[msgspec.Struct]) -> set[str]:
    """Returns the names of the fields that have a limit, or whose items have one."""
    return {field.name for field in fields_of(struct) if is_bounded(field.type)}


def is_bounded(kind: inspect.Type) -> bool:
    match kind:
        case inspect.Metadata(type=inner):
            return is_bounded(inner)
        case inspect.UnionType(types=members):
            return any(map(is_bounded, members))
        case inspect.ListType(item_type=item, max_length=most):
            return most is not None or is_bounded(item)
        case inspect.StrType(max_length=most):
            return most is not None
    return False


# --- objects that the constructors make -------------------------------------------------------------------


def filled(kind: inspect.Type, text: str, *, is_whole: bool = False) -> Any:
    """Returns a value of this type, with the text in every place that takes a text, and with one item more
    than a list may have."""
    match kind:
        case inspect.Metadata(type=inner, extra=extra):
            return filled(inner, text, is_whole=extra == WHOLE)
        case inspect.UnionType(types=members):
            return filled(next(m for m in members if not isinstance(m, inspect.NoneType)), text)
        case inspect.StructType(cls=cls):
            return made(cls, text)
        case inspect.StrType(pattern=str()):
            return "True" if "True" in str(kind.pattern) else "In"
        case inspect.StrType(max_length=most):
            return text[:most] if is_whole else text
        case inspect.ListType(item_type=item, max_length=most):
            assert most is not None, "a list without a limit"
            return [filled(item, text)] * (most + 1)
        case inspect.DictType():
            return {}
        case inspect.EnumType(cls=cls):
            return next(iter(cls))
        case inspect.DateTimeType():
            return NOW
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
    raise TypeError(kind)


def made(struct: type[msgspec.Struct], text: str) -> msgspec.Struct:
    return fitted(struct, **{field.name: filled(field.type, text) for field in fields_of(struct)})


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_texts_and_lists_of_any_length_are_valid_by_the_schema_of_the_crd(name: str) -> None:
    struct = STRUCTS[name]
    jsonschema.validate(msgspec.to_builtins(made(struct, "\N{FIRE}" * 2100)), structural(struct))
    for chars in (0, 1, 64, 242, 253, 1025, 9000):  # msgspec checks the same limits, faster
        msgspec.convert(msgspec.to_builtins(made(struct, "ü" * chars)), struct)


@given(st.text(max_size=700))
def test_a_text_that_fits_stays_and_of_a_longer_one_the_head_does(text: str) -> None:
    record = ActionRecord(at=NOW, action="a", target="t", outcome=Outcome.DONE, message=text)

    assert fitted(ActionRecord, at=NOW, action="a", target="t", outcome=Outcome.DONE, message=text) == (
        record if len(text) <= 512 else msgspec.structs.replace(record, message=text[:512])
    )


@given(st.text(max_size=300))
def test_a_limit_in_bytes_counts_bytes_of_utf_8(text: str) -> None:
    found = fitted(LogError, code="log-x", at=NOW, text=text).text

    assert len(found.encode()) <= EVIDENCE_BYTES_MAX
    assert text.encode("utf-8", "replace").startswith(found.encode())


def test_of_a_history_the_newest_stay() -> None:
    phases = [PhaseTime(phase=Phase.PLANNED, attempt=number, at=NOW) for number in range(1, 100)]

    assert refitted(RecoveryStatus(), phases=phases).phases == phases[-64:]
    assert limit(RecoveryStatus, "phases") == 64


def test_a_definition_is_never_cut_since_half_of_a_job_is_none() -> None:
    definition = "x" * (limit(Recreation, "definition") + 1)

    assert fitted(Recreation, attempt=1, why="w" * 600, definition=definition) == Recreation(
        attempt=1, why="w" * 512, definition=definition
    )


def test_a_value_that_fits_is_the_same_object() -> None:
    nodes, status = ["n1"], RecoveryStatus()

    assert refitted(status, nodes=nodes).nodes is nodes
    assert fit(RecoveryStatus, "message", "x" * 2000) == "x" * 1024


# --- no other module cuts ---------------------------------------------------------------------------------

MAKERS = {name: bounded_fields(struct) for name, struct in STRUCTS.items() if name not in NAMES}
BOUNDED = set().union(*MAKERS.values())
WORDS = {"actions", "causes", "conditions", "message", "phases", "summary", "text", "why"}
APART = (
    "detectors/folds/status_size.py",  # makes a status smaller than its fields allow
    "recover/checkpoints/",  # writes the scan's own message to the controller
    "recover/cli/",  # writes no object
    "recover/stories/",  # writes no object
)
OTHERS = {"action.foreign", "burst.last", "diagnosis", "found"}
"""First arguments of `structs.replace`, as text, that are not structs of the API."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yields name and syntax tree of each module that knows these structs."""
    for package in (detectors, recover):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            name = str(path.relative_to(root.parent))
            text = path.read_text(encoding="utf-8")
            if _knows(text) and not name.startswith(APART):
                yield name, ast.parse(text)


def _knows(text: str) -> bool:
    return any(module in text for module in ("recover.api", "wire.contract", "wire.training"))


def filled_by_hand(tree: ast.Module) -> Iterator[tuple[int, str]]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    known = {alias.name for node in imports for alias in node.names} & MAKERS.keys()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        what, about = ast.unparse(call.func), {keyword.arg or "" for keyword in call.keywords}
        if what in known and about & MAKERS[what]:
            yield call.lineno, f"write fitted({what}, ...)"
        elif what.endswith("structs.replace") and about & WORDS and ast.unparse(call.args[0]) not in OTHERS:
            yield call.lineno, "write refitted(...)"
        for keyword in call.keywords:
            value = keyword.value
            is_slice = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice)
            is_cut = isinstance(value, ast.Call) and ast.unparse(value.func) == "cut"
            if keyword.arg in BOUNDED and (is_slice or is_cut):
                yield value.lineno, f"the constructor cuts {keyword.arg}"


def test_no_module_fills_such_a_struct_or_cuts_its_values_by_hand() -> None:
    said = (f"{name}:{line}: {what}" for name, tree in sources() for line, what in filled_by_hand(tree))

    assert list(said) == []


def test_the_search_sees_what_it_is_for() -> None:
    written = """
from recover.api import Cause
Cause(incident=name, summary=words)
msgspec.structs.replace(status, message=words)
refitted(status, message=words[:1024])
fitted(Cause, incident=name, summary=cut(words, 512))
fitted(Cause, incident=name, summary=words)
"""
    assert [line for line, _ in filled_by_hand(ast.parse(written))] == [3, 4, 5, 6]
