"""Tests `rekindle read-log`: what the agent would read in a log, with the numbers of the lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detectors.text.answers import ANSWERS_VERSION
from recover.cli.read_log_command import run
from tests.facts import missing

INIT = "[2025-01-09 10:30:39,921] [INFO] [logging.py:128:log_dist] [Rank 0] step=0, skipped=0, lr=[5e-05]"


def answer(path: Path, capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert run([str(path), "-o", "json", *args]) == 0
    return json.loads(capsys.readouterr().out)


def log(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "rank0.log"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def test_what_is_read_is_told_with_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(
        tmp_path,
        INIT,
        "step 1/100 loss 0.3",
        "step 2/100 loss 0.3",
        "Saving model checkpoint to out/checkpoint-2",
        "Traceback (most recent call last):",
        "ValueError: bad shape",
    )

    assert answer(path, capsys) == {
        "kind": "LogReading",
        "apiVersion": ANSWERS_VERSION,
        "lines": 6,
        "steps": [{"line": 2, "step": 1}, {"line": 3, "step": 2}],
        "armedAtLine": 3,
        "medianStepS": None,
        "saves": [{"line": 4, "step": 2}],
        "stalls": [],
        "firstError": {
            "line": 6,
            "code": "log-traceback",
            "propagated": False,
            "text": "ValueError: bad shape",
        },
        "knownIssues": [],
    }


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ("saving checkpoint at iteration 2 to /c", False),
        ("Saving model checkpoint to out/checkpoint-2", True),
    ],
)
def test_it_is_told_if_no_line_shows_when_a_checkpoint_is_complete(
    line: str, shows: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, "step 1/100 loss 0.3", "step 2/100 loss 0.3", line, "step 3/100 loss 0.3")

    assert run([str(path)]) == 0

    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if not missing(line, 1, "step 2")], "that checkpoint is told"
    grace = [line for line in said if not missing(line, "timing.checkpoint_grace_s")]
    assert bool(grace) is not shows


def test_a_single_line_is_told_and_begins_no_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(log(tmp_path, "iter 100: loss 4.8186, time 1537.05ms"), capsys)

    assert (found["steps"], found["armedAtLine"]) == ([{"line": 1, "step": 100}], None)


def test_a_log_that_ends_in_lines_of_bars_is_read_to_its_last_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bars = "".join(f"\r  {n}%|#| {n}/100 [00:{n:02}<01:00,  1.00it/s]" for n in range(1, 60))
    found = answer(log(tmp_path, "  Total optimization steps = 100", bars), capsys)

    assert (found["steps"], found["armedAtLine"]) == ([{"line": 2, "step": 59}], 2)


@pytest.mark.parametrize("form", ["{at} {text}", "{at} stdout F {text}"], ids=["kubectl", "containerd"])
def test_times_are_read_and_a_long_silence_is_told(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [f"2026-11-21T09:{30 + n // 6:02}:{n % 6 * 10:02}.123456789Z" for n in range(60)]
    lines = [form.format(at=at, text=f"step {n} loss 0.3") for n, at in enumerate(times)]
    path = log(tmp_path, *lines, form.format(at="2026-11-21T11:30:00Z", text="step 60 loss 0.3"))

    assert run([str(path)]) == 0
    steps, *told = capsys.readouterr().out.splitlines()
    assert not missing(steps, "step 0", "line 1", "step 60", "line 61", "10 s")
    (stall,) = (line for line in told if not missing(line, "rekindle.dev/hang-timeout"))
    assert not missing(stall, "line 60")


@pytest.mark.parametrize(
    "head",
    ["2026-11-21T17:{time}.123456789+08:00", "[pod/llm-0/main] 2026-11-21T09:{time}.123456789Z"],
    ids=["a node in Shanghai", "kubectl --prefix"],
)
def test_times_of_another_zone_and_behind_the_name_of_a_pod_are_read(
    head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{head.format(time=f'{30 + n // 6:02}:{n % 6 * 10:02}')} step {n} loss 0.3" for n in range(60)]

    assert run([str(log(tmp_path, *lines))]) == 0
    assert not missing(capsys.readouterr().out.splitlines()[0], "step 0", "step 59", "10 s")


def test_a_programs_own_time_is_not_the_runtimes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"2026-11-21T17:{n:02}:00+08:00 step {n} loss 0.3" for n in range(60)]

    assert run([str(log(tmp_path, *lines))]) == 0
    steps = capsys.readouterr().out.splitlines()[0]
    assert not missing(steps, "step 0", "step 59")
    assert missing(steps, "each")


@pytest.mark.parametrize(
    ("head", "times_from", "said"),
    [
        ("[2026-11-21 09:{at},123] ", 0, ("No line", "neither", "pace", "stalls")),
        ("2026-11-21T09:{at}.123456789Z ", 1, ("Not every line", "no pace", "can miss stalls")),
        ("2026-11-21T09:{at}.123456789Z ", 0, ()),
    ],
    ids=["the program's own times", "a line without a time before the others", "kubectl --timestamps"],
)
def test_it_is_told_if_a_log_without_times_of_the_runtime_cannot_show_pace_and_stalls(
    head: str, times_from: int, said: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{head.format(at=f'{n:02}:00') if n >= times_from else ''}step {n} loss 0.3" for n in range(60)]

    assert run([str(log(tmp_path, *lines))]) == 0

    told = [line for line in capsys.readouterr().out.splitlines() if "--timestamps" in line]
    assert len(told) == bool(said)
    assert not missing(" ".join(told), *said)


@pytest.mark.parametrize("form", ["{at} {text}", "{at} stdout F {text}"], ids=["kubectl", "containerd"])
def test_lines_without_a_time_show_no_stall(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bare line has an invented time, and the jump to the first real time is no silence."""
    bare = [f"step {n} loss 0.3" for n in range(100)]
    timed = [form.format(at=f"2026-11-21T09:30:{n:02}Z", text=f"step {100 + n} loss 0.3") for n in range(60)]

    found = answer(log(tmp_path, *bare, *timed, "step 160 loss 0.3"), capsys)

    assert found["stalls"] == []


