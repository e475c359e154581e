"""Reads the rows of a catalogue file, strictly. A bad row of the package raises an error; a bad row of a user
is skipped."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from detectors.text.strict import BadValueError, convert, shown

__all__ = ["CatalogError", "extra_tables", "packaged_rows", "rows_of"]

T = TypeVar("T")

_KEYS = ("code", "value", "name")
"""Fields that identify a row, in one table or another."""


class CatalogError(Exception):
    """A catalogue file that cannot be used at all."""


def packaged_rows(name: str, table: str, row: type[T]) -> list[T]:
    """Returns all rows of one table. `name` is that of a file of this package, or a path. Raises
    `BadValueError` for the first bad row."""
    rows, bad = rows_of(_packaged_tables(name), table, row, file=name)
    if bad:
        raise bad[0]
    return rows


@cache
def _packaged_tables(name: str) -> dict[str, Any]:
    """Parses a file once for each process: a simulation starts hundreds of agents."""
    return tomllib.loads(resources.files("detectors.catalog").joinpath(name).read_text(encoding="utf-8"))


def extra_tables(path: Path) -> dict[str, Any]:
    """Returns the tables of the user's file. Raises `CatalogError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # a number may be too long, or a list too deep
        raise CatalogError(f"{path}: not valid TOML: {error}") from error


def rows_of(
    tables: dict[str, Any], table: str, row: type[T], *, file: str
) -> tuple[list[T], list[BadValueError]]:
    """Returns the good rows, and an error for each bad row. A code or name that occurs twice is a bad row."""
    listed = tables.get(table, [])
    if not isinstance(listed, list):
        error = BadValueError(
            file=file, where="", field=table, value=shown(listed), expected=f"expected [[{table}]] rows"
        )
        return [], [error]
    good: list[T] = []
    bad: list[BadValueError] = []
    seen: set[Any] = set()
    for number, data in enumerate(listed, start=1):
        key = next((name for name in _KEYS if isinstance(data, dict) and name in data), _KEYS[0])
        code = data.get(key) if isinstance(data, dict) else None
        where = f"[[{table}]] row {number}" + (f" ({key} {shown(code)})" if code is not None else "")
        try:
            item = convert(data, row, file=file, where=where)
        except BadValueError as error:
            bad.append(error)
            continue
        if code in seen:
            expected = f"each {key} has one row"
            bad.append(BadValueError(file=file, where=where, field=key, value=shown(code), expected=expected))
            continue
        seen.add(code)
        good.append(item)
    return good, bad
