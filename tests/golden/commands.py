"""Renders `--help` of every command at a width of 100, without colours."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from unittest import mock

from tests.golden import rooms
from tests.golden.text import printed_plainly

__all__ = ["commands"]


def commands() -> Iterator[str]:
    for words in ("--help", "statu"):
        yield from (f"==== rekindle {words}", *_program(words).splitlines(), "")
    for name in _names():
        yield from (f"==== rekindle {name} --help", *_helped(name).splitlines(), "")


def _names() -> list[str]:
    """Returns the names of commands and their parents."""
    told = {*rooms.MEANINGS, *(f"bench {name}" for name in rooms.BENCHES)}
    parents = {name.partition(" ")[0] for name in told}
    return sorted(told | parents | {point.name for point in entry_points(group=rooms.GROUP)})


def _helped(name: str) -> str:
    command, *rest = name.split()
    (point,) = entry_points(group=rooms.GROUP, name=command)
    with printed_plainly() as text, contextlib.suppress(SystemExit):
        point.load()([*rest, "--help"])
    return text.getvalue()


def _program(*args: str) -> str:
    before = signal.getsignal(signal.SIGTERM)
    with mock.patch.object(sys, "argv", ["rekindle", *args]), printed_plainly() as text:
        rooms.program()
    signal.signal(signal.SIGTERM, before)
    return text.getvalue()
