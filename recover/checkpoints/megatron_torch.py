"""Reads checkpoints of megatron-torch: Megatron-LM's legacy format, `--ckpt-format torch`.

    latest_checkpointed_iteration.txt
    iter_0000040/mp_rank_00/model_optim_rng.pt
    iter_0000040/mp_rank_00/distrib_optim.pt            with --use-distributed-optimizer

A directory is mp_rank_<tensor>[_<pipeline>][_<expert>], the last two with three digits and only if there are
several.
The first file contains the arguments of the run, which say how many such directories there must be. A rank
may also leave layer_wise_optimizer_<rank>.pt; nothing counts these files, and each that exists must be
complete.
If an iteration is saved again, after a return to an older one, Megatron replaces file by file. During that
save old and new files are mixed, and only the tracker shows that.
Source: megatron/training/checkpointing.py, core 0.16.
"""

from __future__ import annotations

import re
from itertools import product

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.inert_pickle import Scalar
from recover.checkpoints.megatron import check_tracker
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_archive import Outline, archive_bytes, outline

__all__ = ["MegatronTorch"]

STATE = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"
RANKS_MAX = 100_000

_RANK = re.compile(r"mp_rank_\d{2,}(?:_\d{3,}){0,2}", re.ASCII)
_DISTRIBUTED = frozenset({"common.pt", "metadata.json", ".metadata"})
_LAYER_WISE = re.compile(r"layer_wise_optimizer_\d+\.pt", re.ASCII)


class MegatronTorch:
    name = "megatron-torch"

    def recognises(self, folder: Folder) -> bool:
        # In the distributed formats such a directory may have the state of Energon's data loader.
        return folder.files.isdisjoint(_DISTRIBUTED) and any(map(_RANK.fullmatch, folder.folders))

    def read(self, folder: Folder, step: int) -> Verdict:
        check_tracker(folder, step)
        first = min(name for name in folder.folders if _RANK.fullmatch(name))
        state = outline(folder.enter(first), STATE)
        if state.get("iteration") != step:
            raise DamagedError(f"{first}/{STATE} says iteration {state.get('iteration')!a:.40}, not {step}")
        arguments = _arguments(state)

        total_bytes = 0
        for name in _rank_names(arguments):
            rank = folder.enter(name)
            files = {STATE} | {other for other in rank.files if _LAYER_WISE.fullmatch(other)}
            if arguments.get("use_distributed_optimizer") and not arguments.get("no_save_optim"):
                files.add(OPTIMIZER)
            try:
                total_bytes += sum(archive_bytes(rank, file) for file in sorted(files))
            except DamagedError as error:
                raise DamagedError(f"{name}: {error}") from error
        return Verdict(complete=True, bytes=total_bytes)


def _arguments(state: Outline) -> dict[str, Scalar]:
    arguments = state.get("args")
    if not isinstance(arguments, dict) or not arguments:
        raise DamagedError(f"{STATE} contains no arguments, so the number of ranks is not known")
    return arguments


def _rank_names(arguments: dict[str, Scalar]) -> list[str]:
    kinds = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
    tensor, pipeline, expert = (_count(arguments, kind) for kind in kinds)
    if tensor * pipeline * expert > RANKS_MAX:
        raise DamagedError(
            f"the parallel sizes in {STATE} make more than {RANKS_MAX} model-parallel ranks, the most that "
            "Rekindle accepts"
        )
    return [
        f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "") + (f"_{e:03d}" if expert > 1 else "")
        for t, p, e in product(range(tensor), range(pipeline), range(expert))
    ]


def _count(arguments: dict[str, Scalar], kind: str) -> int:
    count = arguments.get(kind, 1 if kind.startswith("expert") else None)
    if not isinstance(count, int) or count < 1:
        raise DamagedError(f"{STATE} does not say {kind}, so the number of ranks is not known")
    return count
