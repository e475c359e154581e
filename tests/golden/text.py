"""Removes from a line everything that differs from run to run, or has no meaning for a reader."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from tests.golden import rooms

__all__ = ["form_of", "plain", "printed_plainly", "without_version"]

_ENVIRONMENT = {"COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb"}
_VERSION = re.compile(rf"(?<![\w.]){re.escape(rooms.VERSION)}(?![\w.])")

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PLACE = re.compile(rf"{re.escape(tempfile.gettempdir())}/[\w./+-]*?(?=/[\w.+-]*(?:[^\w./+-]|$)|[^\w./+-]|$)")
_FILE = re.compile(rf"{re.escape(str(Path(__file__).parents[2]))}/(?:[\w.-]+/)*")
"""Pattern of the folder of a file of this repository. The file's name is kept."""
_PORT = re.compile(r"(127\.0\.0\.1|localhost):\d+")
_USER = re.compile(r"\buser \d+\b")
_NAMED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b|\w*\d\w*(\.\d+)?")

_INSTEAD = (
    (_UID, "<uid>"),
    (_FILE, "<here>/"),
    (_PLACE, "<tmp>"),
    (_PORT, r"\1:<port>"),
    (_USER, "user <id>"),
)


def plain(line: str) -> str:
    """Returns the text on one line, without uids, ports, and properties of this machine: its folders, and the
    user who runs the tests."""
    for what, instead in _INSTEAD:
        line = what.sub(instead, line)
    return line.replace("\n", "\\n").rstrip()


def form_of(line: str) -> str:
    """Returns the form of a line, which is the same for lines that differ only in numbers and in the random
    ends of pods' names."""
    return _NAMED.sub("#", line)


def without_version(text: str) -> str:
    """Removes the version: a release must change nothing but its number."""
    return _VERSION.sub("<version>", text)


@contextlib.contextmanager
def printed_plainly() -> Iterator[io.StringIO]:
    """Yields what is printed in the block, on both outputs: 100 columns wide and without colours."""
    text = io.StringIO()
    with (
        mock.patch.dict(os.environ, _ENVIRONMENT),
        contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(text),
    ):
        os.environ.pop("FORCE_COLOR", None)
        yield text
