"""Examines a directory of checkpoints, newest first, and chooses one; `rekindle checkpoints` prints the
result.

The scan is bounded in names and time, and handles any content: whatever error a reader raises because of a
file's content (ODD of folder.py), the checkpoint counts as incomplete, and the error is the reason. The only
error is a root that cannot be listed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from recover.checkpoints import READERS, Reader
from recover.checkpoints.digests import check_digests, not_checked
from recover.checkpoints.entries import STEP_UNKNOWN, Entry, entries_of, ignored, step_of
from recover.checkpoints.folder import (
    FORBIDDEN,
    ODD,
    TOO_LARGE,
    UNREADABLE,
    DamagedError,
    Folder,
    OutOfTimeError,
    odd,
    why,
)
from recover.checkpoints.generic import Generic
from recover.checkpoints.marker_template import Template
from recover.checkpoints.scan_result import STEP_END, Checkpoint, ScanResult, Verdict
from recover.checkpoints.torch_save import HINT, TorchSave, parts_missing
from recover.checkpoints.volume import OUTSIDE, MountedVolume

__all__ = ["NOT_A_DIRECTORY", "NO_CHECKPOINT", "NO_FILE", "NO_KNOWN_FORMAT", "TIME_S", "ScanError", "scan"]

TIME_S = 25.0
"""Time in seconds that a person may wait; the command of a scan pod sets its own time."""

EXAMINED_MAX = 1000
BYTES_MAX = STEP_END - 1
"""Greatest size in a result: JSON is not exact for more. Files with holes may have any size."""
NESTED_MAX = 32

UNFINISHED = "-unfinished"
"""End of the name of the file with which NeMo marks a checkpoint of Lightning during its save. At its start
NeMo deletes checkpoints that are still marked. Source: nemo/utils/callbacks/nemo_model_checkpoint.py."""

NO_FILE = "no file of"
"""Beginning of the reason why a directory is no checkpoint, if no reader recognises its files."""
NO_KNOWN_FORMAT = f"{NO_FILE} a known format"
NOT_A_DIRECTORY = "a file, not a directory"
NO_CHECKPOINT = "is not a checkpoint itself"
"""Part of the reason of a folder that contains checkpoints of other steps."""
_OUT_OF_TIME = "the time limit passed before the scan had read the names in this folder"
_OTHER_USER = (
    "The scan chooses no older checkpoint, because the training's own user may be able to read the newest "
    "one. The scan never runs as root: name the training's user by runAsUser, or a group of the files by "
    "fsGroup, in the job's securityContext"
)

_BY_NAME = "was judged by its name and size, because only its owner has the permission to read the file"


class ScanError(Exception):
    """Nothing could be scanned. The message names the directory, what is wrong and what was expected."""


def scan(
    root: Path,
    *,
    format_name: str | None = None,
    template: Template | None = None,
    exclude: Collection[int] = (),
    until_chosen: bool = False,
    digests: bool = False,
    time_s: float = TIME_S,
    clock: Callable[[], float] = time.monotonic,
    volume: MountedVolume | None = None,
    other_user: bool = False,
) -> ScanResult:
    """Returns every checkpoint under `root`, newest first, and the newest complete one whose step is not
    excluded.

    `format_name` limits the readers to one; otherwise the files' names decide. `template` is the place of the
    marker of the format `generic`. `until_chosen` leaves checkpoints older than the choice unexamined, which
    spares a slow file system. With `digests` every byte of the choice is read and compared with what its
    format stores, as far as the time allows. `volume` is the volume in which `root` is, as the pod of the
    training mounts it. With `other_user` the training runs as another user, who may read what this process
    may not. Raises ScanError.
    """
    readers = _readers(format_name, template)
    end = clock() + time_s

    def check_time() -> None:
        if clock() > end:
            raise OutOfTimeError

    folder = _root(root, check_time, volume, other_user=other_user)
    entries = _entries(folder, readers, template)
    found: list[Checkpoint] = []
    chosen: Checkpoint | None = None
    stopped = compared = ""
    for count, entry in enumerate(entries):
        step = entry.step
        stopped = stopped or _why_not_examined(count, is_enough=until_chosen and chosen is not None)
        if stopped:
            found.append(_unexamined(entry, stopped))
            continue
        older = next((e for e in entries[count + 1 :] if not e.files and e.step < step), None)
        try:
            format_found, verdict = _judged(folder, entry, older, readers, other_user=other_user)
        except OutOfTimeError:
            stopped = f"not examined: the time limit of the scan ({time_s:g} s) had passed"
            found.append(_unexamined(entry, stopped))
            continue
        may_be_chosen = chosen is None and step not in exclude and step != STEP_UNKNOWN
        if digests and may_be_chosen and verdict.complete:
            verdict, compared = _compared(folder, entry, verdict)
        if may_be_chosen:
            stopped = _why_no_older(root, step, verdict.reason, other_user=other_user)
        reason, size_bytes = _reason(verdict, is_excluded=step in exclude), min(verdict.bytes, BYTES_MAX)
        checkpoint = Checkpoint(step, entry.name, format_found, verdict.complete, reason, size_bytes)
        found.append(checkpoint)
        if may_be_chosen and verdict.complete:
            chosen = checkpoint
    return ScanResult(
        checkpoints=tuple(found),
        chosen=chosen,
        digests=compared if chosen else "",
        ignored=ignored(folder, entries),
    )


def _why_not_examined(count: int, *, is_enough: bool) -> str:
    """Returns why the scan does not examine a checkpoint with `count` newer ones; empty if it does."""
    if count >= EXAMINED_MAX:
        return f"not examined: the scan examines only the newest {EXAMINED_MAX} checkpoints"
    return "not examined: a newer checkpoint is complete" if is_enough else ""


def _unexamined(entry: Entry, why_not: str) -> Checkpoint:
    return Checkpoint(entry.step, entry.name, "", complete=False, reason=why_not, bytes=0)


def _why_no_older(root: Path, step: int, reason: str, *, other_user: bool) -> str:
    """Returns why the scan examines no checkpoint older than this candidate, whose verdict has that reason;
    empty if it may. Raises ScanError if the training, as another user, may be able to read the candidate."""
    if other_user and FORBIDDEN in reason:
        raise ScanError(
            f"{root}: user {os.geteuid()} has no permission to read step {step} ({reason}). {_OTHER_USER}"
        )
    if TOO_LARGE in reason or OUTSIDE in reason:
        return f"not examined: step {step} is newer, and nobody knows whether it is complete"
    return ""


def _reason(verdict: Verdict, *, is_excluded: bool) -> str:
    """Returns what the scan says about an examined checkpoint; empty if there is nothing to say."""
    if verdict.complete and is_excluded:
        return "excluded: this checkpoint failed to load before"
    if verdict.complete and verdict.unread:
        return f"{verdict.unread!a:.80} {_BY_NAME}"
    return verdict.reason


def _readers(format_name: str | None, template: Template | None) -> tuple[Reader, ...]:
    if template is not None:
        return (Generic(template),)
    readers = tuple(reader for reader in READERS if format_name in (None, reader.name))
    if not readers:
        known = ", ".join(reader.name for reader in READERS)
        raise ScanError(f"format {format_name!r} is not known; expected one of {known}")
    return readers


def _entries(folder: Folder, readers: Sequence[Reader], template: Template | None) -> list[Entry]:
    try:
        entries = entries_of(folder, readers, template)
    except OutOfTimeError as error:
        raise ScanError(f"{folder.path}: {_OUT_OF_TIME}") from error
    if not entries and template is None and any(reader.recognises(folder) for reader in readers):
        raise ScanError(
            f"{folder.path}: this directory has files of a checkpoint, and Rekindle cannot read a step from "
            f"their names{_such_as(folder)}; expected the directory that contains step-40/, step-40.pt and "
            "so on"
        )
    return entries


def _such_as(folder: Folder) -> str:
    names = ignored(folder, ())
    return f", such as {names[0]!a:.120}" if names else ""


def _root(
    root: Path, check_time: Callable[[], None], volume: MountedVolume | None, *, other_user: bool
) -> Folder:
    try:
        return Folder(root.absolute(), check_time, volume)
    except PermissionError as error:
        advice = (
            f"user {os.geteuid()} has no permission to read this folder. {_OTHER_USER}"
            if other_user
            else why(error)
        )
        raise ScanError(f"{root}: {advice}") from error
    except OSError as error:
        raise ScanError(
            f"{root}: {why(error)}; expected the directory that contains step-40/ and so on"
        ) from error
    except DamagedError as error:
        raise ScanError(
            f"{root}: {error}; the scan cannot tell which checkpoint is the newest, and chooses none"
        ) from error
    except OutOfTimeError as error:
        raise ScanError(f"{root}: {_OUT_OF_TIME}") from error


def _judged(
    folder: Folder, entry: Entry, older: Entry | None, readers: Sequence[Reader], *, other_user: bool
) -> tuple[str, Verdict]:
    """Returns the format and verdict of one entry of the root; `older` is the next older directory. If this
    process may not read the weights, the checkpoint can be complete only for a training of another user."""
    format_found, verdict = _examine(folder, entry, older, readers)
    if verdict.unread and not other_user:
        reason = f"{verdict.unread!a:.80} {FORBIDDEN}"
        verdict = msgspec.structs.replace(verdict, complete=False, reason=reason)
    return format_found, verdict


def _examine(
    folder: Folder, entry: Entry, older: Entry | None, readers: Sequence[Reader]
) -> tuple[str, Verdict]:
    try:
        if (marker := f"{entry.name.removesuffix('.ckpt')}{UNFINISHED}") in folder.files:
            raise DamagedError(f"{marker!a:.120} exists, so the save never finished")
        if entry.files:
            return _examine_files(folder.only(entry.files), entry, readers)
        inside = folder.open(entry.name)
        found = _examine_directory(inside, entry.step, readers)
        if found[1].complete and older is not None:
            _check_parts(inside, folder, older, readers, found[0])
            if found[1].unread:
                _check_unread(inside, folder, older, found[1].unread)
        return found
    except NotADirectoryError:
        return "", Verdict(complete=False, reason=NOT_A_DIRECTORY)
    except OSError as error:
        return "", Verdict(complete=False, reason=f"{UNREADABLE}: {why(error)}")
    except (DamagedError, *ODD) as error:
        return "", Verdict(complete=False, reason=_told(error))


def _compared(folder: Folder, entry: Entry, verdict: Verdict) -> tuple[Verdict, str]:
    """Returns the verdict on a complete checkpoint after the check of its digests, and what they were
    compared with."""
    try:
        inside = folder.only(entry.files) if entry.files else folder.open(entry.name)
        return verdict, check_digests(inside, verdict.bytes)
    except OutOfTimeError:
        return verdict, not_checked(0, verdict.bytes)
    except OSError as error:
        return msgspec.structs.replace(verdict, complete=False, reason=f"{UNREADABLE}: {why(error)}"), ""
    except (DamagedError, *ODD) as error:
        return msgspec.structs.replace(verdict, complete=False, reason=_told(error)), ""


def _examine_files(files: Folder, entry: Entry, readers: Sequence[Reader]) -> tuple[str, Verdict]:
    reader = next(reader for reader in readers if reader.recognises(files))
    return reader.name, _read(reader, files, entry.step)


def _examine_directory(folder: Folder, step: int, readers: Sequence[Reader]) -> tuple[str, Verdict]:
    """Examines one directory. Some trainers put the files one level down, for example in step-40/model/."""
    parts = [(reader, folder) for reader in readers if reader.recognises(folder)][:1]
    if not parts:
        if len(folder.folders) > NESTED_MAX:
            raise DamagedError(f"more than {NESTED_MAX} directories in it")
        nested = [folder.open(inner) for inner in folder.folders]
        known = ((next((r for r in readers if r.recognises(inner)), None), inner) for inner in nested)
        parts = [(reader, inner) for reader, inner in known if reader is not None]
        steps = {step_of(inner.path.name) for _, inner in parts} - {None}
        # For example 20241121/step-40/, where the directory is a run's and its number no step.
        if len(steps) > 1 or (folder.path.name.isdecimal() and steps - {step}):
            count = "one checkpoint" if len(steps) == 1 else f"{len(steps)} checkpoints"
            raise DamagedError(f"this folder contains {count}, and {NO_CHECKPOINT}")
    if not parts:
        raise DamagedError(_nothing_known(folder, readers))
    name, unread = parts[0][0].name, ""
    total_bytes = 0
    for reader, part in parts:
        verdict = _read(reader, part, step)
        total_bytes += verdict.bytes
        if not verdict.complete:
            where = "" if part is folder else f"{part.path.name!a:.80}: "
            return name, Verdict(complete=False, bytes=total_bytes, reason=where + verdict.reason)
        unread = unread or verdict.unread
    return name, Verdict(complete=True, bytes=total_bytes, unread=unread)


def _check_parts(
    inside: Folder, root: Folder, older: Entry, readers: Sequence[Reader], format_found: str
) -> None:
    """Checks the parts one level down, and the files of torch-save. Nothing counts them, so the next older
    checkpoint shows which parts there are. Raises DamagedError if a part has not begun."""
    is_own_loop = format_found == TorchSave.name
    if not is_own_loop and any(reader.recognises(inside) for reader in readers):
        return
    try:
        before = root.open(older.name)
        missing = [name for name in before.folders if name not in inside.folders][:NESTED_MAX]
        parts = [name for name in missing if any(r.recognises(before.open(name)) for r in readers)]
        parts += parts_missing(inside, before) if is_own_loop else []
    except (OSError, DamagedError):
        return  # a checkpoint that cannot be read proves nothing about others
    if parts:
        told = f"no {parts[0]!a:.80}, which {older.name!a:.80} has, so the save never finished"
        raise DamagedError(f"{told}; {HINT}" if is_own_loop else told)


def _check_unread(inside: Folder, root: Folder, older: Entry, unread: str) -> None:
    """Compares the size of weights that were not read with the next older checkpoint, since the weights of
    one job have one size. Raises DamagedError if they are smaller, which happens if a node loses its power.
    The text of the error prevents a repair: if another model was trained here before, the sizes prove
    nothing."""
    try:
        size_bytes, before_bytes = (f.size_bytes(unread) for f in (inside, root.open(older.name)))
    except (OSError, DamagedError):
        return  # the older checkpoint has other files
    if size_bytes < before_bytes:
        told = f"has {size_bytes} bytes where {older.name!a:.80} has {before_bytes}"
        raise DamagedError(f"{unread!a:.80} {UNREADABLE}, and {told}")


def _read(reader: Reader, folder: Folder, step: int) -> Verdict:
    try:
        return reader.read(folder, step)
    except (DamagedError, *ODD) as error:
        return Verdict(complete=False, reason=_told(error))


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, DamagedError) else odd(error)


def _nothing_known(folder: Folder, readers: Sequence[Reader]) -> str:
    if not folder.files and not folder.folders:
        return "an empty directory"
    return f"{NO_FILE} the format {readers[0].name}" if len(readers) == 1 else NO_KNOWN_FORMAT
