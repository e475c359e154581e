"""Makes a framework's own logic load the chosen checkpoint. Runs after scan.py, if the owner of the job
allows it.

There are two changes, and a rename back undoes each of them:

    latest -> names the chosen one; its old content is kept as latest.rekindle-before-<mark>, or with -2
              to -8 appended if that name is taken
    global_step60/ -> rekindle-set-aside-<mark>/global_step60/, damaged and newer than the chosen one

Damaged checkpoints go into a separate directory, since some frameworks search for `step-60` anywhere in a
name. The tracker comes first, so that a crash between two changes leaves nothing worse than before; a second
run continues where the first ended.

All changes are made in the one directory that is kept open: links are neither followed nor moved. Nothing is
deleted but a name that ends with .rekindle-new, which an interrupted run leaves. No existing file is written
to, since even a plain file may be a hard link to one elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from recover.checkpoints.deepspeed import TRACKER as DEEPSPEED_TRACKER
from recover.checkpoints.deepspeed import DeepSpeed
from recover.checkpoints.folder import TOO_LARGE, UNREADABLE, why
from recover.checkpoints.lightning import MAYBE_OVERWRITTEN
from recover.checkpoints.megatron import TRACKER as MEGATRON_TRACKER
from recover.checkpoints.megatron import is_iteration
from recover.checkpoints.megatron_torch import MegatronTorch
from recover.checkpoints.megatron_torch_dist import MegatronTorchDist
from recover.checkpoints.scan import NO_CHECKPOINT, NO_FILE, NOT_A_DIRECTORY
from recover.checkpoints.scan_result import Checkpoint, Repair, ScanResult
from recover.checkpoints.torch_dcp import TorchDcp
from recover.checkpoints.torch_save import HINT
from recover.checkpoints.volume import OUTSIDE, Descriptor, MountedVolume

__all__ = ["Tracker", "repaired", "tracker_of", "would_repair"]

TRACKER_BYTES_MAX = 1024
SET_ASIDE_MAX = 8
"""Number of damaged checkpoints that are set aside at most. More of them are no accident of one save, and a
person should examine them."""

FILES_MAX = 64
"""Number of files of all damaged checkpoints that are files beside others: Paddle writes two to four for
each."""
KEPT_MAX = 8

_TOO_MANY = f"{{}} damaged checkpoints are newer, more than {SET_ASIDE_MAX}: none is set aside"
_TOO_MANY_FILES = f"{{}} files belong to damaged checkpoints, more than {FILES_MAX}: none is set aside"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Tracker(msgspec.Struct, frozen=True):
    """A file beside the checkpoints by which a framework finds the checkpoint that it loads."""

    name: str
    says: str
    should_say: str

    @property
    def told(self) -> str:
        if not self.says:
            return f"{self.name} is empty, so the framework finds no checkpoint by itself"
        return f"{self.name} names {self.says[:60]!a}, so the framework loads that checkpoint by itself"


def tracker_of(root: Path, chosen: Checkpoint | None, volume: MountedVolume | None = None) -> Tracker | None:
    """Returns the tracker of the chosen checkpoint's format if it names another checkpoint; otherwise None,
    also if the tracker cannot be read."""
    if chosen is None:
        return None
    if chosen.format == DeepSpeed.name:
        name, should_say = DEEPSPEED_TRACKER, chosen.path
    elif chosen.format in (MegatronTorch.name, MegatronTorchDist.name) or (
        chosen.format == TorchDcp.name and is_iteration(chosen.path)
    ):
        name, should_say = MEGATRON_TRACKER, str(chosen.step)
    else:
        return None
    try:
        with _opened(root, volume) as folder:
            says = _read(folder, name, TRACKER_BYTES_MAX).decode("ascii", "backslashreplace").strip()
    except OSError:
        return None
    return Tracker(name, says, should_say) if says != should_say else None


def would_repair(
    root: Path,
    result: ScanResult,
    tracker: Tracker | None,
    allowed: Collection[Repair],
    volume: MountedVolume | None = None,
) -> list[str]:
    """Returns what `repaired` would do, for a person who has not decided yet."""
    lines = []
    if tracker is not None and Repair.TRACKER in allowed:
        lines.append(f"{tracker.name} would name {tracker.should_say!a} instead of {tracker.says[:60]!a}")
    damaged = _damaged(result) if Repair.SET_ASIDE in allowed else []
    if not damaged:
        return lines
    try:
        with _opened(root, volume) as folder:
            _, refusal = _names_of_all(folder, damaged)
    except OSError as error:
        refusal = f"nothing can be set aside: {why(error)}"
    if refusal:
        return [*lines, refusal]
    return [*lines, *(f"{found.path!a} would be set aside: {found.reason}" for found in damaged)]


def repaired(
    root: Path,
    result: ScanResult,
    tracker: Tracker | None,
    allowed: Collection[Repair],
    mark: str,
    volume: MountedVolume | None = None,
) -> list[str]:
    """Makes the changes. Returns a line for each change that was made, or could not be made and why."""
    lines = []
    damaged = _damaged(result) if Repair.SET_ASIDE in allowed else []
    try:
        with _opened(root, volume) as folder:
            if tracker is not None and Repair.TRACKER in allowed:
                lines.append(_rewritten(folder, tracker, mark))
            names, refusal = _names_of_all(folder, damaged)
            if refusal:
                return [*lines, refusal]
            lines += _set_aside(folder, names, f"rekindle-set-aside-{mark}")
    except OSError as error:
        lines.append(f"nothing more was repaired: {why(error)}")
    return lines


def _names_of_all(folder: int, damaged: Collection[Checkpoint]) -> tuple[list[str], str]:
    """Returns the names to move, and the reason why none of them is moved; the reason is empty if they are
    moved. Raises OSError."""
    if len(damaged) > SET_ASIDE_MAX:
        return [], _TOO_MANY.format(len(damaged))
    names = [name for found in damaged for name in _names(folder, found.path)]
    return names, _TOO_MANY_FILES.format(len(names)) if len(names) > FILES_MAX else ""


def _damaged(result: ScanResult) -> list[Checkpoint]:
    """Returns the checkpoints that are newer than the chosen one, and incomplete because of their content."""
    chosen = result.chosen
    if chosen is None:
        return []
    newer = (found for found in result.checkpoints if found.step > chosen.step)
    return [found for found in newer if not found.complete and not _is_left(found)]


def _is_left(found: Checkpoint) -> bool:
    """Whether the entry stays: nobody knows whether it is damaged, or it may be no checkpoint of this job. A
    name that is only a number may be the folder of another run, or a year."""
    doubts = (UNREADABLE, TOO_LARGE, OUTSIDE, HINT, MAYBE_OVERWRITTEN)
    unjudged = any(words in found.reason for words in doubts)
    is_other = found.reason == NOT_A_DIRECTORY or NO_CHECKPOINT in found.reason
    is_unknown = found.path.isdecimal() and found.reason.startswith(NO_FILE)
    return unjudged or is_other or is_unknown


def _rewritten(folder: int, tracker: Tracker, mark: str) -> str:
    """Keeps the old content, then replaces the file atomically. Returns a line about the result."""
    try:
        mode = stat.S_IMODE(os.stat(tracker.name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
        kept = _kept(folder, f"{tracker.name}.rekindle-before-{mark}", tracker.name, mode)
        _replace(folder, tracker.name, tracker.should_say.encode(), mode)
    except OSError as error:
        return (
            f"{tracker.name} could not be rewritten: {why(error)}; the file still names {tracker.says[:60]!a}"
        )
    return (
        f"{tracker.name} names {tracker.should_say!a} now; before, the file named {tracker.says[:60]!a}, and "
        f"{kept} keeps that version"
    )


def _kept(folder: int, name: str, tracker: str, mode: int) -> str:
    """Returns the name under which the tracker's old content is now kept. After a crash it may already
    exist."""
    content = _read(folder, tracker, TRACKER_BYTES_MAX)
    for kept in (name, *(f"{name}-{number}" for number in range(2, KEPT_MAX + 1))):
        if not _is_there(folder, kept):
            _replace(folder, kept, content, mode)
            return kept
        with suppress(OSError):  # a pipe, or a directory
            if _read(folder, kept, TRACKER_BYTES_MAX) == content:
                return kept
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _names(folder: int, path: str) -> list[str]:
    """Returns the names of a checkpoint's files: if it is several files, all files that share its name."""
    if _is_there(folder, path):
        return [path]
    return sorted(name for name in os.listdir(folder) if name.rpartition(".")[0] == path) or [path]


