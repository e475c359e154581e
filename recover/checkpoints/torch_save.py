"""Reads checkpoints of torch-save, which a user's own training loop writes with torch.save.

    step-40.pt                     one file, or step-40/state.pt, the only such file of its directory
    step-40/state-rank-0-of-2.pt   one file for each rank, the count of ranks in its name
    step-40/state-rank-1-of-2.pt

The reader refuses several files without a count, and a file whose name says that it is a part (model.pt,
optim.pt, rank_0.pt, data.pt): after a kill in the middle of a save the existing files are complete, and
nothing says which are missing. It also refuses a checkpoint with files in directories within step-40/, such
as those of verl. These training loops should write a marker file last, and the format `generic` reads that
marker. The format does not record the step; the step is in the name.
"""

from __future__ import annotations

import re
from itertools import islice

from recover.checkpoints.entries import step_of
from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_archive import archive_bytes

__all__ = ["DIRECTORIES_MAX", "HINT", "TorchSave", "parts_missing"]

_FILE = re.compile(r".+\.(?:pt|pth)", re.ASCII | re.I)
_COUNTED = re.compile(
    r"(?P<before>.*?)(?P<index>\d{1,9})[-_]?of[-_]?(?P<count>\d{1,9})(?P<after>.*)", re.ASCII
)
_PART = re.compile(
    r"model|common|optim|sched|rng|random|scaler|ema|weight|param|rank|shard|part"
    r"|(?:\b|_)(?:data|dataloader|extra_state|actor|critic)(?:\b|_)",
    re.I,
)
_TENSORS = re.compile(r".+\.(?:pt|pth|bin|ckpt|distcp|npz|safetensors)", re.ASCII | re.I)
"""Files that may be parts, of any format. The reader knows the end of the first two kinds only."""
DIRECTORIES_MAX = 32
_RANK = re.compile(r"[-_]?(?:rank|shard|part)[-_]?$", re.I)

HINT = "write a marker file last, and name the marker with ;format=generic;marker=FILE"
"""Part of a reason: the checkpoint may be complete, and no name shows that."""


class TorchSave:
    name = "torch-save"

    def recognises(self, folder: Folder) -> bool:
        return any(_FILE.fullmatch(name) for name in folder.files)

    def read(self, folder: Folder, step: int) -> Verdict:
        if step_of(folder.path.name) != step and step_of(folder.path.parent.name) == step:
            raise DamagedError(f"the names do not show whether a directory is missing; {HINT}")
        _check_directories(folder)
        names = sorted(name for name in folder.files if _FILE.fullmatch(name))
        others = sorted(name for name in folder.files if _TENSORS.fullmatch(name) and name not in names)
        if others and step_of(folder.path.name) == step:
            raise DamagedError(
                f"no name shows whether {others[0]!a:.80} beside {names[0]!a:.80} is complete; {HINT}"
            )
        counted = [match for name in names if (match := _COUNTED.fullmatch(name))]
        if counted and len(counted) == len(names):
            _check_count(counted)
        elif len(names) > 1:
            raise DamagedError(
                f"{len(names)} files, and their names do not show whether a file is missing; {HINT}"
            )
        elif _PART.search(names[0]):
            is_alone = step_of(folder.path.name) != step
            hint = f"if the file is the whole checkpoint, name it step-{step}.pt" if is_alone else HINT
            raise DamagedError(
                f"{names[0]!a:.80} has the name of a part, and no name shows whether other parts "
                f"are missing; {hint}"
            )
        return Verdict(complete=True, bytes=sum(archive_bytes(folder, name) for name in names))


def _check_directories(folder: Folder) -> None:
    """Checks that no directory beside the files has a part of the checkpoint, or is about to get one. A
    directory without tensors, such as one with logs, is no part."""
    waiting = [(name, folder, name) for name in _own(folder)]
    for _ in range(DIRECTORIES_MAX):
        if not waiting:
            return
        beside, parent, name = waiting.pop()
        inside = parent.enter(name)
        deeper = [(beside, inside, one) for one in _own(inside)]
        if any(map(_TENSORS.fullmatch, inside.files)) or not (inside.files or deeper):
            raise DamagedError(f"no name shows whether the directory {beside!a:.80} is complete; {HINT}")
        waiting += deeper
    if waiting:
        raise DamagedError(
            f"more than {DIRECTORIES_MAX} directories are beside the files, and nothing counts them; {HINT}"
        )


def _own(folder: Folder) -> list[str]:
    """Returns the directories that may be parts, and one more than the checks accept at most. No training
    hides a part, or links to it."""
    seen = (name for name in folder.folders if not name.startswith("."))
    return list(islice((name for name in seen if not folder.is_link(name)), DIRECTORIES_MAX + 1))


def _check_count(matches: list[re.Match[str]]) -> None:
    """Checks that the files have one name, and are numbered from 0 or 1 without a gap up to the count in each
    name."""
    stems = {(match["before"], match["count"], match["after"]) for match in matches}
    if len(stems) > 1:
        raise DamagedError(
            f"its files have {len(stems)} names, which do not show whether a file is missing; {HINT}"
        )
    before, count_digits, _ = stems.pop()
    if _PART.search(_RANK.sub("", before)):
        raise DamagedError(
            f"{before!a:.80}... has the name of a part, and no name shows whether other parts "
            f"are missing; {HINT}"
        )
    count = int(count_digits)
    indexes = {int(match["index"]) for match in matches}
    first = 0 if 0 in indexes else 1
    if len(matches) != count or indexes != set(range(first, first + count)):
        raise DamagedError(f"{len(matches)} of {count} rank files exist")


def parts_missing(folder: Folder, before: Folder) -> list[str]:
    """Returns the files that an older checkpoint has beside files of the same names as all files here: a save
    that writes several files was interrupted after the first. Numbers in the names may differ."""
    ours = {_without_numbers(name) for name in folder.files if _TENSORS.fullmatch(name)}
    theirs = {_without_numbers(name): name for name in sorted(before.files) if _TENSORS.fullmatch(name)}
    return [theirs[name] for name in theirs if name not in ours] if ours <= theirs.keys() else []


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)
