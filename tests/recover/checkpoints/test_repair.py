"""Changes that a scan makes if it is allowed to: it sets the tracker of a framework, and moves damaged
checkpoints out of the framework's sight."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recover.checkpoints.folder import UNREADABLE
from recover.checkpoints.scan import scan
from recover.checkpoints.scan_result import Checkpoint, Repair, ScanResult, decode_message
from recover.checkpoints.set_aside import repaired, tracker_of, would_repair
from recover.cli.checkpoints_command import run
from tests.facts import names

FIXTURES = Path(__file__).parent / "fixtures"
BOTH = frozenset(Repair)
MARK = "job-llm-1a2b-1"
KEPT = f"latest.rekindle-before-{MARK}"
ASIDE = f"rekindle-set-aside-{MARK}"


def checkpoint(
    step: int, *, complete: bool, format_: str = "deepspeed", reason: str = "never finished"
) -> Checkpoint:
    name = f"global_step{step}"
    return Checkpoint(step, name, format_, complete, "" if complete else reason, 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns a root in which DeepSpeed's `latest` names step 60, which lacks a file, and in which step 40
    is complete."""
    for step in (40, 60):
        (tmp_path / f"global_step{step}").mkdir()
        (tmp_path / f"global_step{step}" / "data").write_text(f"of {step}")
    (tmp_path / "latest").write_text("global_step60\n")
    return tmp_path


FOUND = ScanResult(
    (checkpoint(60, complete=False), checkpoint(40, complete=True)), checkpoint(40, complete=True)
)


def mended(root: Path, result: ScanResult = FOUND, allowed: frozenset[Repair] = BOTH) -> list[str]:
    return repaired(root, result, tracker_of(root, result.chosen), allowed, MARK)


def everything(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(root)): path.read_text() for path in files}


REPAIRED = {
    "latest": "global_step40",
    KEPT: "global_step60\n",
    "global_step40/data": "of 40",
    f"{ASIDE}/global_step60/data": "of 60",
}


def test_the_tracker_names_the_chosen_one_and_the_damaged_newer_one_is_out_of_sight(root: Path) -> None:
    lines = mended(root)

    assert everything(root) == REPAIRED
    tracker, moved = lines
    assert names(tracker, "latest", "'global_step40'", "'global_step60'", KEPT)
    assert names(moved, "'global_step60'", ASIDE)


def test_of_a_checkpoint_that_is_several_files_all_are_out_of_sight(tmp_path: Path) -> None:
    """Otherwise a framework that takes the highest number would load the model of one checkpoint and the
    optimizer of another."""
    files = FIXTURES / "paddle-3.3.1" / "files"
    for file in files.iterdir():
        for step in (40, 60):
            shutil.copy(file, tmp_path / f"step-{step}{file.suffix}")
    os.truncate(tmp_path / "step-60.pdopt", 7)
    (tmp_path / "step-601.log").touch()

    lines = mended(tmp_path, scan(tmp_path))

    for line, end in zip(lines, ("pdopt", "pdparams"), strict=True):
        assert names(line, f"'step-60.{end}'", ASIDE)
    assert sorted(os.listdir(tmp_path)) == [ASIDE, "step-40.pdopt", "step-40.pdparams", "step-601.log"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param("20241121/step-20/x.distcp 20241121/step-60/x.distcp", id="folder of another run"),
        pytest.param("2024/notes.txt", id="year of notes"),
        pytest.param("20241121", id="file"),
    ],
)
def test_what_may_be_no_checkpoint_stays(tmp_path: Path, other: str) -> None:
    """A bare number may be the name of a run or a year. Another job may be writing there."""
    shutil.copytree(FIXTURES / "torch-dcp-2.15.0" / "step-40", tmp_path / "step-40")
    for name in other.split():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of others")
        if name.endswith("distcp"):
            shutil.copytree(tmp_path / "step-40", path.parent, dirs_exist_ok=True)
    before = sorted(tmp_path.rglob("*"))

    result = scan(tmp_path)

    assert result.chosen is not None
    assert result.chosen.path == "step-40"
    assert would_repair(tmp_path, result, None, BOTH) == []
    assert mended(tmp_path, result) == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["60", "checkpoint-60"])
