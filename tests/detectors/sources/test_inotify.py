"""Changes in folders are noticed, with inotify and without."""

from __future__ import annotations

import asyncio
import ctypes
import selectors
import time
from pathlib import Path

import pytest

from detectors.sources.inotify import FolderWatch


class NoInotify:
    def inotify_init1(self, flags: int) -> int:
        return -1


@pytest.fixture(params=["inotify", "polling"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polling":
        monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: NoInotify())
    return str(request.param)


async def test_a_change_in_a_folder_calls_back(how: str, tmp_path: Path) -> None:
    heard = asyncio.Event()
    watch = FolderWatch()
    try:
        assert watch.add(tmp_path, heard.set)
        (tmp_path / "new").write_text("x")
        await asyncio.wait_for(heard.wait(), 30)
    finally:
        watch.close()


async def test_a_folder_no_longer_watched_is_not_heard(how: str, tmp_path: Path) -> None:
    heard = asyncio.Event()
    watch = FolderWatch()
    try:
        watch.add(tmp_path, heard.set)
        watch.remove(tmp_path)
        (tmp_path / "new").write_text("x")
        await asyncio.sleep(0.08)
        assert not heard.is_set()
    finally:
        watch.close()


async def test_a_folder_added_after_another_was_removed_takes_no_ones_place(how: str, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    heard = {folder: asyncio.Event() for folder in folders}
    for folder in folders:
        folder.mkdir()
    a, b, c = folders
    watch = FolderWatch()
    try:
        watch.add(a, heard[a].set)
        watch.add(b, heard[b].set)
        watch.remove(a)
        watch.add(c, heard[c].set)
        for folder in (b, c):
            (folder / "new").write_text("x")
            await asyncio.wait_for(heard[folder].wait(), 30)
    finally:
        watch.close()


async def test_a_folder_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    watch = FolderWatch()
    try:
        assert not watch.add(tmp_path / "none", lambda: None)
    finally:
        watch.close()


async def test_many_changes_within_the_pause_make_few_calls(tmp_path: Path) -> None:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    pause_s = 0.05
    watch = FolderWatch(pause_s=pause_s)
    began_s = time.monotonic()
    try:
        watch.add(tmp_path, count)
        for number in range(200):
            (tmp_path / f"{number}").write_text("x")
            await asyncio.sleep(0)
        await asyncio.sleep(3 * pause_s)
    finally:
        watch.close()

    assert 2 <= calls <= 2 + (time.monotonic() - began_s) / pause_s


class CountingSelector(selectors.DefaultSelector):
    """A selector that counts how often a loop has slept, and so was woken."""

    waits = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.waits += timeout != 0
        return list(super().select(timeout))


def test_a_change_now_and_then_wakes_the_loop_no_more_than_once(tmp_path: Path) -> None:
    """A node's logs grow by some lines a second, and each wake costs more than reading them."""
    log, changes, pause_s = tmp_path / "0.log", 10, 0.02
    log.touch()
    selector, heard = CountingSelector(), []

    async def hear() -> int:
        watch = FolderWatch(pause_s=pause_s)
        watch.add(tmp_path, lambda: heard.append("change"))
        before = selector.waits
        for _ in range(changes):
            with log.open("a", encoding="utf-8") as file:
                file.write("step")
            await asyncio.sleep(4 * pause_s)
        watch.close()
        return selector.waits - before

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        waits = runner.run(hear())

    assert len(heard) == changes
    assert waits <= 2 * changes + 2, "one for the change, one for our own sleep"
