"""Reads a small JSON file of a checkpoint as a struct. Used by the readers of most formats that have such a
file."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from recover.checkpoints.folder import DamagedError, Folder

__all__ = ["decode_json", "read_json"]

T = TypeVar("T")

_NOT_A_NUMBER = re.compile(rb"([:,\[]\s*)(?:NaN|-?Infinity)(?=\s*[,\]}])")
"""Numbers that JSON does not have and Python's json module writes, such as a loss that became NaN in the
history of a trainer_state.json. They say nothing about the file, so null replaces them."""


def read_json(folder: Folder, name: str, type_: type[T], *, limit_bytes: int) -> T:
    """Reads a file. Raises DamagedError if the file is missing, too large, cut, or has other content."""
    return decode_json(f"{name!a:.80}", folder.read(name, limit_bytes=limit_bytes), type_)


def decode_json(what: str, data: bytes, type_: type[T]) -> T:
    """Decodes data. `what` is the name of the data in messages. Raises DamagedError."""
    try:
        if b"NaN" in data or b"Infinity" in data:
            data = _NOT_A_NUMBER.sub(rb"\1null", data)
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # text that is not UTF-8, too
        raise DamagedError(f"{what} is damaged: {str(error)!a:.120}") from error
