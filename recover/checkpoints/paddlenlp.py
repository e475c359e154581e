"""Reads checkpoints of paddlenlp: the checkpoint-<step>/ of PaddleNLP's Trainer, classic or unified.

    model_state.pdparams, optimizer.pdopt        classic; with parallelism one of each rank, as .tp01_pp00
    model-00001-of-00002.safetensors and so on, optimizer-..., and an .index.json of each         unified
    scheduler.pdparams, training_args.bin, trainer_state.json, rng_state.pth (rng_state_8.pth of 8 ranks)

The random states are gathered from all ranks and written last: if they are missing, some rank had not come so
far. The number of files that the ranks write follows from the degrees of parallelism in training_args.bin.
Source: paddlenlp/trainer/trainer.py (_save_checkpoint), training_args.py (optimizer_name_suffix) and
plugins/unified_checkpoint.py, checked against 2.8.
"""

from __future__ import annotations

import itertools
import math
import re

import msgspec

from recover.checkpoints.child_process import cpu_s_for, in_child
from recover.checkpoints.folder import NAMES_MAX, DamagedError, Folder
from recover.checkpoints.inert_pickle import Inert, Scalar, load_inert, memory_for, scalars
from recover.checkpoints.json_file import read_json
from recover.checkpoints.pickle_end import pickle_bytes
from recover.checkpoints.safetensors import check_safetensors
from recover.checkpoints.scan_result import Verdict

__all__ = ["PaddleNlp"]

STATE = "trainer_state.json"
SCHEDULER, ARGUMENTS = "scheduler.pdparams", "training_args.bin"
ARGUMENTS_BYTES_MAX = 2**20
DEGREE_MAX = 99
"""Greatest degree, the trainer's own limit: two digits in the names."""
RANKS_MAX = 100_000
STATE_BYTES_MAX = 256 * 2**20
"""Maximum size. The file contains the complete history of the log."""
INDEX_BYTES_MAX = 64 * 2**20
"""Maximum size of an index. With about 100 bytes a tensor this is more than half a million tensors."""
NAME_CHARS_MAX = 255
"""Maximum length of a file name on the file systems of Linux."""
NAMES_PER_LOOK_AT_THE_CLOCK = 1000

_OWN_DIRECTORY = re.compile(r"checkpoint-\d+", re.ASCII)
_OPTIMIZER = re.compile(
    r"(?:optimizer|master_weights)[\w.-]*\.(?:pdopt|pdparams|safetensors)(?:\.index\.json)?"
)
_MODEL = re.compile(
    r"(?:model_state|lora_model_state|prefix_model_state|model|peft_model)[\w.-]*\.(?:pdparams|safetensors)"
)
_ONE_OF = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\..+)", re.ASCII)
_RANDOM = re.compile(r"rng_state(?:_(\d{1,9}))?\.pth", re.ASCII)
_PICKLES = (".pdparams", ".pdopt", ".pth", ARGUMENTS)


class _State(msgspec.Struct, frozen=True):
    global_step: int


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class PaddleNlp:
    name = "paddlenlp"

    def recognises(self, folder: Folder) -> bool:
        ours = any(name.endswith((".pdparams", ".pdopt")) for name in folder.files)
        unified = any(
            name.startswith(("optimizer", "master_weights")) and ".safetensors" in name
            for name in folder.files
        )
        in_place = STATE in folder.files or _OWN_DIRECTORY.fullmatch(folder.path.name) is not None
        return in_place and (ours or unified)

    def read(self, folder: Folder, step: int) -> Verdict:
        _check_state(folder, step)
        indexed = _indexed(folder)
        names = folder.files | indexed
        for what, pattern in (("model", _MODEL), ("optimizer", _OPTIMIZER)):
            if not any(pattern.fullmatch(name) for name in names):
                raise DamagedError(f"no file of the {what}'s state")
        for name in (SCHEDULER, ARGUMENTS):
            folder.size_bytes(name)
        _ranks(folder)
        _check_numbered(folder, names)
        _check_ranks(folder, names)
        return Verdict(complete=True, bytes=sum(_size_of_whole(folder, name) for name in sorted(names)))


def _check_state(folder: Folder, step: int) -> None:
    if STATE not in folder.files:
        raise DamagedError(f"no {STATE}, so the save never finished ({len(folder.files)} files)")
    state = read_json(folder, STATE, _State, limit_bytes=STATE_BYTES_MAX)
    if state.global_step != step:
        raise DamagedError(
            f"{STATE} says step {state.global_step}, but the name of the directory says step {step}"
        )


