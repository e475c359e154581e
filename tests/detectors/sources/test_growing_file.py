"""A log that is rotated while it is read: every line is read once, no matter when the read happens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detectors.sources.growing_file import GrowingFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = tmp_path / "0.log"
    log.write_bytes(b"one\n")
    return log


def opened(path: Path) -> GrowingFile:
    file = GrowingFile(path, line_bytes_max=1000)
    assert file.read(1000) == [b"one"]
    return file


def append(path: Path, text: bytes) -> None:
    with path.open("ab", buffering=0) as log:
        log.write(text)


def test_a_line_that_comes_just_before_the_rotation_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, old, really = opened(path), path.with_suffix(".old"), os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        data = really(fd, length, offset)
        if not old.exists():  # the runtime is quicker than the next read
            append(path, b"two\n")
            path.rename(old)
            path.write_bytes(b"three\n")
        return data

    monkeypatch.setattr(os, "pread", pread)
    assert [*file.read(1000), *file.read(1000)] == [b"two", b"three"]
    assert file.read(1000) == []


def test_the_old_file_is_read_for_as_long_as_the_new_one_is_empty(path: Path) -> None:
    file, old = opened(path), path.with_suffix(".old")
    path.rename(old)
    path.touch()

    assert file.read(1000) == []
    append(old, b"two\n")  # a runtime opens the new file before it closes the old one
    assert file.read(1000) == [b"two"]
    append(path, b"three\n")
    assert file.read(1000) == [b"three"]
    assert file.restarts == 1


def test_a_file_that_is_cut_is_read_from_its_start(path: Path) -> None:
    file = opened(path)
    path.write_bytes(b"")

    assert file.read(1000) == []
    append(path, b"two\n")
    assert file.read(1000) == [b"two"]


def test_a_path_that_is_another_file_or_none_is_not_the_open_one(path: Path) -> None:
    file, old = opened(path), path.with_suffix(".old")
    assert file.is_at_path()

    path.rename(old)
    assert not file.is_at_path()
    path.write_bytes(b"two\n")
    assert not file.is_at_path()
    assert file.read(1000) == [b"two"]
    assert file.is_at_path()
