"""Tests checkpoints that torch, Megatron, DeepSpeed, transformers and accelerate wrote, cut in all ways.

fixtures/README.md says which library wrote which checkpoint.
"""

import argparse
import json
import math
import os
import pickle
import random
import re
import shutil
import signal
import zipfile
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recover.checkpoints import READERS
from recover.checkpoints.scan import ScanError, scan
from recover.checkpoints.scan_result import Checkpoint
from recover.checkpoints.set_aside import tracker_of
from recover.checkpoints.torch_save import DIRECTORIES_MAX
from tests.facts import names

FIXTURES = Path(__file__).parent / "fixtures"
TRACKER = "latest_checkpointed_iteration.txt"


class Case(msgspec.Struct, frozen=True):
    """A fixture and its format. `spare` are files that a resume does not need, or whose absence the format
    does not show."""

    fixture: str
    entry: str
    format: str
    spare: tuple[str, ...] = ()


SPARE_OF_TRAINER = ("config.json", "generation_config.json", "training_args.bin")

CASES = (
    Case("torch-save-2.15.0/zip", "step-40.pt", "torch-save"),
    Case("torch-save-2.15.0/legacy", "step-40.pt", "torch-save"),
    Case("torch-save-2.15.0/ranks", "step-40", "torch-save"),
    Case("megatron-torch-by-specification/tensor-2", "iter_0000040", "megatron-torch"),
    Case("megatron-torch-by-specification/tensor-2-pipeline-2", "iter_0000040", "megatron-torch"),
    Case("megatron-core-0.16.1/torch-dist", "iter_0000040", "megatron-torch-dist"),
    Case("deepspeed-0.19.8/zero-0", "global_step40", "deepspeed", ("latest",)),
    Case("deepspeed-0.19.8/zero-1-bf16", "global_step40", "deepspeed", ("latest",)),
    Case("deepspeed-0.19.8/zero-2", "global_step40", "deepspeed", ("latest",)),
    Case("deepspeed-0.19.8/zero-3", "global_step40", "deepspeed", ("latest",)),
    Case(
        "transformers-5.23.0/plain",
        "checkpoint-40",
        "hf-trainer",
        SPARE_OF_TRAINER,
    ),
    Case(
        "transformers-5.23.0/sharded",
        "checkpoint-40",
        "hf-trainer",
        SPARE_OF_TRAINER,
    ),
    Case(
        "transformers-5.23.0/two-ranks",
        "checkpoint-40",
        "hf-trainer",
        (*SPARE_OF_TRAINER, "rng_state_1.pth"),
    ),
    Case(
        "transformers-5.23.0/deepspeed",
        "checkpoint-40",
        "hf-trainer",
        (*SPARE_OF_TRAINER, "rng_state_1.pth", "scheduler.pt"),
    ),
    Case("accelerate-1.15.0/plain", "checkpoint_40", "accelerate", ("scheduler.bin",)),
    Case("accelerate-1.15.0/fsdp", "checkpoint_40", "accelerate", ("scheduler.bin", "random_states_1.pkl")),
)
HOLDS_ANOTHER_FORMAT = {
    "megatron-core-0.16.1/torch-dist": {"torch-dcp"},
    "accelerate-1.15.0/fsdp": {"torch-dcp"},
    "transformers-5.23.0/deepspeed": {"deepspeed"},
}
"""Fixture -> the inner formats that it contains. The reader of an inner format, if a job names that
format, ignores the files around it."""

FILES = [
    (case, file.relative_to(FIXTURES / case.fixture))
    for case in CASES
    for file in sorted((FIXTURES / case.fixture).rglob("*"))
    if file.is_file()
]


