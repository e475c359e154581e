"""Looks through a directory of checkpoints, newest first, and chooses. cli.py prints what comes out.

Bounded in names and time, and total: an odd entry is an incomplete checkpoint with its reason. The one error
is a root that cannot be listed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from pathlib import Path

from recover.checkpoints import READERS, Reader
from recover.checkpoints.folder import DamagedError, Folder, OutOfTimeError, why
from recover.checkpoints.model import Checkpoint, ScanResult, Verdict

__all__ = ["ScanError", "scan", "step_of"]

TIME_S = 25.0
"""Below the scan pod's deadline of 30 s, so that what is known by then is still handed over."""

EXAMINED_MAX = 1000
NESTED_MAX = 32

_STEP_NAME = re.compile(
    r"(?:(?:global_)?step|iter|iteration|checkpoint|ckpt)?[-_]?(\d{1,15})", re.ASCII | re.I
)


class ScanError(Exception):
    """Nothing could be scanned. The message names the directory, what is wrong and what was expected."""


def step_of(name: str) -> int | None:
    """The step in a directory's name: `step-40`, `iter_0000040`, `checkpoint-40`, `global_step40`, `40`."""
    match = _STEP_NAME.fullmatch(name)
    return int(match[1]) if match else None


def scan(
    root: Path,
    *,
    format_name: str | None = None,
    exclude: Collection[int] = (),
    until_chosen: bool = False,
    time_s: float = TIME_S,
    clock: Callable[[], float] = time.monotonic,
) -> ScanResult:
    """Every checkpoint under `root`, newest first, and the newest complete one whose step is not excluded.

    `format_name` limits the readers to one; otherwise the files' names decide. `until_chosen` leaves those
    older than the choice unexamined, which saves a slow file system. Raises ScanError.
    """
    readers = tuple(reader for reader in READERS if format_name in (None, reader.name))
    if not readers:
        known = ", ".join(reader.name for reader in READERS)
        raise ScanError(f"format {format_name!r} is not known; expected one of {known}")
    end = clock() + time_s

    def check_time() -> None:
        if clock() > end:
            raise OutOfTimeError

    entries = _entries(root, check_time)
    found: list[Checkpoint] = []
    chosen: Checkpoint | None = None
    stopped = ""
    for count, (step, name) in enumerate(entries):
        if count >= EXAMINED_MAX:
            stopped = stopped or f"not examined: only the newest {EXAMINED_MAX} are"
        if until_chosen and chosen is not None:
            stopped = stopped or "not examined: a newer one is complete"
        if stopped:
            found.append(Checkpoint(step, name, "", complete=False, reason=stopped, bytes=0))
            continue
        try:
            format_found, verdict = _examine(root / name, step, readers, check_time)
        except OutOfTimeError:
            stopped = f"not examined: the scan's {time_s:g} s were over"
            format_found, verdict = "", Verdict(complete=False, reason=stopped)
        reason = verdict.reason
        if verdict.complete and step in exclude:
            reason = "excluded: it failed to load before"
        checkpoint = Checkpoint(step, name, format_found, verdict.complete, reason, verdict.bytes)
        found.append(checkpoint)
        if chosen is None and verdict.complete and step not in exclude:
            chosen = checkpoint
    return ScanResult(checkpoints=tuple(found), chosen=chosen)


def _entries(root: Path, check_time: Callable[[], None]) -> list[tuple[int, str]]:
    """Steps and names of the entries that are named like a checkpoint, newest first."""
    try:
        folder = Folder(root, check_time)
    except OSError as error:
        raise ScanError(
            f"{root}: {why(error)}; expected a directory of checkpoints, e.g. step-40/"
        ) from error
    except DamagedError as error:
        raise ScanError(f"{root}: {error}; the newest cannot be told, so none is chosen") from error
    named = [(step, name) for name in (*folder.folders, *folder.files) if (step := step_of(name)) is not None]
    if not named and any(reader.recognises(folder) for reader in READERS):
        raise ScanError(
            f"{root}: it is itself a checkpoint; expected the directory that holds step-40/ and so on"
        )
    return sorted(named, key=lambda entry: (-entry[0], entry[1]))


def _examine(
    path: Path, step: int, readers: tuple[Reader, ...], check_time: Callable[[], None]
) -> tuple[str, Verdict]:
    """The format and verdict of one entry. Some trainers put the files one level down, as step-40/model/."""
    name = ""
    try:
        check_time()
        folder = Folder(path, check_time)
        parts = [(reader, folder) for reader in readers if reader.recognises(folder)][:1]
        if not parts:
            if len(folder.folders) > NESTED_MAX:
                raise DamagedError(f"more than {NESTED_MAX} directories in it")
            nested = [Folder(path / inner, check_time) for inner in folder.folders]
            parts = [(reader, inner) for inner in nested for reader in readers if reader.recognises(inner)]
        if not parts:
            raise DamagedError(_nothing_known(folder, readers))
        name = parts[0][0].name
        total_bytes = 0
        for reader, part in parts:
            verdict = _read(reader, part, step)
            total_bytes += verdict.bytes
            if not verdict.complete:
                where = "" if part is folder else f"{part.path.name!a:.80}: "
                return name, Verdict(complete=False, bytes=total_bytes, reason=where + verdict.reason)
        return name, Verdict(complete=True, bytes=total_bytes)
    except NotADirectoryError:
        return name, Verdict(complete=False, reason="a file, not a directory")
    except OSError as error:
        return name, Verdict(complete=False, reason=f"cannot be read: {why(error)}")
    except DamagedError as error:
        return name, Verdict(complete=False, reason=str(error))


def _read(reader: Reader, folder: Folder, step: int) -> Verdict:
    try:
        return reader.read(folder, step)
    except DamagedError as error:
        return Verdict(complete=False, reason=str(error))


def _nothing_known(folder: Folder, readers: tuple[Reader, ...]) -> str:
    if not folder.files and not folder.folders:
        return "an empty directory"
    return f"no file of the format {' or '.join(reader.name for reader in readers)}"
