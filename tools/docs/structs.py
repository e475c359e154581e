"""Reads a module's structs with the docstring of each field, for the generated pages."""

from __future__ import annotations

import ast

__all__ = ["field_name", "fields_of", "one_line"]


def fields_of(node: ast.ClassDef) -> list[tuple[ast.AnnAssign, str]]:
    """Returns the fields of a struct, each with the docstring that follows it."""
    found = []
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            found.append((statement, _text(after)))
    return found


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return ""


def field_name(field: ast.AnnAssign) -> str:
    assert isinstance(field.target, ast.Name)
    return field.target.id


def one_line(text: str) -> str:
    """Returns the text in the form of a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")