def test_a_template_is_tried_and_one_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, "it=1!", "it=2!")

    assert answer(path, capsys)["steps"] == []
    assert answer(path, capsys, "--step-template", "it={step}!")["armedAtLine"] == 2
    assert run([str(path), "--step-template", "it=!"]) == 2
    assert not missing(capsys.readouterr().err, "--step-template", "'it=!'", "{step}")


def test_a_bar_that_may_be_the_trainings_is_named_with_the_annotation_that_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, *(f"{n}%|#| {n}/1000 [00:10<01:00,  1.00it/s]" for n in range(1, 9)))

    assert run([str(path)]) == 0
    assert "rekindle.dev/step-template: '| {step}/1000 ['" in capsys.readouterr().out


def test_two_numbers_that_rise_are_both_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for number in range(1, 9):
        lines += [f"step {8 * number} loss 0.3", f"iter {number}: loss 4.8, time 1.00ms"]

    assert run([str(log(tmp_path, *lines))]) == 0
    told = capsys.readouterr().out.splitlines()
    (lead,) = (line for line in told if not missing(line, "nanoGPT"))
    (rival,) = (line for line in told if not missing(line, "rekindle.dev/step-template"))
    assert lead != rival


def test_numbered_steps_in_a_text_that_the_model_writes_are_not_the_trainings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ["Step 1", "Step 2", "Step 3"]

    assert run([str(log(tmp_path, "step 10 loss 0.3", *text, "step 20 loss 0.3", *text))]) == 0
    assert "Steps: read from 2 lines of 8, step 10 in line 1 to step 20 in line 5" in capsys.readouterr().out


def test_a_known_issue_is_named_with_its_first_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "Cannot allocate 2.5GB memory on GPU 0, available memory is only 512.0MB"
    again = "Cannot allocate 25.0MB memory on GPU 0, available memory is only 3.1GB"
    found = answer(log(tmp_path, text, again, again), capsys)

    (issue,) = found["knownIssues"]
    assert (issue["line"], issue["recipe"]) == (2, "paddle-autogrow-oom")


ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"