def test_an_empty_newer_directory_is_out_of_sight(tmp_path: Path, name: str) -> None:
    """Frameworks that take the highest number fail there at each start."""
    shutil.copytree(FIXTURES / "torch-dcp-2.15.0" / "step-40", tmp_path / "step-40")
    (tmp_path / name).mkdir()

    mended(tmp_path, scan(tmp_path))

    assert sorted(os.listdir(tmp_path)) == [ASIDE, "step-40"]


def test_more_files_than_checkpoints_have_are_left_to_a_person(tmp_path: Path) -> None:
    """A rename takes as long as the file system needs, and the scan does not check its time between
    renames."""
    (tmp_path / "80.pdparams").touch()
    for number in range(64):
        (tmp_path / f"80.x{number}").touch()
    damaged = Checkpoint(80, "80", "paddle", complete=False, reason="'80.pdopt' is cut short", bytes=0)
    before = everything(tmp_path)

    result = ScanResult((damaged, checkpoint(40, complete=True)), FOUND.chosen)

    (line,) = mended(tmp_path, result)

    assert "65" in line
    assert would_repair(tmp_path, result, None, BOTH) == [line], "and a person is told the same before"
    assert everything(tmp_path) == before


def test_however_many_files_are_moved_the_disk_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = [checkpoint(step, complete=False) for step in (60, 80, 100)]
    for found in damaged:
        for suffix in ("pdparams", "pdopt"):
            (tmp_path / f"{found.path}.{suffix}").touch()
    with crashing(10**6, monkeypatch) as made:
        lines = mended(tmp_path, ScanResult((*damaged, checkpoint(40, complete=True)), FOUND.chosen))

    assert len(lines) == 6
    assert made == ["mkdir", *["rename"] * 6, "fsync", "fsync"]


def test_nothing_is_done_without_its_own_consent(root: Path) -> None:
    before = everything(root)
    assert mended(root, allowed=frozenset()) == []
    assert everything(root) == before

    mended(root, allowed=frozenset({Repair.TRACKER}))
    assert (root / "global_step60").is_dir()
    assert tracker_of(root, FOUND.chosen) is None


def test_a_person_is_told_what_would_be_done_and_nothing_is(root: Path) -> None:
    before = everything(root)

    tracker, aside = would_repair(root, FOUND, tracker_of(root, FOUND.chosen), BOTH)

    assert names(tracker, "latest", "'global_step40'", "'global_step60'")
    assert names(aside, "'global_step60'", FOUND.checkpoints[0].reason)
    assert everything(root) == before


class CrashError(BaseException):
    """Stands for the end of the process."""


