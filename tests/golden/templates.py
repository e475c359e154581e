"""Extracts the literal sentences of the code that people may read, from its syntax trees, with `{}` in place
of a value.

The result does not contain module, order or count, so moving a sentence changes nothing. An expression in a
sentence appears only as its format, so renaming a variable changes nothing either.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["ROOT", "in_package", "parts_of", "sentences_of", "templates"]

ROOT = Path(__file__).parents[2]
_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_MIN_LETTERS = 2


def in_package(name: str) -> dict[str, list[str]]:
    """Returns the sentences of each file of that package, by the file's path."""
    found = {}
    for path in sorted((ROOT / name).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found[str(path.relative_to(ROOT))] = sorted(set(sentences_of(text)))
    return found


def templates(packages: Iterable[str]) -> list[str]:
    """Returns every sentence of these packages once, sorted."""
    every = {text for name in packages for texts in in_package(name).values() for text in texts}
    return sorted(every)


def sentences_of(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    left_out = set(_left_out(tree))
    for node in _strings(tree):
        if id(node) not in left_out and _is_told(text := _template(node)):
            yield text


def parts_of(template: str) -> list[str]:
    """Returns the literal parts between the values, with which the template can be found in a text."""
    return [
        part for part in re.split(r"\{[^{}]*\}", template.replace("{{", "\0").replace("}}", "\1")) if part
    ]


def _strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yields each whole string: not the constants within an f-string, but the strings in its expressions."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr):
            yield child
            for value in child.values:
                if isinstance(value, ast.FormattedValue):
                    yield from _strings(ast.Expression(value.value))
        elif isinstance(child, ast.Constant):
            if isinstance(child.value, str):
                yield child
        else:
            yield from _strings(child)


def _template(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return _escaped(str(node.value))
    return "".join(map(_piece, node.values))


def _piece(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return _escaped(str(value.value))
    assert isinstance(value, ast.FormattedValue)
    conversion = f"!{chr(value.conversion)}" if value.conversion != -1 else ""
    spec = value.format_spec
    form = (
        ":" + "".join(map(_piece, spec.values)).replace("{}", "*") if isinstance(spec, ast.JoinedStr) else ""
    )
    return f"{{{conversion}{form}}}"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _is_told(template: str) -> bool:
    """Whether the template is a sentence or a part of one: words with a space between, or words around a
    value."""
    words = "".join(parts_of(template))
    return len(re.findall("[A-Za-z]", words)) >= _MIN_LETTERS and (" " in template.strip() or "{" in template)


def _left_out(tree: ast.AST) -> Iterator[int]:
    """Yields the ids of the strings that nobody reads: docstrings, log messages, patterns, messages of
    assertions, and annotations of types."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as text):
                yield id(text)
            case ast.Call(func=ast.Attribute(attr=attr, value=ast.Name(id=owner))) if (
                attr in _LOG_METHODS and owner.lstrip("_") in ("log", "logger")
            ):
                yield from map(id, _strings(node))
            case ast.Call(
                func=ast.Attribute(attr="compile" | "sub" | "match" | "search" | "fullmatch" | "split")
            ):
                if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("re", "_re"):
                    yield from map(id, _strings(node))
            case ast.Assert(msg=ast.expr() as said):
                yield from map(id, _strings(ast.Expression(said)))
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
                yield from map(id, _of_type(annotation))
            case _:
                pass


def _of_type(annotation: ast.expr) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yields the strings of a type annotation. Texts for typer within `Annotated` are printed for people, so
    they are not left out."""
    return _strings(ast.Expression(annotation)) if "Annotated" not in ast.dump(annotation) else iter(())