def named(value: object) -> str:
    return value.fixture if isinstance(value, Case) else str(value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def laid(case: Case, root: Path) -> Path:
    shutil.copytree(FIXTURES / case.fixture, root)
    return root


def case_of(fixture: str) -> Case:
    (found,) = (case for case in CASES if case.fixture == fixture)
    return found


def only(root: Path, format_name: str | None = None) -> Checkpoint:
    (found,) = scan(root, format_name=format_name).checkpoints
    return found


def reason(root: Path) -> str:
    found = only(root)
    assert not found.complete
    return found.reason


@pytest.mark.parametrize("case", CASES, ids=named)
def test_what_the_library_wrote_is_complete_and_chosen(case: Case) -> None:
    chosen = scan(FIXTURES / case.fixture).chosen

    assert chosen is not None
    assert (chosen.step, chosen.path, chosen.format, chosen.reason) == (40, case.entry, case.format, "")
    files = [file for file in (FIXTURES / case.fixture).rglob("*") if file.is_file()]
    assert 0.5 * sum(file.stat().st_size for file in files) < chosen.bytes


@pytest.mark.parametrize(("case", "file"), FILES, ids=named)
def test_without_one_of_its_files_it_is_incomplete(case: Case, file: Path, root: Path) -> None:
    (laid(case, root) / file).unlink()

    result = scan(root)
    assert (result.chosen is None) == (file.name not in case.spare)
    assert all(found.reason for found in result.checkpoints if not found.complete)


@pytest.mark.parametrize(("case", "file"), FILES, ids=named)
def test_with_one_of_its_files_cut_anywhere_it_is_incomplete(case: Case, file: Path, root: Path) -> None:
    """Exceptions are the spare files that are no archives: the scan does not read them."""
    path = laid(case, root) / file
    data = path.read_bytes()
    whole = len(data.rstrip()) if file.suffix in (".json", ".txt", "") else len(data)
    noticed = file.name not in case.spare or file.suffix in (".bin", ".pth")
    if not noticed:
        return
    for left_bytes in {0, 1, 7, whole // 4, whole // 2, 3 * whole // 4, whole - 23, whole - 1}:
        if not 0 <= left_bytes < whole or (file.name == TRACKER and left_bytes == 0):
            continue
        path.write_bytes(data[:left_bytes])

        result = scan(root)
        assert result.chosen is None, left_bytes
        assert all(found.reason for found in result.checkpoints)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("case", CASES, ids=named)
def test_whatever_is_not_yet_written_it_is_incomplete(
    case: Case, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = laid(case, tmp_path_factory.mktemp("half") / "checkpoints")
    files = [file for other, file in FILES if other == case]
    needed = [file for file in files if file.name not in case.spare]
    missing = data.draw(st.sets(st.sampled_from(files))) | {data.draw(st.sampled_from(needed))}
    gone = {file.name for file in missing}
    # Without both files, megatron-torch-dist looks like a torch-dcp. No interrupted save leaves a checkpoint
    # in this state.
    assume(not {"common.pt", "metadata.json"} <= gone)
    # Without all of these files, the rest is a checkpoint of DeepSpeed alone. The Trainer writes
    # training_args.bin before DeepSpeed's files.
    assume(not {"trainer_state.json", "training_args.bin", "rng_state_0.pth", "rng_state_1.pth"} <= gone)
    for file in missing:
        (root / file).unlink()

    with suppress(ScanError):  # the root contains no checkpoint, or looks like one itself
        assert scan(root).chosen is None


@pytest.mark.parametrize("case", CASES, ids=named)
def test_no_other_format_takes_it_for_complete(case: Case) -> None:
    taken_by = {
        reader.name
        for reader in READERS
        if reader.name not in ("generic", case.format)
        and scan(FIXTURES / case.fixture, format_name=reader.name).chosen is not None
    }
    assert taken_by == HOLDS_ANOTHER_FORMAT.get(case.fixture, set())


def test_the_newest_complete_one_is_chosen_past_a_cut_one(root: Path) -> None:
    case = case_of("transformers-5.23.0/plain")
    older, newer = laid(case, root) / "checkpoint-40", root / "checkpoint-60"
    shutil.copytree(older, newer)
    os.truncate(newer / "optimizer.pt", 100)
    (newer / "trainer_state.json").write_text('{"global_step": 60}')

    result = scan(root)

    cut, whole = result.checkpoints
    assert names(cut.reason, "'optimizer.pt'")
    assert whole.reason == ""
    assert result.chosen is not None
    assert result.chosen.path == "checkpoint-40"


def test_the_page_of_the_formats_names_each() -> None:
    page = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()

    assert [reader.name for reader in READERS if f"| `{reader.name}` |" not in page] == []


# Megatron


@pytest.mark.parametrize(("tracker", "told"), [("30", [30, 40]), ("release", ["b'release'"])])
@pytest.mark.parametrize(
    "fixture", ["megatron-torch-by-specification/tensor-2", "megatron-core-0.16.1/torch-dist"]
)
def test_an_iteration_that_the_tracker_does_not_tell_was_never_finished(
    fixture: str, tracker: str, told: list[object], root: Path
) -> None:
    (laid(case_of(fixture), root) / TRACKER).write_text(tracker)

    assert names(reason(root), TRACKER, *told)


@pytest.mark.parametrize(
    "fixture", ["megatron-torch-by-specification/tensor-2", "megatron-core-0.16.1/torch-dist"]
)
def test_an_empty_tracker_condemns_no_iteration(fixture: str, root: Path) -> None:
    """Megatron opens the file, which empties it, and then writes it, after all ranks have saved. A kill in
    between leaves complete checkpoints that no start of Megatron finds."""
    (laid(case_of(fixture), root) / TRACKER).write_text("")

    chosen = scan(root).chosen
    tracker = tracker_of(root, chosen)

    assert chosen is not None
    assert tracker is not None
    assert names(tracker.told, TRACKER, "empty")
    assert tracker.should_say == "40"


def test_an_older_iteration_than_the_tracker_tells_is_complete(root: Path) -> None:
    (laid(case_of("megatron-torch-by-specification/tensor-2"), root) / TRACKER).write_text("60\n")

    assert only(root).complete


def test_a_missing_rank_of_megatron_is_named(root: Path) -> None:
    case = case_of("megatron-torch-by-specification/tensor-2-pipeline-2")
    shutil.rmtree(laid(case, root) / case.entry / "mp_rank_01_001")

    assert names(reason(root), "'mp_rank_01_001'")


def test_an_iteration_in_the_wrong_directory_is_refused(root: Path) -> None:
    case = case_of("megatron-torch-by-specification/tensor-2")
    (laid(case, root) / case.entry).rename(root / "iter_0000030")

    assert names(reason(root), "mp_rank_00/model_optim_rng.pt", 40, 30)


# DeepSpeed


def test_a_missing_rank_of_deepspeed_is_counted(root: Path) -> None:
    case = case_of("deepspeed-0.19.8/zero-2")
    (laid(case, root) / case.entry / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()

    assert names(reason(root), "'zero_pp_rank_1_mp_rank_00_optim_states.pt'", 1, 3)


def test_layers_of_a_pipeline_need_the_tracker_too(root: Path) -> None:
    case = case_of("deepspeed-0.19.8/zero-2")
    tag = laid(case, root) / case.entry
    shutil.copy(tag / "mp_rank_00_model_states.pt", tag / "layer_00-model_00-model_states.pt")
    assert only(root).complete
    (root / "latest").write_text("")
    assert only(root).complete
    (root / "latest").write_text("global_step30")
    assert names(reason(root), "'latest'", "b'global_step30'", "'global_step40'")
    (root / "latest").unlink()
    assert names(reason(root), "'latest'")


# Hugging Face


def test_a_step_in_the_wrong_directory_is_refused(root: Path) -> None:
    case = case_of("transformers-5.23.0/plain")
    (laid(case, root) / case.entry).rename(root / "checkpoint-50")

    assert names(reason(root), "trainer_state.json", 40, 50)


def test_a_gap_in_the_ranks_is_told(root: Path) -> None:
    case = case_of("transformers-5.23.0/two-ranks")
    (laid(case, root) / case.entry / "rng_state_0.pth").unlink()

    assert names(reason(root), 0, 1)


def test_a_shard_of_another_save_is_noticed(root: Path) -> None:
    """The second shard's file contains the first shard's bytes: it is complete, but lacks the tensors that
    the index names."""
    case = case_of("transformers-5.23.0/sharded")
    first, second, *_ = sorted((laid(case, root) / case.entry).glob("model-*.safetensors"))
    shutil.copy(first, second)

    assert names(reason(root), f"'{second.name}'", "'model.safetensors.index.json'")


@pytest.mark.parametrize(
    ("files", "told", "not_told"),
    [
        (["model.safetensors"], ["random_states_0.pkl", "trainer_state.json"], "nothing"),
        (["model.safetensors", "optimizer.bin"], ["random_states_0.pkl", "trainer_state.json"], "nothing"),
        (["model.safetensors", "sampler.bin"], ["random_states_0.pkl"], "trainer_state.json"),
    ],
)
def test_a_save_that_ended_early_is_called_that_of_both_libraries_if_either_may_have_begun_it(
    files: list[str], told: list[object], not_told: str, root: Path
) -> None:
    (root / "checkpoint-40").mkdir(parents=True)
    for name in files:
        (root / "checkpoint-40" / name).touch()

    assert names(reason(root), *told)
    assert not_told not in reason(root)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("fixture", ["transformers-5.23.0/plain", "paddlenlp-2.8.1/classic"])
def test_a_history_with_a_loss_that_is_no_number_is_read(fixture: str, value: float, root: Path) -> None:
    """Python writes NaN and Infinity, which JSON does not have. They stay in the history of all later
    checkpoints: if these were refused, each restart would begin before the first such loss."""
    shutil.copytree(FIXTURES / fixture, root)
    (path,) = root.glob("checkpoint-*/trainer_state.json")
    state = json.loads(path.read_text())
    state["log_history"] += [{"grad_norm": value, "loss": 0.0, "text": ": NaN, "}, {"norms": [value, value]}]
    path.write_text(json.dumps(state, indent=2, sort_keys=True))

    assert only(root).complete


@pytest.mark.parametrize(
    "place", ["unet/diffusion_pytorch_model.safetensors", "pytorch_lora_weights.safetensors"]
)
def test_weights_that_a_hook_of_diffusers_wrote_are_read(place: str, root: Path) -> None:
    """The hook takes the model from Accelerate, and writes the model before everything else."""
    case = case_of("accelerate-1.15.0/plain")
    directory = laid(case, root) / case.entry
    (directory / place).parent.mkdir(exist_ok=True)
    weights = (directory / "model.safetensors").rename(directory / place)
    assert only(root).complete

    os.truncate(weights, 100)
    assert names(reason(root), f"'{weights.name}'")


@pytest.mark.parametrize("fixture", ["accelerate-1.15.0/plain", "transformers-5.23.0/plain"])
def test_an_unfinished_export_beside_the_weights_damages_no_checkpoint(fixture: str, root: Path) -> None:
    """For example of somebody who merges an adapter, or converts the weights."""
    case = case_of(fixture)
    directory = laid(case, root) / case.entry
    (directory / "merged").mkdir()
    (directory / "merged" / "model-00001-of-00002.safetensors").write_bytes(b"cut")

    assert only(root).complete


def test_an_adapter_in_its_own_directory_must_be_complete_beside_other_weights(root: Path) -> None:
    """PEFT writes the adapter `default` beside the directories of all other adapters."""
    case = case_of("transformers-5.23.0/plain")
    directory = laid(case, root) / case.entry
    (directory / "reference").mkdir()
    (directory / "reference" / "adapter_model.safetensors").write_bytes(b"cut")

    assert names(reason(root), "'adapter_model.safetensors'")


def written(path: Path, content: object) -> None:
    """Writes a file as torch.save does: a zip with one pickle, and no tensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))


def test_arguments_of_megatron_may_contain_a_signal(root: Path) -> None:
    """`exit_signal` is signal.SIGTERM by default in megatron/training/config/training_config.py."""
    arguments = argparse.Namespace(
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1,
        exit_signal=signal.SIGTERM,
        modules_to_filter=re.compile("x"),
    )
    state = {"iteration": 40, "args": arguments, "sampler": random.Random(1)}
    written(root / "iter_0000040" / "mp_rank_00" / "model_optim_rng.pt", state)
    (root / TRACKER).write_text("40")

    assert (only(root).format, only(root).reason) == ("megatron-torch", "")


def test_the_state_of_megatrons_data_loader_is_no_part_of_the_legacy_format(root: Path) -> None:
    """With `--dataloader-save` in the same folder, each data-parallel rank writes such a file."""
    case = case_of("megatron-core-0.16.1/torch-dist")
    place = laid(case, root) / case.entry / "mp_rank_00" / "model_optim_rng.pt"
    written(place / "train_dataloader_dprank000.pt", {})

    assert (only(root).format, only(root).reason) == ("megatron-torch-dist", "")


@pytest.mark.parametrize(("optimizer", "complete"), [({"step": 40}, True), (None, False)])
def test_without_zero_the_files_of_the_experts_have_the_optimizer(
    optimizer: object, complete: bool, root: Path
) -> None:
    """DeepSpeed then writes no optimizer into the model states, and no partitions of it."""
    tag = root / "global_step40"
    written(tag / "mp_rank_00_model_states.pt", {"dp_world_size": 1, "mp_world_size": 1})
    written(tag / "layer_0_expert_0_mp_rank_00_model_states.pt", {})
    written(tag / "expp_rank_0_mp_rank_00_optim_states.pt", {"optimizer": optimizer})
    (root / "latest").write_text("global_step40")

    assert only(root).complete == complete


# Training loops that use no framework


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["model.pt"], ["'model.pt'", "format=generic"]),
        (["state.pt", "other.pt"], [2, "format=generic"]),
        (["state-rank-0-of-2.pt"], [1, 2]),
        (["model-rank-0-of-1.pt"], ["'model-rank-'", "format=generic"]),
        (["a-0-of-1.pt", "b-0-of-1.pt"], [2, "format=generic"]),
        (["ranks/state.pt"], ["format=generic"]),
        (["data.pt"], ["'data.pt'", "format=generic"]),
        (["train_dataloader.pt"], ["'train_dataloader.pt'", "format=generic"]),
        (["state.pt", "actor/model_world_size_2_rank_0.pt"], ["'actor'", "format=generic"]),
        (["state.pt", "policy/weights/state.pt"], ["'policy'", "format=generic"]),
        (["state.pt", "llm.safetensors"], ["'llm.safetensors'", "format=generic"]),
    ],
)
def test_files_that_nothing_counts_are_refused(files: list[str], told: list[object], root: Path) -> None:
    for name in files:
        (root / "step-40" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / "torch-save-2.15.0/zip/step-40.pt", root / "step-40" / name)

    assert names(reason(root), *told)


@pytest.mark.parametrize("files", [["state.pt"], ["state-1-of-2.pth", "state-2-of-2.pth"], ["rank0of1.pt"]])
def test_one_whole_file_or_all_of_those_counted_are_complete(files: list[str], root: Path) -> None:
    (root / "step-40").mkdir(parents=True)
    for name in files:
        shutil.copy(FIXTURES / "torch-save-2.15.0/zip/step-40.pt", root / "step-40" / name)

    assert only(root).complete


def test_directories_in_a_directory_are_no_parts_either_if_none_has_tensors(root: Path) -> None:
    """For example the logs of TensorBoard, or of Weights & Biases."""
    written(root / "step-40" / "state.pt", {})
    logs = root / "step-40" / "runs" / "version_0"
    logs.mkdir(parents=True)
    (logs / "events.out.tfevents.1").write_text("")
    assert only(root).complete

    (logs / "part").mkdir()
    assert names(reason(root), "'runs'", "format=generic")

    for number in range(DIRECTORIES_MAX):
        (logs / "part" / str(number)).mkdir()
        (logs / "part" / str(number) / "log").touch()
    assert names(reason(root), DIRECTORIES_MAX, "format=generic")


def test_a_directory_without_tensors_beside_the_file_is_no_part(root: Path) -> None:
    written(root / "step-40" / "state.pt", {})
    (root / "step-40" / ".cache" / "huggingface").mkdir(parents=True)
    (root / "step-40" / "tokenizer").mkdir()
    (root / "step-40" / "tokenizer" / "tokenizer.json").write_text("{}")

    assert only(root).complete


@pytest.mark.parametrize(
    ("before", "now", "complete"),
    [
        (["netG.pt", "netD.pt"], ["netG.pt"], False),
        (["state-20.pt", "teacher-20.pt"], ["state-40.pt"], False),
        (["state.pt", "model/state.pt"], ["state.pt"], False),
        (["state.pt", "llm.safetensors"], ["state.pt"], False),
        (["state-20.pt"], ["state-40.pt"], True),
        (["old_a.pt", "old_b.pt"], ["state.pt"], True),
    ],
)
def test_the_checkpoint_before_shows_which_files_a_save_writes(
    before: list[str], now: list[str], complete: bool, root: Path
) -> None:
    for step, files in ((20, before), (40, now)):
        for name in files:
            written(root / f"step-{step}" / name, {})

    newest = scan(root).checkpoints[0]

    assert newest.complete == complete
    assert complete or names(newest.reason, "'step-20'", "format=generic")


@pytest.mark.parametrize("beside", ["step-40.json", "step-40.log", "step-40.pt.sha256"])
def test_a_file_beside_it_is_no_part_and_the_checkpoint_keeps_its_own_name(beside: str, root: Path) -> None:
    """The path that the ranks receive must exist: this is step-40.pt, not step-40."""
    root.mkdir()
    shutil.copy(FIXTURES / "torch-save-2.15.0/zip/step-40.pt", root / "step-40.pt")
    (root / beside).write_text("{}")

    assert only(root).complete
    assert only(root).path == "step-40.pt"


@pytest.mark.parametrize(
    ("fixture", "file", "text"),
    [
        ("transformers-5.23.0/sharded", "model.safetensors.index.json", b"transformer.wte"),
        ("megatron-core-0.16.1/torch-dist", "metadata.json", b"torch_dist"),
    ],
)
def test_json_that_is_no_utf_8_is_told(fixture: str, file: str, text: bytes, root: Path) -> None:
    case = case_of(fixture)
    path = laid(case, root) / case.entry / file
    path.write_bytes(path.read_bytes().replace(text, b"\x80"))

    assert names(reason(root), f"'{file}'")
