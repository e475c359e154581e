"""Replaces standard output and standard error for commands for people, because their reader may end early, as
with `| head -1`. main.py installs the replacement.

Python ignores SIGPIPE, and a write then fails with an error that libraries handle in their own way, with
other statuses and texts: rich and typer end with 1, print ends with a traceback. If the signal could kill the
process, a broken connection to the API server would kill it, too. With the replacement the command ends with
SystemExit 141: clean-up code still runs, and no library sees an error. Daemons keep their standard output: it
is a log.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

__all__ = ["EXIT_UNREAD", "ends_with_its_reader"]

EXIT_UNREAD = 141
"""Status that a shell reports for a program that SIGPIPE has ended."""


def ends_with_its_reader() -> None:
    """Makes each later write without a reader end this process: quietly, and after its clean-up code."""
    sys.stdout, sys.stderr = _laid_under(sys.stdout), _laid_under(sys.stderr)


def _laid_under(old: TextIO) -> TextIO:
    try:
        raw = _Output(old.fileno(), "w", closefd=False)
    except OSError:  # the stream is closed, or is no file
        return old
    each_line = raw.isatty() or old is sys.stderr
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=old.encoding, errors=old.errors, line_buffering=each_line
    )


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            # The buffered rest goes to /dev/null as well, otherwise it would fail once more at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise SystemExit(EXIT_UNREAD) from error
