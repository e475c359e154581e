"""Standard output, and errors with it, whose reader may go away, as `| head -1` does. main.py lays it
under commands for people.

Python ignores SIGPIPE, and a write then fails with an error that libraries take for their own and answer with
other statuses and texts: rich and typer with 1, print with a traceback. To let the signal kill would also
kill on a broken connection to the API server. Here the command ends with SystemExit 141: cleaning up still
happens, and no library sees an error. Daemons keep their standard output: it is a log.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

__all__ = ["EXIT_UNREAD", "ends_with_its_reader"]

EXIT_UNREAD = 141
"""What a shell says of a program that SIGPIPE has ended."""


def ends_with_its_reader() -> None:
    """From now on a write that nobody reads ends this process: quietly, and after its own cleaning up."""
    sys.stdout, sys.stderr = _laid_under(sys.stdout), _laid_under(sys.stderr)


def _laid_under(old: TextIO) -> TextIO:
    try:
        raw = _Output(old.fileno(), "w", closefd=False)
    except OSError:  # it is closed, or no file
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
            # What is still buffered goes there as well, else it would fail once more at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise SystemExit(EXIT_UNREAD) from error
