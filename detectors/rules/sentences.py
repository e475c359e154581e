"""Defines rules whose lines are sentences: text of a driver with addresses and numbers in some places.

Each row of the table of such a rule shows complete lines, with placeholders:

    {pci}     the full PCI address of any part of this node: `dddd:bb:dd` or `dddd:bb:dd.f`
    {number}  digits                       {hex}   hexadecimal digits, with or without 0x
    {device}  a name of the kernel's: sda1 {host}  a name or address of a host
    {word}    anything without a space     {rest}  anything, to the end of the line

A sentence begins where the line begins. If a row has a severity above `info`, or `repeated`, each of its
lines needs at least 16 fixed characters before its first {word} or {rest}, because the kernel begins some
records with a name of at most 15 characters that a tenant chooses (rules/base.py). {pci} counts as 10 fixed
characters, every other placeholder as 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from detectors.catalog.tables import Table
from detectors.rules.base import ADDRESS, Rule
from detectors.rules.facts import Draft, HostFacts, KernelLine, Repeated
from detectors.wire.contract import Family, Fault, Finding, Origin, Remedy, Severity, Subject, SubjectKind
from detectors.wire.fitting import limit

__all__ = ["SentenceRow", "Sentences", "sentence_rule"]

_PLACEHOLDERS = {
    "pci": ADDRESS,
    "number": r"[0-9]{1,20}",
    "hex": r"(?:0x)?[0-9a-fA-F]{1,32}",
    "device": r"[a-z][a-z0-9_-]{0,31}",
    "host": r"[0-9A-Za-z.:_-]{1,255}",
    "word": r"\S{1,128}",
    "rest": r".*",
}
_OPEN = ("word", "rest")
_ON_THE_BUS = (SubjectKind.DEVICE, SubjectKind.SWITCH, SubjectKind.ADAPTER)
_ADDRESS_CHARS = len("0000:00:00")
_NAME_BYTES = 15
_NAMES = re.compile(r"\{([a-z]+)\}")
_CODE_MAX = limit(Finding, "code")


class SentenceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A code, its meaning, and the lines of the kernel log that have this code. Each rule derives its own
    type, with `heads`: the beginnings of its driver's lines."""

    heads: ClassVar[tuple[str, ...]] = ()
    code: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=_CODE_MAX)]
    meaning: str
    lines: Annotated[tuple[str, ...], Meta(min_length=1)]
    examples: tuple[str, ...] = ()
    """Real lines, which a test reads."""
    subject: SubjectKind = SubjectKind.NODE
    """The kind of thing at the address {pci}. With `node`, {pci} is the address of a part of the node."""
    fault: Fault
    origin: Origin = Origin.KERNEL
    severity: Severity
    remedy: Remedy = Remedy.NONE
    repeated: Repeated | None = None
    """The severity if the code comes several times within a time (see `Repeated`)."""
    source: str

    def __post_init__(self) -> None:
        """Raises `ValueError` for a sentence that cannot be used, and for the subject `pod`, because no
        placeholder gives the uid of a pod."""
        if self.subject is SubjectKind.POD:
            others = ", ".join(kind for kind in SubjectKind if kind is not SubjectKind.POD)
            raise ValueError(f"expected one of {others}, not {str(self.subject)!r} - at `$.subject`")
        for line in self.lines:
            if problem := self._problem(line):
                raise ValueError(f"{problem}, not {line!r} - at `$.lines`")

    def _problem(self, line: str) -> str:
        """Returns what was expected instead; empty if the sentence can be used."""
        names = _NAMES.findall(line)
        if not line.startswith(self.heads):
            return f"expected lines that begin with {' or '.join(map(repr, self.heads))}"
        if not set(names) <= set(_PLACEHOLDERS):
            return f"expected no placeholder but {', '.join(f'{{{name}}}' for name in _PLACEHOLDERS)}"
        if names.count("pci") > 1 or ("pci" not in names and self.subject in _ON_THE_BUS):
            return f"expected {{pci}} once for the subject {self.subject}"
        if "rest" in names and not line.endswith("{rest}"):
            return "expected {rest} at the end only"
        is_more = self.severity is not Severity.INFO or self.repeated is not None
        if is_more and _fixed_chars(line) <= _NAME_BYTES:
            repeated = f", and {self.repeated.severity} when repeated" if self.repeated is not None else ""
            return (
                f"expected more than {_NAME_BYTES} fixed characters before the first {{word}} or {{rest}} "
                f"(severity is {self.severity}{repeated}; rows that are always info have no such minimum)"
            )
        return ""


class Sentences:
    """The rows of one table, compiled: from a line to the draft of its row."""

    def __init__(self, rows: Iterable[SentenceRow]) -> None:
        by_code = {row.code: row for row in rows}  # a later row wins
        self._lines = [(_head(line), _compiled(line), row) for row in by_code.values() for line in row.lines]

    def draft(self, line: KernelLine, host: HostFacts) -> Draft | None:
        for head, sentence, row in self._lines:
            if not line.text.startswith(head):
                continue
            found = sentence.fullmatch(line.text)
            subject = _subject(row, found, host) if found is not None else None
            if subject is not None:
                return Draft(
                    code=row.code,
                    fault=row.fault,
                    origin=row.origin,
                    severity=row.severity,
                    subject=subject,
                    remedy=row.remedy,
                    repeated=row.repeated,
                )
        return None


def _subject(row: SentenceRow, found: re.Match[str], host: HostFacts) -> Subject | None:
    if "pci" in found.re.groupindex:
        return host.subject(found["pci"], kind=row.subject)
    return Subject(kind=row.subject)


def _fixed_chars(line: str) -> int:
    fixed = 0
    for text, name in _parts(line):
        fixed += len(text)
        if name in _OPEN:
            break
        fixed += _ADDRESS_CHARS if name == "pci" else 1 if name else 0
    return fixed


def _head(line: str) -> str:
    """Returns the literal beginning."""
    return next(_parts(line))[0]


def _parts(line: str) -> Iterator[tuple[str, str]]:
    """Yields the literals, each with the name of the placeholder that follows; the last has none."""
    pieces = _NAMES.split(line)
    for number in range(0, len(pieces), 2):
        yield pieces[number], pieces[number + 1] if number + 1 < len(pieces) else ""


def _compiled(line: str) -> re.Pattern[str]:
    text = "".join(
        re.escape(literal) + (_PLACEHOLDERS[name] if name else "") for literal, name in _parts(line)
    )
    return re.compile(rf"{text}\.?\s*", re.DOTALL)


def sentence_rule(family: Family, row: type[SentenceRow], *, file: str = "") -> Rule[Sentences]:
    """Returns the rule of a driver whose lines are sentences.

    `file` has the packaged rows: the name of a file in detectors/catalog, or a path. The rule and its table
    have the name of this file without `.toml`. Without `file` the rule, the table and the file have the name
    of the family, with underscores. A second driver of the same family must name its own file.
    """
    name = Path(file).stem or family.replace("-", "_")
    table = Table(name, row, file or f"{name}.toml")
    return Rule(
        name,
        family=family,
        heads=row.heads,
        match=lambda line, host, sentences: sentences.draft(line, host),
        catalog=lambda user: Sentences((*table.packaged(), *user.of(table))),
        tables=(table,),
    )