def test_an_issue_that_also_depends_on_other_facts_is_called_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, "step 1/100 loss 0.3", ILLEGAL)

    issues = {one["recipe"]: one["conditions"] for one in answer(path, capsys)["knownIssues"]}
    assert not missing(" ".join(issues["cuda-majors-apart"]), "cuda.runtime", "tencent.com/vcuda-core")

    assert run([str(path)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert not [line for line in told if line.startswith("Known issue")]
    head = told.index("Possible known issues: the log alone does not show whether the job has one of these:")
    below = told[head + 1 : head + 1 + len(issues)]
    assert [line.split()[1] for line in below] == list(issues)
    assert len(issues) > 1
    assert all(" in line 2: " in line for line in below)


CRASHED = ("paddle::memory::Alloc", "FatalError: `Segmentation fault` is detected by the operating system")


def test_the_conditions_of_a_single_possible_issue_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, *CRASHED)
    (issue,) = answer(path, capsys)["knownIssues"]

    assert run([str(path)]) == 0
    told = capsys.readouterr().out.splitlines()
    (head,) = (n for n, line in enumerate(told) if line.startswith("Possible known issue: "))
    assert issue["recipe"] in told[head]
    assert not missing("\n".join(told[head:]), *issue["conditions"])


def test_an_error_that_another_rank_caused_is_no_first_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(
        tmp_path, "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=121, OpType=ALLREDUCE"
    )

    assert run([str(path)]) == 0
    said = capsys.readouterr().out
    assert "First error: this rank has none." in said
    assert "line 1, log-nccl-timeout (a propagated error" in said


def test_alternatives_of_a_condition_stand_on_one_line_as_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, *CRASHED)

    issues = {one["recipe"]: one["conditions"] for one in answer(path, capsys)["knownIssues"]}

    requests, *single = issues["paddle-autogrow-crash"]
    assert requests.startswith("one of these: ")
    assert requests.count(";") == 4
    assert not missing(
        requests, "tencent.com/vcuda-core", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
    )
    assert not [one for one in single if "one of these" in one]


def test_an_issue_that_the_log_alone_shows_has_no_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, "RuntimeError: CUDA error: device kernel image is invalid")

    (issue,) = answer(path, capsys)["knownIssues"]
    assert (issue["recipe"], issue["conditions"]) == ("cuda-invalid-image", [])


def test_an_error_before_the_first_step_says_nothing_about_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, "Traceback (most recent call last):", "KeyError: 'lr'")

    assert run([str(path)]) == 0
    first, second, third, *_ = capsys.readouterr().out.splitlines()
    assert not missing(first, "none", "line 2")
    assert not missing(second, "run that trained")
    assert third.startswith("  Otherwise")


def test_a_file_that_is_not_there_is_told_and_a_log_of_rubbish_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(tmp_path / "none.log")]) == 2
    assert not missing(capsys.readouterr().err, str(tmp_path / "none.log"))

    rubbish = tmp_path / "rubbish.log"
    rubbish.write_bytes(b"\xff\x00\r\r\n\n" + b"step " * 100_000)
    assert answer(rubbish, capsys)["steps"] == []


@pytest.mark.parametrize(
    ("text", "args", "facts", "not_said"),
    [
        (b"", (), ("empty",), "--step-template"),
        (b"\x00\x01\x00\n" * 3, (), ("not text",), "--step-template"),
        (b"{'loss': 1.5}\n{'loss': 1.4}\n", (), ("loss", "disable_tqdm"), "--step-template"),
        (b"hello\nworld\n", ("--step-template", "step {step}/"), ("'step {step}/'",), "--step-template"),
    ],
    ids=["empty", "binary", "losses", "template"],
)
def test_a_log_without_steps_is_told_why(
    text: bytes,
    args: tuple[str, ...],
    facts: tuple[str, ...],
    not_said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(text)

    assert run([str(path), *args]) == 0

    printed = capsys.readouterr().out
    assert not missing(printed, *facts)
    assert not_said not in printed


def test_a_second_file_is_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run([str(log(tmp_path, "step 1")), "oom.log"])

    assert ended.value.code == 2
    assert not missing(capsys.readouterr().err, "too many", "oom.log")


def test_a_log_that_ends_at_a_save_is_no_proof_that_completion_is_never_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(
        tmp_path, "step 1/100 loss 0.3", "step 2/100 loss 0.2", "[Torch] Saving step-2/mp_rank_00.pt..."
    )

    assert run([str(path)]) == 0

    told = capsys.readouterr().out
    assert "The log ends before a line shows whether the checkpoint is complete" in told
    assert "timing.checkpoint_grace_s" not in told


def test_a_step_is_named_once_however_many_lines_are_about_its_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "saving checkpoint at iteration      10 to /ckpt"
    path = log(tmp_path, "step 1/100 loss 0.3", line, line, "step 2/100 loss 0.3")

    assert run([str(path)]) == 0

    assert "2 lines about checkpoints, for step 10." in capsys.readouterr().out
