"""Finds the entries of a directory that are named like a checkpoint, and their steps. scan.py examines them
in order.

A checkpoint is a directory, one file, or a few files that differ only in their last suffix, such as Paddle's
`40.pdparams` and `40.pdopt`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import nsmallest
from typing import Protocol, runtime_checkable

import msgspec

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.marker_template import Template

__all__ = ["STEP_UNKNOWN", "Entry", "TellsStep", "entries_of", "ignored", "step_of", "step_of_file"]

STEP_UNKNOWN = -1
"""Step of a file or directory without a step in its name, from which no step could be read: older than all
others."""

UNDATED_MAX = 32
"""Number of files, and of directories, without a step in their name that are examined: each must be opened to
learn its step."""

_STEP_NAME = re.compile(
    r"(?:(?:global_)?step|iter|iteration|checkpoint|ckpt)?[-_]?(\d{1,15})"
    r"(?:\.orbax-checkpoint-tmp(?:-\d{1,20})?)?",
    re.ASCII | re.I,
)
_STEP_IN_FILE_NAME = re.compile(r"(?:[\w.=+-]*[-_])?step=(\d{1,15})(?:[-_][\w.=+-]*)?", re.ASCII)
"""Names of Lightning's files: `epoch=3-step=40`, `llm-step=40-loss=0.32`."""
_SEEMS_NAMED = re.compile(r"step|iter|ckpt|checkpoint|epoch", re.I)
_DIGIT = re.compile(r"[0-9]")
IGNORED_MAX = 100
"""Number of ignored names that are returned: a folder may have 200,000 names."""
_ENDINGS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pdparams")
"""Endings of files that a training loads."""
_PLAIN_NAME = re.compile(r"[\w.=+-]{1,200}", re.ASCII)


class Entry(msgspec.Struct, frozen=True):
    """One checkpoint by its name. `files` are its files, if the checkpoint is not a directory."""

    step: int
    name: str
    files: tuple[str, ...] = ()


class Recogniser(Protocol):
    def recognises(self, folder: Folder) -> bool: ...


@runtime_checkable
class TellsStep(Protocol):
    """A reader of files whose names need not contain the step."""

    def step_inside(self, folder: Folder) -> int:
        """Returns the step in the folder's only file, or in a checkpoint that is a directory. Raises
        DamagedError if there is none."""


def step_of(name: str) -> int | None:
    """Returns the step in a directory's name: `step-40`, `iter_0000040`, `checkpoint-40`, `global_step40`,
    `40`. Returns None if there is none."""
    match = _STEP_NAME.fullmatch(name)
    return int(match[1]) if match else None


def step_of_file(stem: str) -> int | None:
    """Returns the step in a name without its last suffix: `epoch=3-step=40`, `model_40`, or as in a
    directory's name. Returns None if there is none."""
    match = _STEP_IN_FILE_NAME.fullmatch(stem)
    return int(match[1]) if match else step_of(stem.removeprefix("model"))


def entries_of(folder: Folder, readers: Sequence[Recogniser], template: Template | None) -> list[Entry]:
    """Returns the entries, newest first. A template of the user replaces the usual names. Raises
    OutOfTimeError."""
    if template is not None and template.entry:
        steps = ((template.step_of(name), name) for name in folder.folders)
        found = [Entry(step, name) for step, name in steps if step is not None]
    else:
        found = [*_directories(folder, readers), *_files(folder, readers)]
    return sorted(found, key=lambda entry: (-entry.step, entry.name))


def ignored(folder: Folder, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Returns the names in the folder that people may take for checkpoints, and that are no entries, such as
    `gpt-step-40.pt`: the first `IGNORED_MAX` of them."""
    known = {name for entry in entries for name in (entry.name, *entry.files)}
    names = [*folder.folders, *(name for name in folder.files if name.endswith(_ENDINGS))]
    plain = (name for name in names if name not in known and _PLAIN_NAME.fullmatch(name))
    return tuple(nsmallest(IGNORED_MAX, (n for n in plain if _SEEMS_NAMED.search(n) and _DIGIT.search(n))))


def _directories(folder: Folder, readers: Sequence[Recogniser]) -> list[Entry]:
    found, undated = [], []
    for name in folder.folders:
        step = step_of_file(name.removesuffix(".ckpt")) if name.endswith(".ckpt") else step_of(name)
        if step is not None:
            found.append(Entry(step, name))
        elif name.endswith(".ckpt"):
            undated.append(name)
    last = sorted(undated, key=_natural, reverse=True)[:UNDATED_MAX]
    steps = ((_step_inside(folder, name, readers), name) for name in last)
    return found + [Entry(step, name) for step, name in steps if step is not None]


def _step_inside(folder: Folder, name: str, readers: Sequence[Recogniser]) -> int | None:
    """Returns the step of a directory without a step in its name, such as Lightning's `last.ckpt/`; None if
    no reader knows its files."""
    try:
        inside = folder.open(name)
        teller = next((r for r in readers if isinstance(r, TellsStep) and r.recognises(inside)), None)
        return teller.step_inside(inside) if teller is not None else None
    except (DamagedError, OSError):
        return STEP_UNKNOWN


def _files(folder: Folder, readers: Sequence[Recogniser]) -> list[Entry]:
    """Returns the entries that are files. Files named like a directory are listed, too: they are no
    checkpoints, and a user may wonder why."""
    named_as_directories = [Entry(step, name) for name in folder.files if (step := step_of(name)) is not None]
    stems: dict[str, list[str]] = {}
    for name in folder.files:
        if _PLAIN_NAME.fullmatch(name) and "." in name:
            stems.setdefault(name.rpartition(".")[0], []).append(name)
    dated, undated = [], []
    for stem, names in stems.items():
        folder.check_time()
        step = step_of_file(stem)
        if step is None:
            undated += names
            continue
        own = [name for name in names if any(reader.recognises(folder.only([name])) for reader in readers)]
        if own:  # other files beside it, such as step-40.json, are no part of a checkpoint that is one file
            dated.append(Entry(step, own[0] if len(own) == 1 else stem, tuple(sorted(names))))
    return named_as_directories + dated + _undated(folder, undated, readers)


def _undated(folder: Folder, names: list[str], readers: Sequence[Recogniser]) -> list[Entry]:
    """Returns the files whose format stores the step inside, such as Lightning's `last.ckpt`. If there are
    many, returns the last ones by name."""
    tellers = [reader for reader in readers if isinstance(reader, TellsStep)]
    told = [(name, teller) for name in names for teller in tellers if teller.recognises(folder.only([name]))]
    found = []
    for name, teller in sorted(told, key=lambda pair: _natural(pair[0]), reverse=True)[:UNDATED_MAX]:
        try:
            step = teller.step_inside(folder.only([name]))
        except DamagedError:
            step = STEP_UNKNOWN
        found.append(Entry(step, name, (name,)))
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """Returns the sort key by which `epoch=10` comes after `epoch=9`, and `last` after both."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,15})", name)]
