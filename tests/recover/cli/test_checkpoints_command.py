"""Tests `rekindle checkpoints scan` as people, scripts and the scan pod call it."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detectors.commands.exit_status import closing
from detectors.text.answers import ANSWERS_VERSION
from recover.checkpoints.marker_template import MARKER_EXPECTED
from recover.checkpoints.scan_result import (
    MESSAGE_BYTES_MAX,
    Checkpoint,
    ScanMessage,
    ScanResult,
    decode_message,
    encode_message,
    message_of,
)
from recover.cli.checkpoints_command import run
from tests.facts import missing

NO_FILE = os.strerror(errno.ENOENT)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns a root in which step-40 is complete and step-60 is half written."""
    for step in (40, 60):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "shard-0-of-1.npz").write_bytes(b"12345")
    manifest = {"format": "rekindle-sharded", "step": 40, "files": [{"name": "shard-0-of-1.npz", "bytes": 5}]}
    (tmp_path / "step-40" / "commit.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.mark.parametrize("asked", [["-o", "json"], ["--json"]], ids=" ".join)
def test_json_has_exactly_the_promised_fields(
    asked: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", str(root), *asked]) == 0

    chosen = {
        "step": 40, "path": "step-40", "format": "rekindle-sharded", "complete": True,
        "reason": "", "bytes": 5,
    }  # fmt: skip
    half = {
        "step": 60, "path": "step-60", "format": "rekindle-sharded", "complete": False,
        "bytes": 0,
    }  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert not missing(found["checkpoints"][0].pop("reason"), "commit.json", 1)
    assert found == {
        "kind": "CheckpointScan",
        "apiVersion": ANSWERS_VERSION,
        "directory": str(root),
        "chosen": chosen,
        "checkpoints": [half, chosen],
        "digests": "",
        "repairs": [],
        "ignored": [],
    }


def test_the_marker_of_the_generic_format_is_given_beside_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generic = ["scan", str(root), "-o", "json", "--format", "generic"]

    assert run([*generic, "--marker", "commit.json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"]["format"] == "generic"
    assert run(generic) == 2
    assert run(["scan", str(root), "--marker", "commit.json"]) == 2
    assert not missing(capsys.readouterr().err, "--format generic", "--marker")
    assert run([*generic, "--marker", "/etc/passwd"]) == 2
    assert not missing(capsys.readouterr().err, "'/etc/passwd'", MARKER_EXPECTED)


def test_the_text_of_a_jobs_annotation_says_what_to_scan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "step-40").mkdir()
    (tmp_path / "step-40" / "weights.bin").write_bytes(b"abc")
    (tmp_path / "step-40" / "DONE").touch()
    annotation = f"{tmp_path};format=generic;marker=step-{{step}}/DONE"

    assert run(["scan", str(tmp_path)]) == 3
    assert not missing(capsys.readouterr().out, "--format generic", "--marker")
    assert run(["scan", annotation, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"]["step"] == 40
    assert run(["scan", annotation]) == 0
    assert "0 B" not in capsys.readouterr().out, "the marker has no bytes, but the checkpoint has"
    assert run(["scan", annotation, "--format", "torch-dcp"]) == 2
    assert run(["scan", f"{tmp_path};marker=DONE"]) == 2
    assert not missing(capsys.readouterr().err, "format=generic")


@pytest.mark.parametrize(
    ("name", "file_bytes"), [("step-70.pt", 5), ("model.pt", 5), ("shard-0-of-2.npz", 7)], ids=str
)
def test_a_size_is_told_only_of_a_complete_checkpoint(
    name: str, file_bytes: int, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = root if name.startswith("step") else root / "step-80"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"1" * file_bytes)

    assert run(["scan", str(root)]) == 0

    sizes = re.findall(r" (no|chosen) +(-|\d+ B)", capsys.readouterr().out)
    assert sizes == [("no", "-"), ("no", "-"), ("chosen", "5 B")]


@pytest.mark.parametrize(
    ("marker", "facts"),
    [("DONE", ["step-40"]), ("step_{step}/DONE", ["'step_40'"])],
    ids=["usual names", "own name"],
)
def test_without_a_directory_for_the_marker_the_expected_name_is_told(
    marker: str, facts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobA" / "step_40").mkdir(parents=True)

    assert run(["scan", f"{tmp_path};format=generic;marker={marker}"]) == 3
    assert not missing(capsys.readouterr().out, *facts)


@pytest.mark.parametrize("option", [[], ["--write"]])
def test_nothing_is_repaired_without_a_checkpoint_to_resume_from(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint-20").mkdir()
    (tmp_path / "checkpoint-20" / "trainer_state.json").touch()

    assert run(["scan", str(tmp_path), "--repair", "set-aside", *option]) == 3

    told = capsys.readouterr().out
    assert not missing(told, "Nothing is repaired", "resume")
    assert "nothing to repair" not in told


@pytest.mark.parametrize("store", ["s3://a/b", "gs://a/b;format=torch-dcp"])
def test_an_object_store_is_refused_as_what_it_is(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", store]) == 2

    error = capsys.readouterr().err
    assert not missing(error, store.partition(";")[0], "object store")
    assert NO_FILE not in error


def test_people_get_a_table_and_a_sentence(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", str(root)]) == 0

    *table, sentence = capsys.readouterr().out.splitlines()
    assert not missing("\n".join(table), "step-60", "commit.json", "step-40")
    assert not missing(sentence, 40, str(root / "step-40"))


def test_a_long_reason_and_a_long_path_are_told_whole_where_nobody_has_a_terminal(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = root / ("d" * 90) / "checkpoints"
    (deep / "step-60").mkdir(parents=True)
    name = "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    manifest = {"format": "rekindle-sharded", "step": 60, "files": [{"name": name, "bytes": 5}]}
    (deep / "step-60" / "commit.json").write_text(json.dumps(manifest))

    assert run(["scan", str(deep)]) == 3

    printed = capsys.readouterr().out
    assert f"'{name}'" in printed
    *_, sentence = printed.splitlines()
    assert not missing(sentence, f"'{deep}'")


@pytest.mark.parametrize(
    "name",
    ["[/b]", "[bold green on black]ok [link=http://e.test]click[/link]", ":warning:", "[@click=quit]x"],
)
def test_the_name_of_a_file_is_shown_as_it_is_also_if_it_looks_like_markup(
    name: str, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "250")
    manifest = {"format": "rekindle-sharded", "step": 60, "files": [{"name": name, "bytes": 5}]}
    (root / "step-60" / "commit.json").write_text(json.dumps(manifest))

    assert run(["scan", str(root)]) == 0

    printed = capsys.readouterr().out
    assert "\x1b[" in printed, "drawn as on a terminal"
    assert f"{name[:70]!a}" in printed
    assert "\x1b]8" not in printed


def test_a_directory_without_names_of_checkpoints_is_told_which_ones_those_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "final-model").mkdir()

    assert run(["scan", str(tmp_path)]) == 3

    forms = ("step-40", "global_step40", "iter_0000040", "checkpoint-40", "ckpt_40", "step-40.pt")
    assert not missing(capsys.readouterr().out, *forms)


def test_a_repair_that_has_nothing_to_do_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*repair: str) -> list[str]:
        assert run(["scan", str(root), *repair]) == 0
        return capsys.readouterr().out.splitlines()

    *before, said = printed("--repair", "tracker")

    assert before == printed(), "one line more"
    assert [*before, said] == printed("--repair", "tracker", "--write")


def test_the_exit_status_says_when_none_is_complete(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", str(root), "--exclude", "40"]) == 3
    *_, sentence = capsys.readouterr().out.splitlines()
    assert not missing(sentence, f"'{root}'")


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["scan"],
        ["scan", "/", "--exclude", "x"],
        ["scan", "/", "--format", "zip"],
        ["scan", "/", "--time", "soon"],
        ["scan", "/", "--time", "nan"],
        ["scan", "/", "--time", "-1"],
    ],
)
def test_wrong_usage_has_its_own_exit_status(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    assert not missing(capsys.readouterr().err, "Usage", "rekindle checkpoints")


def test_help_tells_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", "--help"]) == 0
    assert closing("checkpoints scan") in " ".join(capsys.readouterr().out.split())


def test_the_scan_pod_writes_its_message_and_prints_nothing(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message_file = tmp_path / "termination-log"
    assert run(["scan", str(root), "--message-file", str(message_file)]) == 0

    assert capsys.readouterr().out == ""
    message = decode_message(message_file.read_bytes())
    assert message.chosen is not None
    assert message.chosen.step == 40
    assert [found.step for found in message.rejected] == [60]
    assert (message.found, message.passed_over) == (2, 1)


def test_a_root_that_cannot_be_read_is_told_in_the_message_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message_file = tmp_path / "termination-log"
    assert run(["scan", str(tmp_path / "gone"), "--message-file", str(message_file)]) == 2

    assert not missing(capsys.readouterr().err, str(tmp_path / "gone"), NO_FILE)
    assert not missing(decode_message(message_file.read_text()).error, str(tmp_path / "gone"), NO_FILE)


def test_a_message_file_that_cannot_be_written_is_told(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", str(root), "--message-file", str(root / "no" / "file")]) == 2
    assert not missing(capsys.readouterr().err, str(root / "no" / "file"), NO_FILE)


def test_the_scan_pod_loads_nothing_heavy(root: Path) -> None:
    code = (
        "import sys; from recover.cli.checkpoints_command import run\n"
        f"run(['scan', {str(root)!r}, '--message-file', {str(root / 'message')!r}])\n"
        "print({'typer', 'rich', 'numpy', 'torch', 'aiohttp', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.strip() == "set()"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # long texts, busy machine
@given(st.lists(st.text(max_size=2000), max_size=30), st.text(max_size=9000))
def test_a_message_always_fits_and_reads_back(reasons: list[str], error: str) -> None:
    found = tuple(
        Checkpoint(step, f"step-{step}", "torch-dcp", False, reason, 10**15)
        for step, reason in enumerate(reasons, start=10**14)
    )
    message = message_of(ScanResult(checkpoints=found, chosen=None))

    encoded = encode_message(message)
    decoded = decode_message(encoded)

    assert len(encoded) <= MESSAGE_BYTES_MAX
    assert decoded.rejected == message.rejected[: len(decoded.rejected)]
    assert decoded.passed_over == len(reasons)
    assert len(encode_message(ScanMessage(error=error))) <= MESSAGE_BYTES_MAX


@pytest.mark.parametrize("text", ["", "OOMKilled", "[]", '{"chosen": 3}', '{"x":' + "[" * 4000])
def test_a_message_of_another_kind_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text[:80]))):
        decode_message(text)