def _set_aside(folder: int, names: list[str], aside: str) -> list[str]:
    lines = []
    moved = False
    for name in names:
        problem = _moved(folder, name, aside)
        moved = moved or not problem
        told = f"could not be set aside: {problem}" if problem else f"was moved to {aside}"
        lines.append(f"{name!a} {told}")
    if moved:  # once for all names, since each sync may take as long as the file system needs
        try:
            _sync(folder, aside)
        except OSError as error:
            lines.append(f"nobody knows whether {aside} has reached the disk: {why(error)}")
    return lines


def _moved(folder: int, name: str, aside: str) -> str:
    """Moves one entry. Returns the reason if it was not moved; empty if it was."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            return "it is neither a directory nor a plain file"
        if not _is_there(folder, aside):
            os.mkdir(aside, dir_fd=folder)
        with _inside(folder, aside) as inside:
            if _is_there(inside, name):
                return f"{aside} already has an entry of that name"
            os.rename(name, name, src_dir_fd=folder, dst_dir_fd=inside)
    except OSError as error:
        return why(error)
    return ""


def _sync(folder: int, aside: str) -> None:
    """Syncs the new place first: after a crash an entry may be in both places, and never in none."""
    with _inside(folder, aside) as inside:
        os.fsync(inside)
    os.fsync(folder)


@contextmanager
def _inside(folder: int, aside: str) -> Iterator[int]:
    descriptor = os.open(aside, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened(root: Path, volume: MountedVolume | None) -> Iterator[int]:
    directory: Descriptor = (volume or MountedVolume()).find(root.absolute()).open_directory()
    yield directory.number  # the directory is open as long as this frame refers to it


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read(folder: int, name: str, limit_bytes: int) -> bytes:
    """Returns at most `limit_bytes` bytes of a plain file. Raises OSError, also if the file is a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        return os.read(descriptor, limit_bytes)
    finally:
        os.close(descriptor)


def _replace(folder: int, name: str, content: bytes, mode: int) -> None:
    """Replaces the file: after a crash it contains the old content or, on the disk, all of the new content.
    The rest of a crashed run is removed first."""
    new = f"{name}.rekindle-new"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folder)
    descriptor = os.open(new, _WRITE, mode, dir_fd=folder)
    try:
        os.fchmod(descriptor, mode)
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
