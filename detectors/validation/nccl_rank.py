"""Runs one rank of nccl.py's exchange: `python -m detectors.validation.nccl_rank WHO BACKEND MEETING RANKS
RANK`.

The process ends with 0 if each sum in which it took part was right; otherwise its last line says what was
wrong.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["main"]

_WORDS = 2**24
"""Number of float32 words in 64 MiB, which is large enough that NCCL splits the data over all its
channels."""
_ROUNDS = 5


def main() -> int:
    who, backend, meeting, ranks_text, rank_text = sys.argv[1:]
    ranks, rank = int(ranks_text), int(rank_text)
    import torch  # noqa: PLC0415  only here: it is optional
    from torch import distributed  # noqa: PLC0415

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(backend, init_method=f"file://{meeting}", world_size=ranks, rank=rank)
    for members in _groups(who, ranks):
        group = distributed.new_group(members)  # every rank calls this, in the same order
        if rank in members and (wrong := _wrong(torch, distributed, device, members, group)):
            print(wrong, flush=True)
            os._exit(1)  # the others may wait for us in NCCL, and an orderly end would wait for them
    distributed.destroy_process_group()
    return 0


def _groups(who: str, ranks: int) -> list[list[int]]:
    if who == "all":
        return [list(range(ranks))]
    return [sorted((rank, (rank + 1) % ranks)) for rank in range(ranks if ranks > 2 else 1)]


def _wrong(torch: Any, distributed: Any, device: Any, members: list[int], group: Any) -> str:
    """Returns a description of the wrong sums; empty if all are right. With integers like these each sum is
    exact, in any order."""
    own = torch.arange(_WORDS, dtype=torch.float32, device=device) % 1024
    expected = sum((own + member for member in members), torch.zeros_like(own))
    for number in range(_ROUNDS):
        data = own + distributed.get_rank()
        distributed.all_reduce(data, group=group)
        if wrong := int((data != expected).sum()):
            return f"{wrong} of {_WORDS} sums of ranks {members} are wrong in round {number + 1}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
