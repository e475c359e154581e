"""Checks whether a file is one complete pickle. Used by the readers of Paddle's formats.

The check goes from opcode to opcode and skips their content: nothing is built, imported or called, and only
the length of a payload is read. A pickle is complete if its STOP opcode is the file's last byte and no frame
reaches beyond it, so a file that is cut anywhere is not complete. Source: the opcodes in Python's
pickletools.
"""

from __future__ import annotations

import pickletools

from recover.checkpoints.folder import DamagedError, Folder, OpenFile

__all__ = ["pickle_bytes"]

WINDOW_BYTES = 64 * 1024
OPCODES_PER_LOOK_AT_THE_CLOCK = 1000
LINE_BYTES_MAX = 256
"""Maximum length of a line. Names of modules and classes, and numbers, are written as lines."""

_PROTO, _STOP, _FRAME = 0x80, 0x2E, 0x95
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_LINES = {"GLOBAL": 2, "INST": 2}
"""Number of lines of opcodes with two lines; all other opcodes that are written as text have one."""


def _argument(opcode: pickletools.OpcodeInfo) -> tuple[int, int, int]:
    """Returns the bytes of a fixed argument, the bytes of a length before a payload, and the lines of text:
    one of the three."""
    if opcode.arg is None:
        return 0, 0, 0
    if opcode.arg.n == pickletools.UP_TO_NEWLINE:
        return 0, 0, _LINES.get(opcode.name, 1)
    if opcode.arg.n in _LENGTH_BYTES:
        return 0, _LENGTH_BYTES[opcode.arg.n], 0
    return opcode.arg.n, 0, 0


_ARGUMENTS = {ord(opcode.code): _argument(opcode) for opcode in pickletools.opcodes}


class _Walk:
    """A position in the file, with a window of bytes around it."""

    def __init__(self, file: OpenFile) -> None:
        self.at = 0
        self.file = file
        self._window = b""
        self._window_at = 0

    def take(self, count_bytes: int) -> bytes:
        start = self.at - self._window_at
        if not 0 <= start <= len(self._window) - count_bytes:
            if self.at + count_bytes > self.file.size_bytes:
                raise DamagedError(f"{self.file.name} ends within its pickle: cut short")
            window_bytes = min(max(WINDOW_BYTES, count_bytes), self.file.size_bytes - self.at)
            self._window, self._window_at, start = self.file.read_at(self.at, window_bytes), self.at, 0
        self.at += count_bytes
        return self._window[start : start + count_bytes]

    def skip(self, count_bytes: int) -> None:
        if count_bytes > self.file.size_bytes - self.at:
            raise DamagedError(f"{self.file.name} ends within its pickle: cut short")
        self.at += count_bytes

    def skip_line(self) -> None:
        for _ in range(LINE_BYTES_MAX):
            if self.take(1) == b"\n":
                return
        raise DamagedError(f"{self.file.name} is not a pickle that a trainer writes: a line without end")


def pickle_bytes(folder: Folder, name: str) -> int:
    """Returns the file's size. Raises DamagedError if the file is not one complete pickle."""
    with folder.open_file(name) as file:
        if file.size_bytes == 0:
            raise DamagedError(f"{file.name} is empty")
        walk = _Walk(file)
        if walk.take(1)[0] != _PROTO or not 2 <= walk.take(1)[0] <= 5:
            raise DamagedError(f"{file.name} is not a pickle of protocol 2 to 5")
        _walk_to_stop(walk, folder)
        if walk.at != file.size_bytes:
            raise DamagedError(f"{file.name} has {file.size_bytes - walk.at} bytes after its pickle")
        return file.size_bytes


def _walk_to_stop(walk: _Walk, folder: Folder) -> None:
    count = 0
    while (code := walk.take(1)[0]) != _STOP:
        count += 1
        if count % OPCODES_PER_LOOK_AT_THE_CLOCK == 0:
            folder.check_time()
        if code not in _ARGUMENTS:
            raise DamagedError(f"{walk.file.name} is damaged: byte {walk.at - 1} is no part of a pickle")
        fixed_bytes, length_bytes, lines = _ARGUMENTS[code]
        if code == _FRAME:
            _check_frame(walk)
        elif length_bytes:
            walk.skip(int.from_bytes(walk.take(length_bytes), "little"))
        else:
            walk.skip(fixed_bytes)
        for _ in range(lines):
            walk.skip_line()


def _check_frame(walk: _Walk) -> None:
    frame_bytes = int.from_bytes(walk.take(8), "little")
    if frame_bytes > walk.file.size_bytes - walk.at:
        raise DamagedError(f"{walk.file.name} ends within a frame of its pickle: cut short")
