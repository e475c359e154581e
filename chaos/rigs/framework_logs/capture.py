"""Reads a program's output through two pipes, as a container runtime does: without a terminal, and with the
time of arrival of each piece."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

__all__ = ["Chunk", "FailedError", "chunks_of"]

_READ_BYTES = 32 * 1024


class Chunk(msgspec.Struct, frozen=True):
    at: datetime
    stream: str
    data: bytes


class FailedError(Exception):
    """The program ended with another status than 0. The message contains what the program printed last."""


def chunks_of(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[Chunk]:
    """Yields the pieces until the program ends. Raises FailedError if the program fails."""
    with (
        subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        last = b""
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                last = (last + data)[-4000:]
                yield Chunk(datetime.now(UTC), key.data, data)
    if process.returncode:
        raise FailedError(
            f"{' '.join(command)}: exit status {process.returncode}\n{last.decode(errors='replace')}"
        )
