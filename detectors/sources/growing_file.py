"""Reads a file to which others append: complete lines only, across rotation and truncation, in bounded
pieces."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["GrowingFile"]


class GrowingFile:
    """Reads the lines of one path, from its start. The file is kept open: a file that was renamed or deleted
    is read to its end.

    A line longer than `line_bytes_max` is cut, and counted in `cut_lines`.
    """

    def __init__(self, path: Path, *, line_bytes_max: int) -> None:
        self.path = path
        self.cut_lines = 0
        self.restarts = 0
        """Number of times that the path became another file, or a shorter one."""
        self.bytes_read = 0
        self._line_bytes_max = line_bytes_max
        self._fd = -1
        self._offset = 0
        self._rest = b""
        self._discarding = False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def rewind(self) -> None:
        """Starts to read again from the beginning."""
        self._start_over()

    def backlog_bytes(self) -> int:
        if self._fd < 0:
            return 0
        return max(0, os.fstat(self._fd).st_size - self._offset)

    def is_at_path(self) -> bool:
        """Whether the path is still the open file. If not, the next `read` may find its successor."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def skip_to_last(self, keep_bytes: int) -> int:
        """Skips all but the last `keep_bytes` bytes; returns the number of bytes skipped."""
        skipped = max(0, self.backlog_bytes() - keep_bytes)
        if skipped:
            self._offset += skipped
            self._rest = b""
            self._discarding = True  # the new offset is inside a line
        return skipped

    def read(self, bytes_max: int) -> list[bytes]:
        """Returns the next complete lines without their newline; empty if there is nothing new. Raises
        `OSError`.

        A missing path is no error: the lines of the file that existed before are read to the end.
        """
        if self._fd < 0 and not self._open():
            return []
        data = os.pread(self._fd, bytes_max, self._offset)
        if not data:
            if not self._replaced():
                return []
            # The last lines may have come after the read above.
            data = os.pread(self._fd, bytes_max, self._offset)
        if not data:
            last = [self._rest] if self._rest and not self._discarding else []
            self._start_over()
            self.restarts += 1
            self.close()
            return last + (self.read(bytes_max) if self._open() else [])
        self._offset += len(data)
        self.bytes_read += len(data)
        return self._split(data)

    def _open(self) -> bool:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        return True

    def _replaced(self) -> bool:
        """Whether the file was truncated or replaced. A file that is still empty is not taken as the
        successor: a runtime opens the new file before it closes the old one."""
        ours = os.fstat(self._fd)
        if ours.st_size < self._offset:
            return True
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return there.st_size > 0 and (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _start_over(self) -> None:
        self._offset, self._rest, self._discarding = 0, b"", False

    def _split(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and self._discarding:
            del lines[0]
            self._discarding = False
        if len(self._rest) > self._line_bytes_max:
            if not self._discarding:
                self.cut_lines += 1
                lines.append(self._rest[: self._line_bytes_max])
            self._rest, self._discarding = b"", True
        for number, line in enumerate(lines):
            if len(line) > self._line_bytes_max:
                self.cut_lines += 1
                lines[number] = line[: self._line_bytes_max]
        return lines
