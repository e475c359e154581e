"""Reads checkpoints of lightning: the `.ckpt` of PyTorch Lightning, a file of torch.save or, if sharded, a
directory.

    epoch=3-step=40.ckpt, last.ckpt                 last.ckpt has its step only inside
    epoch=3-step=40.ckpt/.metadata, __0_0.distcp    a torch-dcp; beside it meta.pt, the trainer's state, last
    last.ckpt/.metadata, __0_0.distcp, meta.pt      the same; the step is in meta.pt

Each save of a sharded last.ckpt replaces its files one by one. After a kill in the middle, meta.pt and the
index are of the earlier save, and some tensors are of the later one: only the times of the files show that.
Source: lightning/pytorch/callbacks/model_checkpoint.py and strategies/model_parallel.py, checked against 2.6.
"""

from __future__ import annotations

from recover.checkpoints.entries import step_of_file
from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.scan_result import STEP_END, Verdict
from recover.checkpoints.torch_archive import archive_bytes, outline
from recover.checkpoints.torch_dcp import TorchDcp

__all__ = ["MAYBE_OVERWRITTEN", "Lightning"]

SUFFIX, SHARDED_STATE = ".ckpt", "meta.pt"
_TENSORS = (".distcp", ".metadata")

MAYBE_OVERWRITTEN = "a later save may have overwritten the tensors"
"""Part of a reason: the times of the files say so, and a copy of the directory may have changed the times."""
_CLOCKS_APART_S = 60.0
"""Greatest difference between the clocks of nodes that write into one directory. Saves are further apart."""


class Lightning:
    name = "lightning"

    def recognises(self, folder: Folder) -> bool:
        return _is_sharded(folder) or any(name.endswith(SUFFIX) for name in folder.files)

    def read(self, folder: Folder, step: int) -> Verdict:
        if not _is_sharded(folder):
            return Verdict(
                complete=True, bytes=sum(_file_bytes(folder, name, step) for name in _files(folder))
            )
        if SHARDED_STATE not in folder.files:
            raise DamagedError(f"no {SHARDED_STATE}, so the save never finished ({len(folder.files)} files)")
        if step_of_file(folder.path.name.removesuffix(SUFFIX)) is None:
            _check_times(folder)
        tensors = TorchDcp().read(folder, step)
        if not tensors.complete:
            return tensors
        return Verdict(complete=True, bytes=tensors.bytes + _file_bytes(folder, SHARDED_STATE, step))

    def step_inside(self, folder: Folder) -> int:
        """Returns the step of a file or directory whose name does not contain it. Raises DamagedError if
        there is none."""
        if not _is_sharded(folder) and len(folder.files) > 1:
            raise DamagedError("a directory of several files, and no checkpoint of Lightning")
        name = SHARDED_STATE if _is_sharded(folder) else min(folder.files)
        step = outline(folder, name).get("global_step")
        if type(step) is not int or not 0 <= step < STEP_END:
            raise DamagedError(f"{name!a:.80} contains no global_step")
        return step


def _is_sharded(folder: Folder) -> bool:
    return SHARDED_STATE in folder.files or (
        folder.path.name.endswith(SUFFIX) and any(name.endswith(_TENSORS) for name in folder.files)
    )


def _check_times(folder: Folder) -> None:
    """Checks that the trainer's state is the last file that was written."""
    until_s = folder.modified_s(SHARDED_STATE) + _CLOCKS_APART_S
    for name in sorted(folder.files):
        if name.endswith(_TENSORS) and folder.modified_s(name) > until_s:
            raise DamagedError(f"{name!a:.80} is newer than {SHARDED_STATE}, so {MAYBE_OVERWRITTEN}")


def _files(folder: Folder) -> list[str]:
    return sorted(name for name in folder.files if name.endswith(SUFFIX))


def _file_bytes(folder: Folder, name: str, step: int) -> int:
    size_bytes = archive_bytes(folder, name)
    state = outline(folder, name)
    said = state.get("global_step", step)
    if said != step:
        told = f"step {said}" if isinstance(said, int) else "no step"
        raise DamagedError(f"the content of {name!a:.80} says {told}, but its name says step {step}")
    if "pytorch-lightning_version" in state and "optimizer_states" not in state:
        raise DamagedError(f"{name!a:.80} contains only weights, and a resume needs the optimizer")
    return size_bytes
