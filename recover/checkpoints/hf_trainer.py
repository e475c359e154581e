"""Reads checkpoints of hf-trainer: the Hugging Face Trainer's `checkpoint-40/`, also with FSDP, DeepSpeed or
PEFT.

    model.safetensors | shards and index | pytorch_model*.bin | adapter_model.safetensors
                      | pytorch_model_fsdp_0/ | global_step40/ and `latest`
    optimizer.pt | optimizer.bin | optimizer_0/        (not with DeepSpeed)
    scheduler.pt                                       (may be missing with DeepSpeed)
    rng_state.pth | rng_state_<rank>.pth
    trainer_state.json                                 written last by rank 0; contains the step

Without optimizer or scheduler the Trainer silently resumes with new ones, so such a checkpoint
(save_only_model) is not complete. Missing rng_state files of the last ranks are not noticed, since nothing
counts these files; other ranks may still write theirs when rank 0 is ready. They are not needed to load.
Source: transformers/trainer.py, checked against 5.23.
"""

from __future__ import annotations

import re

import msgspec

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.hf_parts import STATE, check_parts, check_ranks, is_of_paddle
from recover.checkpoints.json_file import read_json
from recover.checkpoints.scan_result import Verdict

__all__ = ["HfTrainer"]

STATE_BYTES_MAX = 256 * 2**20
"""Maximum size. The file has a line of history for each logged step."""

TAG = "latest"
TAG_BYTES_MAX = 1024

_RNG = re.compile(r"rng_state_(\d{1,9})\.pth", re.ASCII)
_OWN = re.compile(r"trainer_state\.json|training_args\.bin|rng_state(?:_\d+)?\.pth", re.ASCII)


class _State(msgspec.Struct, frozen=True):
    global_step: int


class HfTrainer:
    name = "hf-trainer"

    def recognises(self, folder: Folder) -> bool:
        own = any(_OWN.fullmatch(name) for name in folder.files)
        return own and not any(is_of_paddle(name) for name in folder.files)

    def read(self, folder: Folder, step: int) -> Verdict:
        if STATE not in folder.files:
            raise DamagedError(f"no {STATE}, so the save never finished")
        state = read_json(folder, STATE, _State, limit_bytes=STATE_BYTES_MAX)
        if state.global_step != step:
            raise DamagedError(
                f"{STATE} says step {state.global_step}, but the name of the directory says step {step}"
            )

        parts = check_parts(folder, step)
        if not parts.weights:
            raise DamagedError("no file with weights, such as model.safetensors")
        if not parts.optimizer:
            raise DamagedError("no optimizer.pt: a resume would begin with a new optimizer")
        if parts.deepspeed:
            _check_tag(folder, parts.deepspeed)
        elif "scheduler.pt" not in folder.files:
            raise DamagedError("no scheduler.pt: a resume would begin with a new optimizer and scheduler")
        if "rng_state.pth" not in folder.files and not any(_RNG.fullmatch(name) for name in folder.files):
            raise DamagedError("no rng_state.pth: a resume would shuffle the data in another order")
        check_ranks(folder, _RNG)
        return Verdict(complete=True, bytes=parts.bytes, unread=parts.unread)


def _check_tag(folder: Folder, complete: tuple[str, ...]) -> None:
    """Checks the tracker, since the Trainer loads the checkpoint that `latest` names."""
    tag = folder.read(TAG, limit_bytes=TAG_BYTES_MAX).decode(errors="replace").strip()
    if tag not in complete:
        raise DamagedError(f"{TAG!a} names {tag!a:.80}, which does not exist")
