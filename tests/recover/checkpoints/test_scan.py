"""Scans real directories: each kind of damage becomes a reason, and the scan chooses only complete
checkpoints."""

import errno
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recover.checkpoints import READERS
from recover.checkpoints import folder as folder_module
from recover.checkpoints.entries import step_of
from recover.checkpoints.folder import FORBIDDEN, TOO_LARGE, UNREADABLE
from recover.checkpoints.scan import ScanError, scan
from recover.checkpoints.scan_result import Checkpoint, ScanResult
from tests.facts import names

TORCH_FIXTURE = Path(__file__).parent / "fixtures" / "torch-dcp-2.15.0" / "step-40"
SHARD_BYTES = 100


def sharded(root: Path, step: int, *, name: str = "", ranks: int = 2) -> Path:
    """Writes a complete checkpoint of the format rekindle-sharded."""
    directory = root / (name or f"step-{step}")
    directory.mkdir(parents=True)
    names = [f"shard-{rank}-of-{ranks}.npz" for rank in range(ranks)]
    for shard in names:
        (directory / shard).write_bytes(b"x" * SHARD_BYTES)
    files = [{"name": shard, "bytes": SHARD_BYTES, "sha256": "-"} for shard in names]
    manifest = {"format": "rekindle-sharded", "step": step, "files": files}
    (directory / "commit.json").write_bytes(msgspec.json.encode(manifest))
    return directory


def torch_dcp(root: Path, name: str = "step-40") -> Path:
    """Copies a complete checkpoint that torch wrote."""
    return Path(shutil.copytree(TORCH_FIXTURE, root / name))


def only(result: ScanResult) -> Checkpoint:
    (checkpoint,) = result.checkpoints
    return checkpoint


def steps(result: ScanResult) -> list[int]:
    return [checkpoint.step for checkpoint in result.checkpoints]


def test_the_newest_complete_checkpoint_is_chosen_and_the_half_written_one_passed_over(
    tmp_path: Path,
) -> None:
    sharded(tmp_path, 20)
    sharded(tmp_path, 40)
    (sharded(tmp_path, 60) / "commit.json").unlink()

    result = scan(tmp_path)

    assert steps(result) == [60, 40, 20]
    assert names(result.checkpoints[0].reason, "commit.json", 2)
    assert result.chosen == Checkpoint(40, "step-40", "rekindle-sharded", True, "", 2 * SHARD_BYTES)


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        sharded(tmp_path, step)

    assert steps(scan(tmp_path)) == [100, 20, 9]


@pytest.mark.parametrize(
    "name",
    ["step-40", "step_40", "iter_0000040", "checkpoint-40", "global_step40", "40", "ckpt-40", "Step 40"],
)
def test_the_step_is_read_from_the_usual_directory_names(name: str) -> None:
    assert step_of(name) == (None if " " in name else 40)


