"""Reads checkpoints of deepspeed: the directory of one tag, `global_step40/`, ZeRO stages 0 to 3.

    mp_rank_00_model_states.pt                     stages 0 to 2: one for each model-parallel rank
    zero_pp_rank_0_mp_rank_00_model_states.pt      stage 3: one for each rank
    [bf16_]zero_pp_rank_0_mp_rank_00_optim_states.pt   one for each rank if the optimizer is partitioned

The model states say how many files there must be: dp_world_size, mp_world_size, and whether they contain the
optimizer's state. Every file must be complete. The file `latest` beside the directory is no proof, since rank
0 writes it without waiting for the others. It is required only if counts alone do not decide: layers of a
pipeline and experts have separate files (layer_*, expert_*, expp_*) that nothing counts. A missing file of
these is not noticed; it is written before the rank's states, which are counted. A checkpoint of MiCS, which
has fewer files than ranks, is refused.
Source: deepspeed/runtime/engine.py and pipe/module.py, checked against 0.19.8.
"""

from __future__ import annotations

import re

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_archive import archive_bytes, outline

__all__ = ["DeepSpeed"]

TRACKER = "latest"
TRACKER_BYTES_MAX = 1024
RANKS_MAX = 100_000

_MODEL = re.compile(r"mp_rank_(\d{2,6})_model_states\.pt", re.ASCII)
_MODEL_PARTITION = re.compile(r"zero_pp_rank_(\d{1,6})_mp_rank_(\d{2,6})_model_states\.pt", re.ASCII)
_OPTIMIZER_PARTITION = re.compile(
    r"(?P<prefix>(?:bf16_)?)zero_pp_rank_(\d{1,6})_mp_rank_(\d{2,6})_optim_states\.pt", re.ASCII
)
_UNCOUNTED = re.compile(
    r"layer_\d+-.*model_states\.pt|(?:layer_\d+_)?expert_\d+_mp_rank_\d+_model_states\.pt"
    r"|expp_rank_\d+_mp_rank_\d+_optim_states\.pt",
    re.ASCII,
)
_EXPERTS_OPTIMIZER = re.compile(r"expp_rank_\d+_mp_rank_\d+_optim_states\.pt", re.ASCII)
_KINDS = (_MODEL, _MODEL_PARTITION, _OPTIMIZER_PARTITION, _UNCOUNTED)


class DeepSpeed:
    name = "deepspeed"

    def recognises(self, folder: Folder) -> bool:
        return any(kind.fullmatch(name) for name in folder.files for kind in _KINDS)

    def read(self, folder: Folder, step: int) -> Verdict:
        # This is the step of the tag; `global_steps` inside may count differently, after a start from other
        # weights.
        del step
        needed = _needed(folder)
        uncounted = {name for name in folder.files if _UNCOUNTED.fullmatch(name)}
        if uncounted:
            _check_tracker(folder)
        names = sorted(needed | uncounted)
        return Verdict(complete=True, bytes=sum(archive_bytes(folder, name) for name in names))


def _needed(folder: Folder) -> set[str]:
    """Returns the file names that the counts in the first model states require."""
    partitioned = any(_MODEL_PARTITION.fullmatch(name) for name in folder.files)
    first = "zero_pp_rank_0_mp_rank_00_model_states.pt" if partitioned else "mp_rank_00_model_states.pt"
    state = outline(folder, first)
    match state:
        case {"dp_world_size": int(data_ranks), "mp_world_size": int(model_ranks)} if (
            data_ranks > 0 and model_ranks > 0
        ):
            pass
        case _:
            raise DamagedError(f"the file {first!a} does not say how many ranks wrote the checkpoint")
    stages = [int(match[1]) for name in folder.files if (match := _MODEL.fullmatch(name))]
    # Each stage of a pipeline has its own file.
    model_ranks = max(model_ranks, *(rank + 1 for rank in stages), 1)
    if data_ranks * model_ranks > RANKS_MAX:
        raise DamagedError(
            f"the file {first!a} says that more than {RANKS_MAX} ranks wrote the "
            "checkpoint; a scan accepts no more"
        )

    partitions = [match for name in folder.files if (match := _OPTIMIZER_PARTITION.fullmatch(name))]
    ranks = [
        f"zero_pp_rank_{data}_mp_rank_{model:02d}"
        for model in range(model_ranks)
        for data in range(data_ranks)
    ]
    if partitioned:
        needed = {f"{rank}_model_states.pt" for rank in ranks}
    else:
        needed = {f"mp_rank_{rank:02d}_model_states.pt" for rank in range(model_ranks)}
    if partitions or (state.get("optimizer") is None and not _with_experts(folder)):
        if not partitions:
            raise DamagedError("no *_optim_states.pt: the optimizer's state is missing")
        prefix = partitions[0]["prefix"]
        needed |= {f"{prefix}{rank}_optim_states.pt" for rank in ranks}
    missing = needed - folder.files
    if missing:
        raise DamagedError(f"{min(missing)!a} is missing ({len(missing)} of {len(needed)} files are missing)")
    return needed


def _with_experts(folder: Folder) -> bool:
    """Whether the files of the experts contain the optimizer, which is so without ZeRO."""
    name = min((name for name in folder.files if _EXPERTS_OPTIMIZER.fullmatch(name)), default="")
    return name != "" and outline(folder, name).get("optimizer") is not None


def _check_tracker(folder: Folder) -> None:
    """Checks the tracker. Tags of successive checkpoints differ only in their number."""
    tag = folder.read_beside(TRACKER, limit_bytes=TRACKER_BYTES_MAX)
    if tag is None:
        raise DamagedError(
            f"no file {TRACKER!a} in the folder of the checkpoints, so the save never finished"
        )
    if not tag.strip():  # the kill came between the open and the write, when all ranks had saved
        return
    said, own = (
        re.search(r"\d{1,15}$", text.strip()) for text in (tag.decode(errors="replace"), folder.path.name)
    )
    if said is None or own is None or int(said[0]) < int(own[0]):
        raise DamagedError(f"{TRACKER!a} says {tag[:80]!r}: {folder.path.name!a:.80} was never finished")
