"""Defines the rows of signatures.toml: the lines by which the built-in recipes recognise their issue, as
templates.

The agent's image has no recipes, so tools/docs/signatures.py writes that file from them; `make docs` does it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.load import packaged_rows
from detectors.text.log_template import BadTemplateError, Kind, parse
from detectors.text.strict import BadValueError

__all__ = ["LogMatch", "SignatureRow", "packaged_signatures"]

_FILE = "signatures.toml"
_Template = Annotated[str, Meta(min_length=1, max_length=300)]


class LogMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    log: _Template
    at_least: tuple[tuple[str, str], ...] = ()
    """Pairs of placeholders that are sizes: the line shows the issue only if each first one is at least as
    large as its second."""


class SignatureRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The templates of one recipe."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*$", max_length=63)]
    match: tuple[LogMatch, ...] = ()
    """The lines that the recipe's match names. Any one may show the issue."""
    verify: tuple[_Template, ...] = ()
    """Lines that show that the recipe's change helped."""
    source: str


def packaged_signatures() -> tuple[SignatureRow, ...]:
    """Returns the rows of the packaged file. Raises `BadValueError` for a bad row of the package."""
    rows = tuple(packaged_rows(_FILE, "signature", SignatureRow))
    for row in rows:
        for match in row.match:
            _check(row, match)
        for written in row.verify:
            _check(row, LogMatch(log=written))
    return rows


def _check(row: SignatureRow, match: LogMatch) -> None:
    where = f"[[signature]] row {row.name}"
    try:
        kinds = parse(match.log).kinds
    except BadTemplateError as error:
        raise BadValueError(
            file=_FILE, where=where, field="log", value=repr(match.log), expected=str(error)
        ) from error
    for name in (name for pair in match.at_least for name in pair):
        if kinds.get(name) is not Kind.SIZE:
            raise BadValueError(
                file=_FILE, where=where, field="at_least", value=repr(name), expected="a size of its log"
            )