@pytest.mark.parametrize(
    "name", ["latest", "step-", "step-40.tmp", "x-40", "step-4 0", "step-٤٠", "-", "1" * 16]
)
def test_other_names_are_no_checkpoints(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()

    assert msgspec.structs.replace(scan(tmp_path), ignored=()) == ScanResult(checkpoints=(), chosen=None)


def test_names_that_look_like_checkpoints_and_show_no_step_are_listed_as_ignored(tmp_path: Path) -> None:
    for name in ("gpt-step-70.pt", "model_step50.pt", "step-40.pt", "events.12.log", "step-9.txt", "best.pt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "run-step-60").mkdir()

    assert scan(tmp_path).ignored == ("gpt-step-70.pt", "model_step50.pt", "run-step-60")
    (tmp_path / "step-40.pt").unlink()
    with pytest.raises(ScanError, match=r"cannot read a step from their names, such as 'gpt-step-70\.pt'"):
        scan(tmp_path)


def test_an_excluded_step_is_listed_but_never_chosen(tmp_path: Path) -> None:
    sharded(tmp_path, 20)
    sharded(tmp_path, 40)

    result = scan(tmp_path, exclude={40})

    assert result.checkpoints[0].complete
    assert result.checkpoints[0].reason
    assert result.chosen is not None
    assert result.chosen.step == 20


def test_what_is_older_than_the_choice_is_not_opened_when_only_the_choice_matters(tmp_path: Path) -> None:
    sharded(tmp_path, 20)
    sharded(tmp_path, 40)

    result = scan(tmp_path, until_chosen=True)

    assert [(one.format, one.complete, bool(one.reason)) for one in result.checkpoints] == [
        ("rekindle-sharded", True, False),
        ("", False, True),
    ]


def test_when_the_time_is_over_the_rest_is_not_examined_and_not_chosen(tmp_path: Path) -> None:
    sharded(tmp_path, 20)
    sharded(tmp_path, 40)
    times = iter([0.0, 1.0])

    result = scan(tmp_path, time_s=5.0, clock=lambda: next(times, 9.0))

    assert result.chosen is None
    assert {(found.format, found.complete) for found in result.checkpoints} == {("", False)}
    assert all(names(found.reason, "5 s") for found in result.checkpoints)


def test_where_the_newest_is_too_large_to_be_judged_no_older_one_is_chosen_in_its_place(
    tmp_path: Path,
) -> None:
    """A gang of many more ranks than before writes an index that is too large to be read. The checkpoint
    may still be complete."""
    torch_dcp(tmp_path, "step-20")
    os.truncate(torch_dcp(tmp_path, "step-40") / ".metadata", 300 * 2**20)

    result = scan(tmp_path)

    assert result.chosen is None
    newest, older = result.checkpoints
    assert TOO_LARGE in newest.reason
    assert names(newest.reason, ".metadata", 314572800, 268435456)
    assert (older.format, older.complete) == ("", False)
    assert names(older.reason, 40)
    passed_over = scan(tmp_path, exclude=[40]).chosen
    assert passed_over is not None
    assert passed_over.step == 20


# Kinds of damage, each as one function with the words that the reason must contain.


def lose_a_shard(directory: Path) -> None:
    (directory / "shard-1-of-2.npz").unlink()


def truncate_a_shard(directory: Path) -> None:
    os.truncate(directory / "shard-1-of-2.npz", 7)


def empty_a_shard(directory: Path) -> None:
    os.truncate(directory / "shard-1-of-2.npz", 0)


def replace_a_shard_by_a_directory(directory: Path) -> None:
    lose_a_shard(directory)
    (directory / "shard-1-of-2.npz").mkdir()


def replace_a_shard_by_a_fifo(directory: Path) -> None:
    lose_a_shard(directory)
    os.mkfifo(directory / "shard-1-of-2.npz")


def link_a_shard_to_itself(directory: Path) -> None:
    lose_a_shard(directory)
    (directory / "shard-1-of-2.npz").symlink_to("shard-1-of-2.npz")


def truncate_the_marker(directory: Path) -> None:
    os.truncate(directory / "commit.json", 40)


def make_the_marker_no_text(directory: Path) -> None:
    (directory / "commit.json").write_bytes(b'{"format": "\x80"}')


def replace_the_marker_by_a_fifo(directory: Path) -> None:
    (directory / "commit.json").unlink()
    os.mkfifo(directory / "commit.json")


def grow_the_marker(directory: Path) -> None:
    os.truncate(directory / "commit.json", 2**40)


def name_a_file_elsewhere(directory: Path) -> None:
    marker = directory / "commit.json"
    marker.write_text(marker.read_text().replace("shard-1-of-2.npz", "../step-20/shard-1-of-2.npz"))


def say_another_step(directory: Path) -> None:
    marker = directory / "commit.json"
    marker.write_text(marker.read_text().replace('"step":40', '"step":30'))


def name_no_files(directory: Path) -> None:
    (directory / "commit.json").write_text('{"format":"rekindle-sharded","step":40,"files":[]}')


def remove_everything(directory: Path) -> None:
    for file in directory.iterdir():
        file.unlink()


def become_a_file(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_bytes(b"")


def become_a_link_in_a_circle(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.symlink_to(directory.name)


def hold_something_else(directory: Path) -> None:
    remove_everything(directory)
    (directory / "notes.txt").write_text("hello")


@pytest.mark.parametrize(
    ("damage", "facts"),
    [
        (lose_a_shard, ["'shard-1-of-2.npz'"]),
        (truncate_a_shard, ["'shard-1-of-2.npz'", 7, "commit.json", 100]),
        (empty_a_shard, ["'shard-1-of-2.npz'", 0, "commit.json", 100]),
        (replace_a_shard_by_a_directory, ["'shard-1-of-2.npz'"]),
        (replace_a_shard_by_a_fifo, ["'shard-1-of-2.npz'"]),
        (link_a_shard_to_itself, ["'shard-1-of-2.npz'", UNREADABLE, os.strerror(errno.ELOOP)]),
        (truncate_the_marker, ["commit.json", "truncated"]),
        (make_the_marker_no_text, ["commit.json", "'utf-8'", "0x80"]),
        (replace_the_marker_by_a_fifo, ["'commit.json'"]),
        (grow_the_marker, ["'commit.json'", 2**40, 33554432]),
        (name_a_file_elsewhere, ["'../step-20/shard-1-of-2.npz'"]),
        (say_another_step, ["commit.json", 30, 40]),
        (name_no_files, ["commit.json"]),
        (remove_everything, []),
        (become_a_file, []),
        (become_a_link_in_a_circle, [UNREADABLE, os.strerror(errno.ELOOP)]),
        (hold_something_else, []),
    ],
)
def test_damage_is_told_and_the_one_before_is_chosen(
    damage: object, facts: list[object], tmp_path: Path
) -> None:
    sharded(tmp_path, 20)
    assert callable(damage)
    damage(sharded(tmp_path, 40))

    result = scan(tmp_path)

    newest = result.checkpoints[0]
    assert not newest.complete
    assert newest.reason
    assert names(newest.reason, *facts)
    assert result.chosen is not None
    assert result.chosen.step == 20


def test_what_holds_nothing_of_a_checkpoint_is_told_each_in_its_own_way(tmp_path: Path) -> None:
    for step, damage in ((40, remove_everything), (60, become_a_file), (80, hold_something_else)):
        damage(sharded(tmp_path, step))

    assert len({found.reason for found in scan(tmp_path).checkpoints}) == 3


def test_a_marker_that_is_nested_deeper_than_a_stack_is_no_manifest(tmp_path: Path) -> None:
    marker = sharded(tmp_path, 40) / "commit.json"
    marker.write_text('{"format":"rekindle-sharded","step":40,"x":' + "[" * 1_000_000)

    (found,) = scan(tmp_path).checkpoints
    assert not found.complete
    assert names(found.reason, "commit.json")


def test_a_directory_without_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test replaces os.scandir, because tests may run as root, and mode bits do not stop root."""
    sharded(tmp_path, 40)
    real = os.scandir

    def refusing(directory: int) -> object:
        if os.readlink(f"/proc/self/fd/{directory}").endswith("/step-40"):
            raise PermissionError(13, "Permission denied")
        return real(directory)

    monkeypatch.setattr(os, "scandir", refusing)

    assert only(scan(tmp_path)).reason == FORBIDDEN


# The root of the checkpoints.


def test_a_missing_root_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScanError) as raised:
        scan(tmp_path / "nowhere")

    assert names(str(raised.value), tmp_path / "nowhere", os.strerror(errno.ENOENT))


def test_a_root_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ScanError) as raised:
        scan(tmp_path / "file")

    assert names(str(raised.value), tmp_path / "file", os.strerror(errno.ENOTDIR))


def test_a_root_that_is_itself_a_checkpoint_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScanError) as raised:
        scan(torch_dcp(tmp_path))

    assert names(str(raised.value), tmp_path / "step-40", "step-40/")


def test_in_a_root_with_too_many_names_nothing_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "NAMES_MAX", 3)
    for step in range(4):
        sharded(tmp_path, step, ranks=1)

    with pytest.raises(ScanError) as raised:
        scan(tmp_path)

    assert names(str(raised.value), tmp_path, 3)


def test_an_unknown_format_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScanError) as raised:
        scan(tmp_path, format_name="safetensors")

    assert names(str(raised.value), "'safetensors'", *(reader.name for reader in READERS))


def test_a_given_format_accepts_no_other(tmp_path: Path) -> None:
    sharded(tmp_path, 40)

    found = only(scan(tmp_path, format_name="torch-dcp"))
    assert not found.complete
    assert names(found.reason, "torch-dcp")


# Checkpoints one level below the root.


def test_a_checkpoint_one_level_down_counts_for_its_step(tmp_path: Path) -> None:
    torch_dcp(tmp_path / "step-40", "model")

    assert scan(tmp_path).chosen == Checkpoint(40, "step-40", "torch-dcp", True, "", 1577 + 4415)


def test_all_parts_one_level_down_must_be_complete(tmp_path: Path) -> None:
    torch_dcp(tmp_path / "step-40", "model")
    (torch_dcp(tmp_path / "step-40", "optimizer") / ".metadata").unlink()

    found = only(scan(tmp_path))

    assert not found.complete
    assert names(found.reason, "'optimizer'", ".metadata", 2)


def test_a_folder_of_a_run_is_no_checkpoint_though_its_number_looks_like_a_step(tmp_path: Path) -> None:
    """The annotation names the folder of all runs. If the folder of a run counted as a checkpoint, the
    ranks would begin at step 20241121."""
    for step in (20, 40):
        torch_dcp(tmp_path / "20241121", f"step-{step}")

    assert scan(tmp_path).chosen is None
    assert names(only(scan(tmp_path)).reason, 2)


def test_a_folder_of_a_run_with_one_checkpoint_is_none_either(tmp_path: Path) -> None:
    torch_dcp(tmp_path / "20241121", "step-40")
    torch_dcp(tmp_path, "step-60")

    result = scan(tmp_path)

    assert result.chosen is not None
    assert result.chosen.path == "step-60"


def test_a_part_one_level_down_that_has_not_begun_is_missed_where_the_checkpoint_before_has_it(
    tmp_path: Path,
) -> None:
    for name in ("model", "optimizer"):
        torch_dcp(tmp_path / "step-20", name)
    torch_dcp(tmp_path / "step-40", "model")

    newest, before = scan(tmp_path).checkpoints

    assert names(newest.reason, "'optimizer'", "'step-20'")
    assert (newest.complete, before.complete) == (False, True)


def test_a_folder_that_is_no_part_of_a_checkpoint_is_not_missed(tmp_path: Path) -> None:
    for step in ("step-20", "step-40"):
        torch_dcp(tmp_path / step, "model")
    (tmp_path / "step-20" / "evaluation").mkdir()

    assert [c.complete for c in scan(tmp_path).checkpoints] == [True, True]


# Any other files.

_NAMES = st.sampled_from(
    ["commit.json", "shard-0-of-2.npz", "shard-1-of-2.npz", ".metadata", "__0_0.distcp", "__1_0.distcp"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(_NAMES, st.binary(max_size=200)))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pickle warns of odd escapes in a damaged text
def test_whatever_bytes_lie_there_the_scan_answers_and_chooses_none(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("scan") / "step-40"
    directory.mkdir()
    for name, data in files.items():
        (directory / name).write_bytes(data)

    found = only(scan(directory.parent))

    assert not found.complete
    assert found.reason


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [lambda root: sharded(root, 40), torch_dcp])
def test_a_checkpoint_with_any_file_cut_short_is_never_chosen(
    make: object, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert callable(make)
    directory = make(tmp_path_factory.mktemp("scan"))
    assert scan(directory.parent).chosen is not None
    name = data.draw(st.sampled_from(sorted(file.name for file in directory.iterdir())))
    left_bytes = data.draw(st.integers(0, (directory / name).stat().st_size - 1))
    os.truncate(directory / name, left_bytes)

    assert scan(directory.parent).chosen is None
