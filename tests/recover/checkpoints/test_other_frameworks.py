"""Tests checkpoints that the real libraries Lightning, Orbax, Paddle and PaddleNLP wrote, complete and
damaged."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from recover.checkpoints import READERS
from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.lightning import MAYBE_OVERWRITTEN
from recover.checkpoints.marker_template import TemplateError, parse_marker
from recover.checkpoints.pickle_end import pickle_bytes
from recover.checkpoints.scan import scan
from recover.checkpoints.scan_result import Checkpoint
from tests.facts import names

FIXTURES = Path(__file__).parent / "fixtures"


class Case(msgspec.Struct, frozen=True):
    """A fixture and its newest step. `blind` are the endings of files whose loss or cut cannot be seen,
    because no other file says what they should be. `unsized` are the endings of files whose loss is seen
    and whose cut is not."""

    folder: str
    format: str
    step: int
    blind: tuple[str, ...] = ()
    unsized: tuple[str, ...] = ()


ORBAX_BLIND = ("/_sharding", "/process_0", "orbax.checkpoint", "40/commit_success.txt")
CASES = [
    Case("lightning-2.6.6/stepped", "lightning", 6),
    Case("lightning-2.6.6/undated", "lightning", 6),
    Case("paddle-3.3.1/files", "paddle", 40),
    Case("paddle-3.3.1/folders", "paddle", 40),
    Case("paddlenlp-2.8.1/classic", "paddlenlp", 4),
    Case("paddlenlp-2.8.1/unified", "paddlenlp", 4, blind=("/config.json",)),
    Case("orbax-0.12.8/manager", "orbax", 40, blind=ORBAX_BLIND, unsized=("commit_success.txt",)),
    Case("orbax-0.12.8/bare", "orbax", 40, blind=ORBAX_BLIND),
    Case("orbax-0.12.8/v1", "orbax", 40, blind=ORBAX_BLIND),
    Case("orbax-0.12.8/noocdbt", "orbax", 40, blind=ORBAX_BLIND, unsized=("/0", "/0.0")),
]


def chosen(root: Path) -> Checkpoint | None:
    return scan(root).chosen


def newest_files(root: Path, step: int) -> list[Path]:
    """Returns the files of the checkpoint from which the job resumes."""
    taken = chosen(root)
    assert taken is not None
    assert taken.step == step
    path = root / taken.path
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return sorted(file for file in root.iterdir() if path.name in (file.name, file.stem))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_what_the_library_wrote_is_complete_and_of_its_format(case: Case) -> None:
    found = chosen(FIXTURES / case.folder)

    assert found is not None
    assert (found.step, found.format, found.reason) == (case.step, case.format, "")
    assert found.bytes > 0


def lost(file: Path) -> None:
    file.unlink()


def cut_to_nothing(file: Path) -> None:
    os.truncate(file, 0)


def cut_to_a_byte(file: Path) -> None:
    os.truncate(file, 1)


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def cut_by_a_byte(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


CUTS = (cut_to_a_byte, cut_in_half, cut_by_a_byte)


def can_be_seen(case: Case, file: Path, damage: Callable[[Path], None]) -> bool:
    if str(file).endswith(case.blind):
        return False
    if damage is lost:  # no file that is read gives the number of data files of an OCDBT database
        return file.parent.name != "d" or len(list(file.parent.iterdir())) == 1
    if damage in CUTS and str(file).endswith(case.unsized):
        return False
    data = file.read_bytes()
    return len(data) > 1 and not (damage is cut_by_a_byte and data.endswith(b"\n"))


@pytest.mark.parametrize("damage", [lost, cut_to_nothing, *CUTS])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_with_any_file_lost_or_cut_it_is_not_chosen_and_the_reason_is_told(
    case: Case, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    source = FIXTURES / case.folder
    before = chosen(source)
    assert before is not None
    files = [file for file in newest_files(source, case.step) if can_be_seen(case, file, damage)]
    assert files
    for number, file in enumerate(files):
        root = Path(shutil.copytree(source, tmp_path / str(number)))
        damage(root / file.relative_to(source))

        result = scan(root)

        assert before != result.chosen, file
        assert all(
            not found.complete and found.reason for found in result.checkpoints if found.path == before.path
        ), file


# Damage that no cut shows: contents that disagree, saves that were not finished, ranks that are missing.


def copied(folder: str, root: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / folder, root / "run"))


def reason_of(root: Path) -> str:
    newest = scan(root).checkpoints[0]
    assert not newest.complete
    return newest.reason


def test_a_lightning_file_whose_name_says_another_step_is_refused(tmp_path: Path) -> None:
    root = copied("lightning-2.6.6/stepped", tmp_path)
    (root / "epoch=1-step=6.ckpt").rename(root / "epoch=1-step=60.ckpt")

    assert names(reason_of(root), "'epoch=1-step=60.ckpt'", 6, 60)


def test_the_step_of_last_ckpt_is_read_from_inside(tmp_path: Path) -> None:
    root = copied("lightning-2.6.6/stepped", tmp_path)
    (root / "epoch=1-step=6.ckpt").unlink()

    assert chosen(root) == Checkpoint(6, "last.ckpt", "lightning", True, "", 5769)


def test_a_last_ckpt_that_is_cut_is_listed_as_the_oldest_and_never_chosen(tmp_path: Path) -> None:
    root = copied("lightning-2.6.6/stepped", tmp_path)
    os.truncate(root / "last.ckpt", 3000)

    last = scan(root).checkpoints[-1]

    assert (last.step, last.path, last.complete) == (-1, "last.ckpt", False)
    assert names(last.reason, "'last.ckpt'")


def sharded_lightning(root: Path) -> Path:
    """Makes a checkpoint as strategies/model_parallel.py describes it: a torch-dcp and meta.pt."""
    directory = root / "run" / "epoch=1-step=6.ckpt"
    shutil.copytree(FIXTURES / "torch-dcp-2.15.0" / "step-40", directory)
    shutil.copy(FIXTURES / "lightning-2.6.6" / "stepped" / "last.ckpt", directory / "meta.pt")
    return directory


def test_a_sharded_lightning_checkpoint_needs_its_tensors_and_its_state(tmp_path: Path) -> None:
    directory = sharded_lightning(tmp_path)
    found = chosen(directory.parent)
    assert found is not None
    assert (found.step, found.format) == (6, "lightning")

    (directory / "meta.pt").unlink()
    assert names(reason_of(directory.parent), "meta.pt", 3)


def test_the_step_of_a_sharded_last_ckpt_is_read_from_inside(tmp_path: Path) -> None:
    """With `save_last` and the best checkpoints by a metric, this directory may be hours newer than all
    others."""
    directory = sharded_lightning(tmp_path)
    directory.rename(directory.parent / "last.ckpt")

    found = chosen(directory.parent)
    assert found is not None
    assert (found.step, found.path, found.format) == (6, "last.ckpt", "lightning")

    (directory.parent / "last.ckpt" / "meta.pt").unlink()
    assert names(reason_of(directory.parent), "meta.pt", 3)


def test_a_sharded_last_ckpt_whose_next_save_was_killed_is_not_complete(tmp_path: Path) -> None:
    """Lightning saves into the same directory again, and writes meta.pt last: until then meta.pt and the
    index are of the earlier save."""
    directory = sharded_lightning(tmp_path)
    last = directory.rename(directory.parent / "last.ckpt")
    for name, minutes in ((".metadata", 0), ("meta.pt", 0), ("__1_0.distcp", 0), ("__0_0.distcp", 30)):
        at = 1_700_000_000 + 60 * minutes
        os.utime(last / name, times=(at, at))

    found = scan(last.parent)

    assert found.chosen is None
    assert names(reason_of(last.parent), "'__0_0.distcp'", "meta.pt")
    assert MAYBE_OVERWRITTEN in reason_of(last.parent)


def test_a_directory_of_checkpoints_is_none_whatever_its_name(tmp_path: Path) -> None:
    copied("lightning-2.6.6/stepped", tmp_path).rename(tmp_path / "all.ckpt")

    assert scan(tmp_path).chosen is None


@pytest.mark.parametrize("name", ["epoch=1-step=6.ckpt", "last.ckpt"])
def test_a_checkpoint_that_nemo_marks_as_unfinished_is_not_complete(name: str, tmp_path: Path) -> None:
    """NeMo would delete the checkpoint at its start, before it could load the checkpoint."""
    root = copied("lightning-2.6.6/stepped", tmp_path)
    marker = name.removesuffix(".ckpt") + "-unfinished"
    (root / marker).touch()

    (found,) = (found for found in scan(root).checkpoints if found.path == name)

    assert not found.complete
    assert names(found.reason, f"'{marker}'")


def test_an_orbax_save_that_still_has_its_temporary_name_is_not_complete(tmp_path: Path) -> None:
    root = copied("orbax-0.12.8/manager", tmp_path)
    (root / "40").rename(root / "40.orbax-checkpoint-tmp")

    assert reason_of(root)
    assert scan(root).checkpoints[0].path == "40.orbax-checkpoint-tmp"


def test_an_orbax_item_with_its_temporary_name_is_not_complete(tmp_path: Path) -> None:
    root = copied("orbax-0.12.8/manager", tmp_path)
    (root / "40" / "state").rename(root / "40" / "state.orbax-checkpoint-tmp-17")

    assert names(reason_of(root), "'state.orbax-checkpoint-tmp-17'")


def test_an_orbax_checkpoint_without_the_time_of_its_commit_is_not_complete(tmp_path: Path) -> None:
    """On a bucket that is mounted as a directory, Orbax writes the checkpoint in place under its final
    name."""
    root = copied("orbax-0.12.8/manager", tmp_path)
    metadata = root / "40" / "_CHECKPOINT_METADATA"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "commit_timestamp_nsecs": None}))

    assert names(reason_of(root), "_CHECKPOINT_METADATA")


def test_a_paddle_model_without_an_optimizer_is_a_save_that_was_interrupted(tmp_path: Path) -> None:
    root = copied("paddle-3.3.1/folders", tmp_path)
    (root / "step-40" / "model.pdopt").unlink()

    assert names(reason_of(root), ".pdopt")


def test_a_paddle_pickle_is_never_run(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path / 'it-ran'}",)

    root = copied("paddle-3.3.1/folders", tmp_path)
    (root / "step-40" / "model.pdopt").write_bytes(pickle.dumps(Payload()))

    scan(root)

    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_of_any_protocol_is_whole_and_cut_anywhere_it_is_not(protocol: int, tmp_path: Path) -> None:
    value = {"a": list(range(300)), "text": "é" * 300, "big": bytes(70_000), "n": -(2**70), "f": 0.5}
    data = pickle.dumps(value, protocol=protocol)
    (tmp_path / "x.pdopt").write_bytes(data)
    assert pickle_bytes(Folder(tmp_path, lambda: None), "x.pdopt") == len(data)

    for left_bytes in {*range(0, len(data), 997), *range(len(data) - 40, len(data)), 1, 2, 3, 11, 12}:
        (tmp_path / "x.pdopt").write_bytes(data[:left_bytes])
        with pytest.raises(DamagedError):
            pickle_bytes(Folder(tmp_path, lambda: None), "x.pdopt")


def test_a_paddlenlp_checkpoint_of_another_step_is_refused(tmp_path: Path) -> None:
    root = copied("paddlenlp-2.8.1/classic", tmp_path)
    (root / "checkpoint-4").rename(root / "checkpoint-8")

    assert names(reason_of(root), "trainer_state.json", 4, 8)


def test_of_four_paddlenlp_ranks_each_must_have_written_its_part(tmp_path: Path) -> None:
    """The checkpoint is made as trainer.py describes it, with the degrees in the real arguments: tensor 2,
    pipeline 2."""
    directory = copied("paddlenlp-2.8.1/classic", tmp_path) / "checkpoint-4"
    arguments = (directory / "training_args.bin").read_bytes()
    for degree in (b"tensor_parallel_degree", b"pipeline_parallel_degree"):
        at = arguments.index(b"J\xff\xff\xff\xff", arguments.index(degree))
        arguments = arguments[: at + 1] + (2).to_bytes(4, "little") + arguments[at + 5 :]
    (directory / "training_args.bin").write_bytes(arguments)
    (directory / "rng_state.pth").rename(directory / "rng_state_4.pth")
    for stem, suffix in (("model_state", "pdparams"), ("optimizer", "pdopt")):
        for place in ("tp00_pp00", "tp00_pp01", "tp01_pp00", "tp01_pp01"):
            shutil.copy(directory / f"{stem}.{suffix}", directory / f"{stem}.{place}.{suffix}")
        (directory / f"{stem}.{suffix}").unlink()
    assert chosen(directory.parent) is not None

    (directory / "optimizer.tp01_pp01.pdopt").unlink()
    assert names(reason_of(directory.parent), "'optimizer.tp01_pp01.pdopt'")


# Formats that the job's annotation defines.


def marked(root: Path, name: str, *, done: bool = True) -> None:
    (root / name / "state").mkdir(parents=True)
    (root / name / "weights.bin").write_bytes(b"x")
    if done:
        (root / name / "state" / "DONE").touch()


def test_a_marker_of_ones_own_makes_a_checkpoint_complete(tmp_path: Path) -> None:
    marked(tmp_path, "run-40-of-llm")
    marked(tmp_path, "run-60-of-llm", done=False)
    marked(tmp_path, "run-80-of-other")

    result = scan(tmp_path, format_name="generic", template=parse_marker("run-{step}-of-llm/state/DONE"))

    newest, older = result.checkpoints
    assert (newest.step, newest.complete) == (60, False)
    assert names(newest.reason, "'state/DONE'")
    assert (older.step, older.complete, older.reason) == (40, True, "")


def test_without_a_step_in_it_the_marker_is_sought_in_the_usual_directories(tmp_path: Path) -> None:
    marked(tmp_path, "step-40")

    found = scan(tmp_path, format_name="generic", template=parse_marker("state/DONE")).chosen

    assert found == Checkpoint(40, "step-40", "generic", True, "", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/DONE",
        "../DONE",
        "a//DONE",
        "step_{step}",
        "step-{stp}/DONE",
        "step_{step}/{rank}",
        "a/step_{step}/DONE",
        "{step}{step}/DONE",
        "a\nb",
        "x" * 300,
    ],
)
def test_a_marker_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        parse_marker(text)


# Each fixture against each reader.


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_each_checkpoint_is_read_by_its_own_format_and_is_complete_to_no_other(case: Case) -> None:
    root = FIXTURES / case.folder
    claims = {
        reader.name
        for reader in READERS
        if reader.name != "generic"
        for found in scan(root, format_name=reader.name).checkpoints
        if found.complete
    }

    assert claims == {case.format}


def test_every_format_is_on_the_page_of_formats() -> None:
    page = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()

    assert [reader.name for reader in READERS if f"| `{reader.name}` |" not in page] == []