@contextmanager
def crashing(at: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Lets the process crash at the changing system call with this number, before the call. Yields the
    names of the calls before it."""
    made: list[str] = []

    def through(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            if len(made) == at:
                raise CrashError
            made.append(name)
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for name in ("rename", "write", "mkdir", "fsync", "fchmod"):
            patched.setattr(os, name, through(name, getattr(os, name)))
        yield made


def test_after_a_crash_at_any_instant_nothing_is_lost_and_the_next_run_completes_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = Path(shutil.copytree(root, tmp_path_factory.mktemp("whole") / "root"))
    with crashing(10**6, monkeypatch) as made:
        mended(whole)
    assert len(made) > 8

    for at in range(len(made)):
        copy = Path(shutil.copytree(root, tmp_path_factory.mktemp("crash") / "root"))
        with crashing(at, monkeypatch), pytest.raises(CrashError):
            mended(copy)
        assert (copy / "latest").read_text() in ("global_step60\n", "global_step40")
        told = everything(copy)
        assert {"of 40", "of 60"} <= set(told.values())
        assert "global_step60\n" in told.values()

        left = [c for c in FOUND.checkpoints if (copy / c.path).exists()]
        mended(copy, ScanResult(tuple(left), FOUND.chosen))
        assert everything(copy) == REPAIRED


def test_a_second_run_changes_nothing(root: Path) -> None:
    mended(root)
    after = everything(root)

    assert mended(root, ScanResult((checkpoint(40, complete=True),), FOUND.chosen)) == []
    assert everything(root) == after


def test_what_could_only_not_be_read_or_is_complete_or_older_stays(root: Path) -> None:
    for step in (20, 80):
        (root / f"global_step{step}").mkdir()
    newer = checkpoint(80, complete=False, reason=f"'a' {UNREADABLE}: {os.strerror(errno.EIO)}")
    excluded = checkpoint(60, complete=True)
    older = checkpoint(20, complete=False)
    result = ScanResult((newer, excluded, checkpoint(40, complete=True), older), FOUND.chosen)

    assert mended(root, result, frozenset({Repair.SET_ASIDE})) == []


def test_what_may_be_complete_though_no_name_shows_it_stays(tmp_path: Path) -> None:
    """The owner has changed the training: it writes two files now, and a complete checkpoint of two files
    cannot be told from an interrupted one."""
    file = FIXTURES / "torch-save-2.15.0" / "zip" / "step-40.pt"
    for path in ("step-40/state.pt", "step-60/a.pt", "step-60/b.pt", "step-80/model.pt"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / path)

    assert mended(tmp_path, scan(tmp_path)) == []
    assert sorted(os.listdir(tmp_path)) == ["step-40", "step-60", "step-80"]


def test_where_none_is_complete_nothing_is_changed(root: Path) -> None:
    assert mended(root, ScanResult((checkpoint(60, complete=False),), None)) == []


def test_many_damaged_ones_are_left_to_a_person(root: Path) -> None:
    many = tuple(checkpoint(step, complete=False) for step in range(100, 109))

    lines = mended(root, ScanResult(many, FOUND.chosen), frozenset({Repair.SET_ASIDE}))

    (line,) = lines
    assert names(line, 9, 8)


def test_links_are_neither_followed_nor_moved(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "latest").write_text("global_step60")
    (root / "latest").unlink()
    (root / "latest").symlink_to(outside / "latest")
    shutil.rmtree(root / "global_step60")
    (root / "global_step60").symlink_to(outside)
    (root / ASIDE).symlink_to(outside)

    assert tracker_of(root, FOUND.chosen) is None
    (line,) = mended(root)
    assert names(line, "'global_step60'")
    assert (root / "global_step60").is_symlink()
    (root / "global_step60").unlink()
    (root / "global_step60").mkdir()
    (line,) = mended(root)
    assert names(line, "'global_step60'", os.strerror(errno.ENOTDIR))
    assert (outside / "latest").read_text() == "global_step60"


def test_a_name_that_is_taken_is_never_written_over(root: Path) -> None:
    (root / ASIDE / "global_step60").mkdir(parents=True)

    (line,) = mended(root, allowed=frozenset({Repair.SET_ASIDE}))

    assert names(line, "'global_step60'", ASIDE)
    assert (root / "global_step60" / "data").exists()


def test_what_cannot_be_written_is_told_and_the_tracker_says_what_it_said(root: Path) -> None:
    (root / f"{KEPT}.rekindle-new").mkdir()

    (line,) = mended(root, allowed=frozenset({Repair.TRACKER}))

    assert names(line, "latest", os.strerror(errno.EISDIR), "'global_step60'")
    assert (root / "latest").read_text() == "global_step60\n"


NEW = "latest.rekindle-new"


def test_a_file_outside_of_the_folder_is_not_written_through_a_link_that_was_planted(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A hard link leads out of the mounted folder, and nothing distinguishes it from an ordinary file."""
    precious = tmp_path_factory.mktemp("outside") / "precious"
    precious.write_text("precious")
    precious.chmod(0o600)
    for name in (NEW, f"{KEPT}.rekindle-new"):
        os.link(precious, root / name)
    (root / "latest").chmod(0o666)

    mended(root)

    assert precious.read_text() == "precious"
    assert precious.stat().st_mode & 0o777 == 0o600
    assert everything(root) == REPAIRED


@pytest.mark.parametrize("name", [NEW, f"{KEPT}.rekindle-new"])
def test_a_pipe_that_was_planted_holds_no_repair_up(root: Path, name: str) -> None:
    os.mkfifo(root / name)
    done: list[list[str]] = []
    repair = threading.Thread(target=lambda: done.append(mended(root)), daemon=True)

    repair.start()
    repair.join(timeout=20)

    assert done, "the repair waits for somebody who reads the pipe"
    assert everything(root) == REPAIRED


def test_what_the_tracker_said_is_kept_under_another_name_where_its_own_is_taken(root: Path) -> None:
    """The name may be taken by somebody else, or by an earlier change of the same attempt, whose undo must
    stay possible."""
    (root / KEPT).write_text("global_step80")

    (line,) = mended(root, allowed=frozenset({Repair.TRACKER}))

    assert names(line, "latest", "'global_step40'", "'global_step60'", f"{KEPT}-2")
    assert (root / KEPT).read_text() == "global_step80"
    assert (root / f"{KEPT}-2").read_text() == "global_step60\n"


def test_a_tracker_that_cannot_be_kept_is_not_rewritten(root: Path) -> None:
    for name in (KEPT, *(f"{KEPT}-{number}" for number in range(2, 9))):
        (root / name).write_text("taken")

    (line,) = mended(root, allowed=frozenset({Repair.TRACKER}))

    assert names(line, "latest", os.strerror(errno.EEXIST), "'global_step60'")
    assert (root / "latest").read_text() == "global_step60\n"


@pytest.mark.parametrize("format_", ["megatron-torch-dist", "torch-dcp"])
def test_megatrons_tracker_holds_the_number_alone(format_: str, tmp_path: Path) -> None:
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("60")
    chosen = Checkpoint(40, "iter_0000040", format_, True, "", 1)

    mended(tmp_path, ScanResult((chosen,), chosen))

    assert tracker.read_text() == "40"


# --- the command ------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Returns a root as a scan really finds it: step 40 is complete, step 60 is half written."""
    root = tmp_path / "ckpt"
    for step in (40, 60):
        (root / f"step-{step}").mkdir(parents=True)
        (root / f"step-{step}" / "shard-0-of-1.npz").write_bytes(b"12345")
    manifest = {"format": "rekindle-sharded", "step": 40, "files": [{"name": "shard-0-of-1.npz", "bytes": 5}]}
    (root / "step-40" / "commit.json").write_text(json.dumps(manifest))
    return root


def test_without_write_the_command_only_says_what_it_would_do(
    sharded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", str(sharded), "--repair", "tracker,set-aside"]) == 0

    out = capsys.readouterr().out
    assert any(names(line, "'step-60'", "commit.json") for line in out.splitlines())
    assert (sharded / "step-60").is_dir()


def test_the_scan_pod_tells_the_controller_what_it_changed(sharded: Path, tmp_path: Path) -> None:
    message = tmp_path / "message"
    write = ["--repair", "set-aside", "--write", "--mark", MARK, "--message-file", str(message)]

    assert run(["scan", str(sharded), *write]) == 0

    told = decode_message(message.read_bytes())
    (line,) = told.repaired
    assert names(line, "'step-60'", ASIDE)
    assert [found.step for found in told.rejected] == [60]
    assert [found.step for found in scan(sharded).checkpoints] == [40]


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        (["--repair", "all"], ["--repair", "'all'", "none", *Repair]),
        (["--write"], ["--write", "--repair"]),
        (["--repair", "tracker", "--write", "--mark", "../x"], ["--mark", "'../x'"]),
    ],
)
def test_wrong_usage_changes_nothing_and_says_what_was_expected(
    args: list[str], facts: list[str], sharded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", str(sharded), *args]) == 2
    assert names(capsys.readouterr().err.splitlines()[-1], *facts)
    assert sorted(os.listdir(sharded)) == ["step-40", "step-60"]


def test_deepspeed_is_led_from_a_damaged_checkpoint_of_its_own_to_the_whole_one(tmp_path: Path) -> None:
    """The checkpoints are as DeepSpeed wrote them, except that a file of the newer tag was lost."""
    fixture = Path(__file__).parent / "fixtures/deepspeed-0.19.8/zero-2/global_step40"
    root = tmp_path / "ckpt"
    for step in (40, 60):
        shutil.copytree(fixture, root / f"global_step{step}")
    min((root / "global_step60").glob("*_optim_states.pt")).unlink()
    (root / "latest").write_text("global_step60")
    message = tmp_path / "message"
    scan_pod = ["scan", str(root), "--message-file", str(message)]

    assert run(scan_pod) == 0
    assert names(decode_message(message.read_bytes()).tracker, "latest", "'global_step60'")
    assert run([*scan_pod, "--repair", "tracker,set-aside", "--write", "--mark", MARK]) == 0

    assert (root / "latest").read_text() == "global_step40"
    assert decode_message(message.read_bytes()).tracker == ""
    assert sorted(path.name for path in root.iterdir()) == ["global_step40", "latest", KEPT, ASIDE]
