"""Parses the path of the marker of a user's own format: `step_{step}/DONE`, or `DONE` in the usual
directories. Pure.

The path is a literal template, never a regular expression: the text is a tenant's.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["GENERIC", "MARKER_EXPECTED", "Template", "TemplateError", "parse_marker"]

GENERIC = "generic"
"""Name of the format."""

MARKER_CHARS_MAX = 256
STEP_DIGITS_MAX = 15
MARKER_EXPECTED = (
    "a path relative to the folder of all checkpoints, such as step_{step}/DONE, or a path relative to the "
    "directory of each checkpoint, such as DONE"
)


_PLACEHOLDER = re.compile(r"\{\w*\}")


class TemplateError(ValueError):
    """The template cannot be used. The message says what is wrong; the caller adds the place and what was
    expected."""


class Template(msgspec.Struct, frozen=True):
    """A parsed template. `entry` is the name of a checkpoint's directory with {step} in it, and empty for the
    usual names. `folders` and `file` lead from there to the marker, without {step}."""

    entry: str
    folders: tuple[str, ...]
    file: str

    def step_of(self, name: str) -> int | None:
        """Returns the step in the name of a directory; None if the name does not fit."""
        head, _, tail = self.entry.partition("{step}")
        digits = name[len(head) : len(name) - len(tail)]
        fits = name.startswith(head) and name.endswith(tail) and len(head) + len(tail) < len(name)
        if not fits or not digits.isascii() or not digits.isdecimal() or len(digits) > STEP_DIGITS_MAX:
            return None
        return int(digits)


def parse_marker(text: str) -> Template:
    """Parses a template. Raises TemplateError."""
    if not text:
        raise TemplateError("it is empty")
    if len(text) > MARKER_CHARS_MAX or not text.isprintable() or ";" in text:
        raise TemplateError(f"it is longer than {MARKER_CHARS_MAX} characters or not printable")
    parts = text.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise TemplateError("it is not a plain relative path")
    rest = text.replace("{step}", " ")
    unknown = _PLACEHOLDER.search(rest)
    if unknown is not None:
        raise TemplateError(f"unknown placeholder {unknown[0]}; the only one is {{step}}")
    if "{" in rest or "}" in rest:
        raise TemplateError("a brace does not belong to {step}")
    if text.count("{step}") > 1 or "{step}" in "/".join(parts[1:]):
        raise TemplateError("{step} may stand once, in the name of the checkpoint's directory")
    entry = parts.pop(0) if "{step}" in parts[0] else ""
    if not parts:
        raise TemplateError("it names a directory, and the name of the marker's file must follow it")
    return Template(entry=entry, folders=tuple(parts[:-1]), file=parts[-1])
