"""A table of a catalogue: the type of its rows, the packaged ones, and those that a user's file adds.

A table belongs to whoever reads its rows, as the rule of a family of faults does. All tables that a user's
file may extend are known in detectors/rules/catalogues.py.
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
    """As it stands in a file: `xid` for rows that begin with `[[xid]]`."""
    row: type[R]
    """A struct that forbids unknown fields; `code`, `value` or `name` tells one row from the others."""
    file: str
    """The packaged rows: a file of detectors/catalog, or a path."""

    def packaged(self) -> list[R]:
        """Raises `detectors.text.strict.BadValueError` for a bad row of the package's own file."""
        return packaged_rows(self.file, self.name, self.row)


class UserRows(msgspec.Struct, frozen=True):
    """The good rows of a user's file."""

    by_table: Mapping[str, Sequence[Any]] = {}

    def of(self, table: Table[R]) -> tuple[R, ...]:
        return tuple(self.by_table.get(table.name, ()))


def user_rows(path: str, tables: Sequence[Table[Any]]) -> tuple[UserRows, tuple[str, ...]]:
    """The rows of a user's file, and what is wrong with the others. Raises `CatalogError` for a file that
    cannot be used at all."""
    found = extra_tables(Path(path))
    rows, problems = {}, []
    for table in tables:
        rows[table.name], bad = rows_of(found, table.name, table.row, file=path)
        problems += [str(error) for error in bad]
    *others, last = (f"[[{table.name}]]" for table in tables)
    expected = f"expected {', '.join(others)}{' or ' if others else ''}{last}"
    unknown = [f"{path}: table {shown(name)}: {expected}" for name in found if name not in rows]
    return UserRows(rows), (*problems, *unknown)
