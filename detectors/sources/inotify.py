"""Reports changes in a folder, by inotify from libc. If inotify fails, it calls back every 20 ms, whether
there is a change or not.

The standard library has no inotify, and a dependency for three calls would be one more thing to trust.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

import structlog

__all__ = ["FolderWatch"]

_log = structlog.get_logger("inotify")

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _IGNORED, _OVERFLOW = 0x400, 0x800, 0x8000, 0x4000
_MASK = _MODIFY | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ATTRIB
_HEAD = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
_POLL_S = 0.02


class FolderWatch:
    """Calls back after changes in watched folders; several changes may make one call. Needs a running loop.

    `pause_s` bounds how often the watch wakes: changes in between wait, and are reported together.
    """

    def __init__(self, *, pause_s: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._pause_s = pause_s
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._calls: dict[int, Callable[[], None]] = {}
        self._grown: dict[int, Callable[[], None]] = {}
        self._folders: dict[Path, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rests_until_s = 0.0
        self._closed = False
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)
        else:
            _log.warning(
                "inotify is not to be had; looking every 20 ms", error=os.strerror(ctypes.get_errno())
            )
            self._poll()

    def add(self, folder: Path, call: Callable[[], None], *, grown: Callable[[], None] | None = None) -> bool:
        """Watches a folder. Returns False if the folder cannot be watched: it does not exist, or the user's
        watches are used up. `grown` is called instead of `call` if files in the folder were written to and
        nothing else happened."""
        if folder in self._folders:
            self._register(self._folders[folder], call, grown)
            return True
        if self._fd < 0:
            watch = min(self._folders.values(), default=-1) - 1
        else:
            watch = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _MASK)
            if watch < 0:
                return False
        self._folders[folder] = watch
        self._register(watch, call, grown)
        return True

    def _register(self, watch: int, call: Callable[[], None], grown: Callable[[], None] | None) -> None:
        self._calls[watch] = call
        self._grown[watch] = grown or call

    def remove(self, folder: Path) -> None:
        watch = self._folders.pop(folder, None)
        if watch is not None:
            self._calls.pop(watch, None)
            self._grown.pop(watch, None)
            if self._fd >= 0:
                self._libc.inotify_rm_watch(self._fd, watch)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        # A timer is used only if a change comes within `pause_s` of the last read: a wake-up costs more than
        # reading a change.
        rest_s = self._rests_until_s - self._loop.time()
        if rest_s > 0:
            self._loop.remove_reader(self._fd)
            self._timer = self._loop.call_later(rest_s, self._resume)
            return
        self._rests_until_s = self._loop.time() + self._pause_s
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        only_grown: dict[int, bool] = {}
        everything = False
        at = 0
        while at + _HEAD.size <= len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            everything = everything or bool(mask & _OVERFLOW)
            if mask & _IGNORED:
                self._forget(watch)
            else:
                only_grown[watch] = only_grown.get(watch, True) and mask == _MODIFY
        for watch in list(self._calls) if everything else only_grown:
            calls = self._grown if only_grown.get(watch, False) and not everything else self._calls
            call = calls.get(watch)
            if call is not None:
                call()

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._fd, self._readable)

    def _forget(self, watch: int) -> None:
        """Forgets a folder that is gone. The kernel has dropped its watch, and its owner has heard of the
        deletion."""
        self._calls.pop(watch, None)
        self._grown.pop(watch, None)
        self._folders = {folder: number for folder, number in self._folders.items() if number != watch}

    def _poll(self) -> None:
        for call in list(self._calls.values()):
            call()
        if not self._closed:
            self._timer = self._loop.call_later(max(_POLL_S, self._pause_s), self._poll)
