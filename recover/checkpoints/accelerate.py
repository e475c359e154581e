"""Reads checkpoints of accelerate, which Accelerator.save_state writes, also with FSDP or DeepSpeed.

    model.safetensors, model_1.safetensors | shards and index | pytorch_model*.bin
                      | pytorch_model_fsdp_0/ | pytorch_model/ of DeepSpeed
                      | unet/diffusion_pytorch_model.safetensors and so on, by a hook of Diffusers
    optimizer.bin | optimizer_0/                     (not with DeepSpeed)
    scheduler.bin, sampler.bin, scaler.pt, dl_state_dict.bin, custom_checkpoint_0.pkl   if in use
    random_states_<rank>.pkl                         written by each rank after all but the custom ones

Some missing files are not noticed, since no count of them exists: a file that only some jobs use, a file of a
second model or optimizer, and the last ranks' random_states. All files but the custom ones are written before
rank 0's random_states, so a kill leaves them out together. With automatic names the number of a directory,
`checkpoint_3`, is that of the save and not the step.
Source: accelerate/checkpointing.py and accelerator.py, checked against 1.15.
"""

from __future__ import annotations

import re

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.hf_parts import STATE, check_parts, check_ranks, is_of_paddle, is_weights
from recover.checkpoints.scan_result import Verdict

__all__ = ["Accelerate"]

FIRST_RANK = "random_states_0.pkl"

_RANDOM = re.compile(r"random_states_(\d{1,9})\.pkl", re.ASCII)
_OWN = re.compile(r"random_states_\d+\.pkl|(?:optimizer|scheduler|sampler)(?:_\d+)?\.bin", re.ASCII)
_SURELY_OWN = re.compile(r"random_states_\d+\.pkl|(?:scheduler|sampler)(?:_\d+)?\.bin", re.ASCII)
"""Files that the Hugging Face Trainer never writes. Both write the weights first, and both are used with
directories such as `checkpoint-40`, so an early end leaves a directory that may be of either."""
_FSDP = re.compile(r"pytorch_model_fsdp_\d+", re.ASCII)


class Accelerate:
    name = "accelerate"

    def recognises(self, folder: Folder) -> bool:
        own = any(_OWN.fullmatch(name) or is_weights(name) for name in folder.files)
        sharded = any(_FSDP.fullmatch(name) for name in folder.folders)
        return (own or sharded) and not any(is_of_paddle(name) for name in folder.files)

    def read(self, folder: Folder, step: int) -> Verdict:
        if FIRST_RANK not in folder.files:
            surely = any(_SURELY_OWN.fullmatch(name) for name in folder.files)
            missing = FIRST_RANK if surely else f"{FIRST_RANK} (Accelerate) or {STATE} (Hugging Face Trainer)"
            raise DamagedError(f"no {missing}, so the save never finished")
        parts = check_parts(folder, step)
        if not parts.weights:
            raise DamagedError("no file with weights, such as model.safetensors")
        if not parts.optimizer:
            raise DamagedError("no optimizer.bin: the optimizer's state is missing")
        check_ranks(folder, _RANDOM)
        return Verdict(complete=True, bytes=parts.bytes, unread=parts.unread)
