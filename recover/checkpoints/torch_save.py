"""Reads checkpoints of torch-save, which a user's own training loop writes with torch.save.

    step-40.pt                     one file, or step-40/state.pt, the only such file of its directory
    step-40/state-rank-0-of-2.pt   one file for each rank, the count of ranks in its name
    step-40/state-rank-1-of-2.pt

The reader refuses several files without a count, and a file whose name says that it is a part (model.pt,
optim.pt, rank_0.pt): after a kill in the middle of a save the existing files are complete, and nothing says
which are missing. It also refuses a checkpoint whose files are in directories within step-40/. These training
loops should write a marker file last, and the format `generic` reads that marker. The format does not record
the step; the step is in the name.
"""

from __future__ import annotations

import re

from recover.checkpoints.entries import step_of
from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_archive import archive_bytes

__all__ = ["TorchSave"]

_FILE = re.compile(r".+\.(?:pt|pth)", re.ASCII | re.I)
_COUNTED = re.compile(
    r"(?P<before>.*?)(?P<index>\d{1,9})[-_]?of[-_]?(?P<count>\d{1,9})(?P<after>.*)", re.ASCII
)
_PART = re.compile(r"model|common|optim|sched|rng|random|scaler|ema|weight|param|rank|shard|part", re.I)
_RANK = re.compile(r"[-_]?(?:rank|shard|part)[-_]?$", re.I)

_HINT = "write a marker file last and name it: format=generic"


class TorchSave:
    name = "torch-save"

    def recognises(self, folder: Folder) -> bool:
        return any(_FILE.fullmatch(name) for name in folder.files)

    def read(self, folder: Folder, step: int) -> Verdict:
        if step_of(folder.path.name) != step and step_of(folder.path.parent.name) == step:
            raise DamagedError(f"the names do not show whether a directory is missing; {_HINT}")
        names = sorted(name for name in folder.files if _FILE.fullmatch(name))
        counted = [match for name in names if (match := _COUNTED.fullmatch(name))]
        if counted and len(counted) == len(names):
            _check_count(counted)
        elif len(names) > 1:
            raise DamagedError(
                f"{len(names)} files, and their names do not show whether a file is missing; {_HINT}"
            )
        elif _PART.search(names[0]):
            raise DamagedError(
                f"{names[0]!a:.80} is only a part of a checkpoint, and no name shows the other parts; {_HINT}"
            )
        return Verdict(complete=True, bytes=sum(archive_bytes(folder, name) for name in names))


def _check_count(matches: list[re.Match[str]]) -> None:
    """Checks that the files have one name, and are numbered from 0 or 1 without a gap up to the count in each
    name."""
    stems = {(match["before"], match["count"], match["after"]) for match in matches}
    if len(stems) > 1:
        raise DamagedError(
            f"files of {len(stems)} names, and the names do not show whether a file is missing; {_HINT}"
        )
    before, count_digits, _ = stems.pop()
    if _PART.search(_RANK.sub("", before)):
        raise DamagedError(
            f"{before!a:.80}... is only a part of a checkpoint, and no name shows the other parts; {_HINT}"
        )
    count = int(count_digits)
    indexes = {int(match["index"]) for match in matches}
    first = 0 if 0 in indexes else 1
    if len(matches) != count or indexes != set(range(first, first + count)):
        raise DamagedError(f"{len(matches)} of {count} rank files exist")
