"""Checks the parts that checkpoints of the Hugging Face Trainer and of Accelerate share. Used by their two
readers.

Weights are safetensors or torch.save files, in shards named by an index. Weights may also be in directories:
shards of FSDP in torch-dcp, a deepspeed checkpoint, or safetensors files that Diffusers (unet/) and PEFT (a
directory of each adapter) write before everything else. If other weights exist, only the directories of
adapters count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from recover.checkpoints.deepspeed import DeepSpeed
from recover.checkpoints.folder import UNREADABLE, DamagedError, Folder
from recover.checkpoints.json_file import read_json
from recover.checkpoints.safetensors import SafetensorsFile, check_safetensors_by_name
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_archive import archive_bytes
from recover.checkpoints.torch_dcp import TorchDcp

__all__ = ["STATE", "Parts", "check_parts", "check_ranks", "is_of_paddle", "is_weights"]

STATE = "trainer_state.json"
"""The file that the Hugging Face Trainer writes last, and Accelerate never."""
INDEX_BYTES_MAX = 64 * 2**20
TENSOR_NAMES_CHARS_MAX = 32 * 2**20
"""Number of characters in the names of all tensors of a checkpoint, which stay in memory until its index was
compared. The names in the largest models have less than a megabyte."""

_WEIGHTS = re.compile(
    r"(?:model|adapter_model|pytorch_model|pytorch_model_fsdp|pytorch_lora_weights)"
    r"(?:_\d+)?(?:-\d+-of-\d+)?\.(?:safetensors|bin)",
    re.ASCII,
)
_ADAPTER = "adapter_model.safetensors"
_SHARD = re.compile(r"(?P<stem>.+)-\d+-of-\d+\.(?P<suffix>safetensors|bin)", re.ASCII)
_INDEX_SUFFIX = ".index.json"
_ARCHIVE = re.compile(
    r"(?:optimizer|scheduler|sampler|scaler|rng_state|random_states|training_args|custom_checkpoint|dl_state_dict)"
    r"(?:_\d+)?\.(?:pt|pth|bin|pkl)",
    re.ASCII,
)
_FSDP_WEIGHTS = re.compile(r"pytorch_model_fsdp_\d+", re.ASCII)
_FSDP_OPTIMIZER = re.compile(r"optimizer_\d+", re.ASCII)
_OF_PADDLE = re.compile(
    r".+\.(?:pdparams|pdopt|pdiparams|pdmodel)|(?:optimizer|master_weights)\b.*\.safetensors.*"
)


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]
    metadata: object = None
    """Other content of the index, which is of no interest for the shards."""


class Parts(msgspec.Struct, frozen=True):
    """The parts that were found, all complete. `deepspeed` names the directories of that format, `unread` a
    file that only its owner may read."""

    bytes: int
    weights: bool
    optimizer: bool
    deepspeed: tuple[str, ...] = ()
    unread: str = ""


def is_weights(name: str) -> bool:
    return _WEIGHTS.fullmatch(name.removesuffix(_INDEX_SUFFIX)) is not None


def is_of_paddle(name: str) -> bool:
    """Whether the file is PaddleNLP's. PaddleNLP's Trainer descends from the Hugging Face Trainer and kept
    some names."""
    return _OF_PADDLE.fullmatch(name) is not None


def _all_safetensors(folder: Folder) -> dict[str, SafetensorsFile]:
    found, chars = {}, 0
    for name in sorted(folder.files):
        if name.endswith(".safetensors"):
            found[name] = check_safetensors_by_name(folder, name)
            chars += sum(map(len, found[name].tensors or ()))
        if chars > TENSOR_NAMES_CHARS_MAX:
            raise DamagedError(f"the names of its tensors have more than {TENSOR_NAMES_CHARS_MAX} characters")
    return found


def _unread(files: Mapping[str, SafetensorsFile]) -> str:
    return next((name for name, file in files.items() if file.tensors is None), "")


def check_parts(folder: Folder, step: int) -> Parts:
    """Examines all files of a known kind. Raises DamagedError, which names the first damaged file."""
    tensors = _all_safetensors(folder)
    total_bytes = sum(file.size_bytes for file in tensors.values())
    archives = sorted(
        name
        for name in folder.files
        if _ARCHIVE.fullmatch(name) or (is_weights(name) and name.endswith(".bin"))
    )
    total_bytes += sum(archive_bytes(folder, name) for name in archives)
    _check_indexes(folder, tensors)

    # Beside such weights, a directory may have an export that nobody loads, and that is not finished.
    weights = has_own = any(is_weights(name) for name in (*tensors, *archives))
    unread = _unread(tensors)
    optimizer = any(name in ("optimizer.pt", "optimizer.bin") for name in archives)
    deepspeed = []
    for name in folder.folders:
        if _FSDP_WEIGHTS.fullmatch(name) or _FSDP_OPTIMIZER.fullmatch(name):
            total_bytes += _complete(name, TorchDcp().read(folder.enter(name), step))
            weights = weights or _FSDP_WEIGHTS.fullmatch(name) is not None
            optimizer = optimizer or _FSDP_OPTIMIZER.fullmatch(name) is not None
        elif DeepSpeed().recognises(inner := folder.enter(name)):
            total_bytes += _complete(name, DeepSpeed().read(inner, step))
            deepspeed.append(name)
        elif (not has_own or _ADAPTER in inner.files) and (inside := _all_safetensors(inner)):
            _check_indexes(inner, inside)
            total_bytes += sum(file.size_bytes for file in inside.values())
            weights, unread = True, unread or _unread(inside)
    return Parts(
        bytes=total_bytes,
        weights=weights or bool(deepspeed),
        optimizer=optimizer or bool(deepspeed),
        deepspeed=tuple(deepspeed),
        unread=unread,
    )


def check_ranks(folder: Folder, pattern: re.Pattern[str]) -> None:
    """Checks that the ranks' files are numbered from 0 without a gap; group 1 is the number. No file contains
    the count, so missing files of the last ranks are not noticed."""
    ranks = {int(match[1]) for name in folder.files if (match := pattern.fullmatch(name))}
    gaps = set(range(len(ranks))) - ranks
    if gaps:
        raise DamagedError(f"the file of rank {min(gaps)} is missing, but rank {max(ranks)} has a file")


def _complete(name: str, verdict: Verdict) -> int:
    if not verdict.complete:
        raise DamagedError(f"{name}: {verdict.reason}")
    return verdict.bytes


def _check_indexes(folder: Folder, files: Mapping[str, SafetensorsFile]) -> None:
    """Checks that every shard belongs to an index, and that every tensor of an index is in its shard."""
    for name in sorted(folder.files):
        shard = _SHARD.fullmatch(name)
        if shard and f"{shard['stem']}.{shard['suffix']}{_INDEX_SUFFIX}" not in folder.files:
            raise DamagedError(f"{name!a:.80} is a shard, and the index of its kind is missing")
        if not name.endswith(_INDEX_SUFFIX):
            continue
        index = read_json(folder, name, _Index, limit_bytes=INDEX_BYTES_MAX)
        for tensor, file in index.weight_map.items():
            if file not in folder.files:
                raise DamagedError(f"{file!a:.80} is missing; {name!a:.80} names it")
            held = files[file].tensors if file in files else None
            if held is not None and tensor not in held:
                raise DamagedError(f"{file!a:.80} lacks the tensor {tensor!a:.80}; {name!a:.80} names it")
        _check_sizes(name, index, files)


def _check_sizes(name: str, index: _Index, files: Mapping[str, SafetensorsFile]) -> None:
    """Checks that shards that were not all read are together as large as the index says. For shards that were
    read, their own headers say more, and the index may say too much: it counts the whole memory behind a
    tensor. If the index of a job does so, the scan finds no complete checkpoint, and the job's framework
    decides.

    Source: huggingface_hub 2.4, serialization/_torch.py, get_torch_storage_size.
    """
    shards = set(index.weight_map.values())
    needed_bytes = index.metadata.get("total_size") if isinstance(index.metadata, dict) else None
    if not isinstance(needed_bytes, int | float) or not shards <= files.keys():
        return
    unread = next((file for file in sorted(shards) if files[file].tensors is None), "")
    if not unread:
        return
    size_bytes = sum(files[file].size_bytes for file in shards)
    if size_bytes < needed_bytes:
        told = f"the shards have {size_bytes} bytes, but {name!a:.80} says {needed_bytes!s:.40} bytes"
        raise DamagedError(f"{unread!a:.80} {UNREADABLE}, and {told}")
