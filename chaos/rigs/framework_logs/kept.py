"""Stores a run's output and truth as files: `NAME.log.gz`, in the format of a container runtime, and
`NAME.json`.

Each piece that the program wrote is a record. A piece that ends no line has the tag P. A real runtime keeps
such pieces back until it has 16 KiB of them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from chaos.rigs.framework_logs.capture import Chunk
from chaos.rigs.framework_logs.runs import Truth
from detectors.sources.cri import parse_line

__all__ = ["keep", "kept", "records"]


def records(chunks: Sequence[Chunk]) -> Iterator[bytes]:
    """Yields lines of a container's log without their newlines."""
    for chunk in chunks:
        *lines, rest = chunk.data.split(b"\n")
        for tag, text in (*((b"F", line) for line in lines), *(((b"P", rest),) if rest else ())):
            at = chunk.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            yield b"%s %s %s %s" % (at.encode(), chunk.stream.encode(), tag, text)


def keep(folder: Path, name: str, chunks: Sequence[Chunk], truth: Truth) -> None:
    text = b"".join(record + b"\n" for record in records(chunks))
    # The archive contains no time, so that equal runs give equal files.
    (folder / f"{name}.log.gz").write_bytes(gzip.compress(text, mtime=0))
    (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=0) + b"\n")


def kept(folder: Path, name: str) -> tuple[list[Chunk], Truth]:
    truth = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Truth)
    chunks = []
    for record in gzip.decompress((folder / f"{name}.log.gz").read_bytes()).split(b"\n"):
        if (line := parse_line(record)) is not None:
            data = record.split(b" ", 3)[3] + (b"" if line.partial else b"\n")
            chunks.append(Chunk(line.at, line.stream, data))
    return chunks, truth
