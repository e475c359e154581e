"""Defines a table of a catalogue: the type of its rows, the packaged rows, and the rows that a user's file
adds.

A table belongs to the module that reads its rows, such as the rule of a family of faults.
detectors/rules/catalogues.py knows all tables that a user's file may extend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from detectors.catalog.load import extra_tables, packaged_rows, rows_of
from detectors.text.strict import shown

__all__ = ["Table", "UserRows", "user_rows"]

R = TypeVar("R")


class Table(msgspec.Struct, Generic[R], frozen=True):
    name: str
    """Name in a file: `xid` for rows that begin with `[[xid]]`."""
    row: type[R]
    """A struct that forbids unknown fields; `code`, `value` or `name` identifies a row."""
    file: str
    """The file with the packaged rows: a file of detectors/catalog, or a path."""

    def packaged(self) -> list[R]:
        """Returns the packaged rows. Raises `detectors.text.strict.BadValueError` for a bad row of the
        package's own file."""
        return packaged_rows(self.file, self.name, self.row)


class UserRows(msgspec.Struct, frozen=True):
    """The good rows of a user's file."""

    by_table: Mapping[str, Sequence[Any]] = {}

    def of(self, table: Table[R]) -> tuple[R, ...]:
        return tuple(self.by_table.get(table.name, ()))


def user_rows(path: str, tables: Sequence[Table[Any]]) -> tuple[UserRows, tuple[str, ...]]:
    """Returns the rows of a user's file, and messages about the bad ones. Raises `CatalogError` for a file
    that cannot be used at all."""
    found = extra_tables(Path(path))
    rows, problems = {}, []
    for table in tables:
        rows[table.name], bad = rows_of(found, table.name, table.row, file=path)
        problems += [str(error) for error in bad]
    *others, last = (f"[[{table.name}]]" for table in tables)
    expected = f"expected {', '.join(others)}{' or ' if others else ''}{last}"
    unknown = [f"{path}: table {shown(name)}: {expected}" for name in found if name not in rows]
    return UserRows(rows), (*problems, *unknown)
