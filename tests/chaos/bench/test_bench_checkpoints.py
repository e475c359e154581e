"""The bench of checkpoints counts the files that a scan reads, and a scan reads nothing older than the
checkpoint that it chooses."""

import json
import sys
from pathlib import Path

import pytest

from chaos.bench import BENCHES
from chaos.bench.checkpoints import counted, measure
from recover.checkpoints.scan import scan


def test_nothing_older_than_the_choice_is_touched_and_each_shard_of_it_once(tmp_path: Path) -> None:
    found = measure(tmp_path, checkpoints=6, shards=4, broken=2, rounds=1)

    newest, behind_two = found.touched
    assert (newest.chosen_step, newest.checkpoints, newest.older_checkpoints) == (600, 1, 0)
    assert (newest.listed, newest.sizes, newest.opened) == (2, 4 + 1, 1)
    assert (behind_two.chosen_step, behind_two.checkpoints, behind_two.older_checkpoints) == (400, 3, 0)


def test_a_scan_that_lists_everything_is_seen_to_touch_everything(tmp_path: Path) -> None:
    measure(tmp_path, checkpoints=3, shards=2, broken=1, rounds=1)

    with counted() as calls:
        scan(tmp_path)

    assert {path.name for path in calls["scandir"]} == {tmp_path.name, "step-100", "step-200", "step-300"}


def test_the_bench_leaves_nothing_behind_and_prints_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--checkpoints=3", "--shards=2", "--broken=1", "--rounds=1", f"--dir={tmp_path}"]

    assert BENCHES["checkpoints"].run([*arguments, "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in printed["rows"]] == ["scan-0", "scan-1", "command", "all"]
    assert printed["touched"][1]["chosen_step"] == 200

    assert BENCHES["checkpoints"].run(arguments) == 0
    said = capsys.readouterr().out
    assert all(str(row["chosen_step"]) in said for row in printed["touched"])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert BENCHES["checkpoints"].run([f"--dir={tmp_path}/nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_a_scan_command_that_fails_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    arguments = ["--checkpoints=2", "--shards=1", "--broken=1", "--rounds=1", f"--dir={tmp_path}"]

    assert BENCHES["checkpoints"].run(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rekindle bench checkpoints: ")
    assert "returned non-zero exit status 1" in line