def _indexed(folder: Folder) -> frozenset[str]:
    """Returns all files that the indexes name. Raises DamagedError if they name files that no directory can
    contain."""
    named: set[str] = set()
    for index in sorted(name for name in folder.files if name.endswith(".index.json")):
        decoded = read_json(folder, index, _Index, limit_bytes=INDEX_BYTES_MAX)
        if not decoded.weight_map:
            raise DamagedError(f"{index!a:.80} names no files")
        longest = max(map(len, decoded.weight_map.values()))
        if longest > NAME_CHARS_MAX:
            raise DamagedError(f"{index!a:.80} names a file with a name of {longest} characters")
        named.update(decoded.weight_map.values())
        if len(named) > NAMES_MAX:
            raise DamagedError(f"the indexes name more than {NAMES_MAX} files")
    return frozenset(named)


def _check_numbered(folder: Folder, names: frozenset[str]) -> None:
    """Checks files that are numbered like 2 of 4: all must exist, and with safetensors an index, too."""
    numbers: dict[tuple[str, str, str], set[int]] = {}
    for seen, name in enumerate(sorted(names)):
        if seen % NAMES_PER_LOOK_AT_THE_CLOCK == 0:
            folder.check_time()
        if (match := _ONE_OF.fullmatch(name)) is not None:
            stem, number, count, suffix = match.groups()
            numbers.setdefault((stem, count, suffix), set()).add(int(number))
    # Each kind is checked once, since there may be 99,999 files of one kind.
    for (stem, count, suffix), there in numbers.items():
        folder.check_time()
        missing = next((number for number in range(1, int(count) + 1) if number not in there), None)
        if missing is not None:
            part = f"{stem}-{missing:05}-of-{count}{suffix}"
            raise DamagedError(f"{part!a:.80} is missing")
        if (index := f"{stem}{suffix}.index.json") not in names:
            raise DamagedError(f"{stem!a:.40} has no index {index!a:.80}, so the save never finished")


def _ranks(folder: Folder) -> int:
    """Returns the number of ranks that saved, from the name of the random states."""
    for name in sorted(folder.files):
        if (match := _RANDOM.fullmatch(name)) is not None:
            return int(match[1] or 1)
    raise DamagedError("no rng_state: it is written last, so some rank never finished")


def _check_ranks(folder: Folder, names: frozenset[str]) -> None:
    """Checks the classic form, in which each rank of the parallel groups writes its own part, named after its
    place. The first missing file ends the check, so it tries no more places than there are names."""
    degrees = _degrees(folder)
    of_model = {axis: degrees[axis] for axis in ("tp", "pp", "moe")}
    for stem, suffix, axes in (
        ("model_state", ".pdparams", of_model),
        ("optimizer", ".pdopt", degrees),
        ("optimizer", ".safetensors", degrees),
    ):
        parts = re.compile(re.escape(stem) + r"\.\w+" + re.escape(suffix), re.ASCII)
        if not any(parts.fullmatch(name) for name in names):
            continue
        axis_names = [[f"{axis}{rank:02}" for rank in range(of)] for axis, of in axes.items() if of]
        for seen, place in enumerate(itertools.product(*axis_names)):
            if seen % NAMES_PER_LOOK_AT_THE_CLOCK == 0:
                folder.check_time()
            if (name := f"{stem}.{'_'.join(place)}{suffix}") not in names:
                raise DamagedError(f"{name!a:.80} is missing")


def _degrees(folder: Folder) -> dict[str, int]:
    """Returns the degree of each axis that appears in the names, in their order; 0 if the axis does not
    appear."""
    data = folder.read(ARGUMENTS, limit_bytes=ARGUMENTS_BYTES_MAX)
    arguments = in_child(
        ARGUMENTS,
        lambda: _arguments_in(data),
        dict[str, Scalar],
        cpu_s=cpu_s_for(len(data)),
        memory_bytes=memory_for(len(data)),
        check_time=folder.check_time,
    )
    found = {}
    for axis, field in (("tp", "tensor"), ("pp", "pipeline"), ("shard", "sharding")):
        degree = arguments.get(f"{field}_parallel_degree")
        found[axis] = degree if isinstance(degree, int) and 1 < degree <= DEGREE_MAX else 0
    ranks = _ranks(folder) // math.prod(degree or 1 for degree in found.values())
    if ranks > RANKS_MAX:
        raise DamagedError(
            f"the file {ARGUMENTS!a} says that more than {RANKS_MAX} ranks wrote the "
            "checkpoint; a scan accepts no more"
        )
    return {**found, "moe": ranks if arguments.get("use_expert_parallel") is True else 0}


def _arguments_in(data: bytes) -> dict[str, Scalar]:
    try:
        arguments = load_inert(data)
    except ValueError as error:
        raise DamagedError(f"{ARGUMENTS} is damaged: {str(error)!a:.120}") from error
    if not isinstance(arguments, Inert):
        raise DamagedError(f"{ARGUMENTS} does not contain the arguments of a trainer")
    return scalars(arguments.state)


def _size_of_whole(folder: Folder, name: str) -> int:
    if name.endswith(".safetensors"):
        return check_safetensors(folder, name).size_bytes
    if name.endswith(_PICKLES):
        return pickle_bytes(folder, name)
    return folder.size_bytes(name) if name == STATE else 0
