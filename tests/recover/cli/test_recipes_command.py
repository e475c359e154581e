"""Tests `rekindle recipes` as people and scripts call it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from detectors.commands.exit_status import closing
from recover.cli.recipes_command import run
from recover.recipes.load import built_in, built_in_text, read
from recover.recipes.values import FACTS
from recover.stories.known_issue import change_of, verified
from tests.facts import missing
from tests.recover.recipes.cases import FIXTURES, expected, options

Captured = pytest.CaptureFixture[str]

OOM = built_in()["paddle-autogrow-oom"]
CHANGED, VERIFIED = change_of(OOM, {}), [line.text for line in verified(OOM)]
(PADDLE,) = (fixture for fixture in FIXTURES if fixture.name == "paddle-autogrow-oom.2.6.log")


def test_a_match_tells_line_change_and_verification(capsys: Captured) -> None:
    assert run(["test", "paddle-autogrow-oom", "--log", str(PADDLE), *options(PADDLE)]) == 0

    out = " ".join(capsys.readouterr().out.split())
    for text in ("paddle-autogrow-oom", *CHANGED, *VERIFIED):
        assert text in out
    assert OOM.cost in CHANGED[-1], "the cost is a part of the change"
    assert len(VERIFIED) == 4, "that one proof is enough, a log line, a step, and when it is given up"
    assert not missing(out, "tencent.com/vcuda-core", 50, 100, str(PADDLE), "line 11", "762.939697MB")
    assert not missing(out, "FLAGS_allocator_strategy=naive_best_fit")
    assert not missing(out, "FLAGS_allocator_strategy=auto_growth"), "the template sets it, and wins"
    assert not missing(out, "'Using Naive Best Fit allocation strategy'")


@pytest.mark.parametrize(("name", "one_is_enough"), [("paddle-autogrow-oom", True), ("vllm-float16", False)])
def test_where_a_recipe_has_two_proofs_it_is_told_that_one_is_enough(
    name: str, one_is_enough: bool, capsys: Captured
) -> None:
    assert run(["show", name]) == 0

    out = capsys.readouterr().out
    assert ("one of these proofs is enough:" in out) is one_is_enough
    assert not missing(out, "If no such line appears, the likely cause is")


def test_what_does_not_match_says_what_is_missing_with_status_1(capsys: Captured) -> None:
    whole_cards = ["--request", "tencent.com/vcuda-core=200"]

    assert run(["test", "paddle-autogrow-oom", "--log", str(PADDLE), *whole_cards]) == 1

    out = capsys.readouterr().out
    assert not missing(out, "tencent.com/vcuda-core", 200, 100)
    for text in CHANGED:
        assert text not in out


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["test", "paddle-autogrow"], ("'paddle-autogrow'",)),
        (["test", "none.toml"], ("none.toml",)),
        (["test", "vllm-bfloat16", "--log", "none.log"], ("--log", "'none.log'")),
        (["test", "vllm-bfloat16", "--log", "/"], ("--log", "'/'")),
        (["test", "vllm-bfloat16", "--request", "gpu"], ("--request", "'gpu'", "RESOURCE=COUNT")),
        (["test", "vllm-bfloat16", "--request", "gpu=x"], ("--request", "'gpu=x'", "gpu=")),
        (["test", "vllm-bfloat16", "--env", "A"], ("--env", "'A'", "NAME=VALUE")),
        (["test", "vllm-bfloat16", "--label", "=b"], ("--label", "'=b'", "NAME=VALUE")),
        (["test", "vllm-bfloat16", "--fact", "cuda=1"], ("--fact", "'cuda=1'", "cuda.driver")),
        (["test", "vllm-bfloat16", "--fact", "cuda.driver=new"], ("'cuda.driver=new'", "12.4")),
        (["test", "vllm-bfloat16", "--fact", "gpu.memory.free=1"], ("'gpu.memory.free=1'", "16GiB")),
        (["test", "vllm-bfloat16", "--fault", "sad"], ("--fault", "'sad'", "device-lost")),
        (["test", "vllm-bfloat16", "--framework", "x"], ("--framework", "'x'", "paddle")),
        (["test", "vllm-bfloat16", "--exit-code", "999"], ("--exit-code", 255)),
        (["test"], ("'RECIPE'",)),
        (["shake"], ("'shake'",)),
    ],
)
def test_what_cannot_be_used_is_told_on_standard_error_with_status_2(
    args: list[str], named: tuple[str | int, ...], capsys: Captured
) -> None:
    assert run(args) == 2

    out, err = capsys.readouterr()
    assert not missing(err, *named)
    assert out == ""


def test_a_name_that_is_nearly_that_of_a_recipe_gets_the_nearest(capsys: Captured) -> None:
    assert run(["show", "vllm-bfloat61"]) == 2

    assert capsys.readouterr().err.count("vllm-bfloat16") == 2, "beside all names, the nearest"


@pytest.mark.parametrize("command", ["list", "show", "test"])
def test_help_tells_the_exit_status(command: str, capsys: Captured) -> None:
    assert run([command, "--help"]) == 0

    assert closing(f"recipes {command}") in " ".join(capsys.readouterr().out.split())


def test_json_has_the_same_fields_whether_it_matches_or_not(capsys: Captured) -> None:
    (fixture,) = (one for one in FIXTURES if one.name == "vllm-bfloat16.other-number.log")

    assert run(["test", "vllm-bfloat16", "--log", str(fixture), "-o", "json"]) == 0
    matched = json.loads(capsys.readouterr().out)
    assert run(["test", "vllm-bfloat16", "-o", "json"]) == 1
    missed = json.loads(capsys.readouterr().out)

    assert matched.keys() == missed.keys()
    assert (matched["matches"], missed["matches"]) == (True, False)
    assert matched["hits"][0]["line"]["number"] == 2
    assert matched["captured"] == {"needed_major": "9", "needed_minor": "0"}
    assert any(not missing(text, "nvidia.com/gpu.compute.major", 9) for text in matched["change"])
    assert any(not missing(text, "9.0") for text in matched["change"])
    assert len(missed["missing"]) == 1


def test_a_log_comes_from_standard_input_too(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    log = b"\xff\xfe\n 10%|#   | 1/9\r 20%|##  | 2/9\rRuntimeError: CUDA_ERROR_INVALID_IMAGE\r\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log)))

    assert run(["test", "cuda-invalid-image", "--log", "-"]) == 0

    (shown,) = (line for line in capsys.readouterr().out.splitlines() if "RuntimeError" in line)
    assert not missing(shown, "line 2", "CUDA_ERROR_INVALID_IMAGE")


def test_a_log_without_line_ends_is_read_in_pieces(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "rank0.log"
    log.write_bytes(b"x" * 5_000_000 + b"\nCUDA_ERROR_INVALID_IMAGE")

    assert run(["test", "cuda-invalid-image", "--log", str(log)]) == 0

    (shown,) = (line for line in capsys.readouterr().out.splitlines() if "rank0.log" in line)
    assert not missing(shown, "line 2", "CUDA_ERROR_INVALID_IMAGE")


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_every_fixture_gives_the_same_answer_by_command(fixture: Path, capsys: Captured) -> None:
    name = expected(fixture)
    recipe, status = ("paddle-autogrow-oom", 1) if name == "none" else (name, 0)

    assert run(["test", recipe, "--log", str(fixture), *options(fixture)]) == status
    assert capsys.readouterr().err == ""


def test_all_built_in_recipes_are_listed_and_shown(capsys: Captured) -> None:
    assert run(["list", "-o", "json"]) == 0
    assert [one["metadata"]["name"] for one in json.loads(capsys.readouterr().out)["items"]] == sorted(
        built_in()
    )
    assert run(["list"]) == 0
    table = capsys.readouterr().out
    for name in built_in():
        assert name in table
        assert run(["show", name]) == 0
        shown = capsys.readouterr().out
        assert built_in()[name].title in shown
        assert built_in()[name].source in shown


def test_the_meaning_of_each_fact_that_a_recipe_compares_is_shown(capsys: Captured) -> None:
    assert run(["show", "cuda-vgpu-majors"]) == 0
    shown = " ".join(capsys.readouterr().out.split())

    for name in ("cuda.driver", "cuda.runtime", "vgpu.baseline"):
        assert f"{name}: {FACTS[name].meaning}" in shown
    assert f"gpu.compute: {FACTS['gpu.compute'].meaning}" not in shown


def test_a_built_in_recipe_is_printed_to_start_ones_own_from(tmp_path: Path, capsys: Captured) -> None:
    assert run(["show", "vllm-bfloat16", "-o", "toml"]) == 0
    text = capsys.readouterr().out
    assert text == built_in_text("vllm-bfloat16")

    own = tmp_path / "own.toml"
    own.write_text(text.replace("vllm-bfloat16", "own"))
    assert read(own).name == "own"
    assert run(["show", str(own), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "own"


@pytest.mark.parametrize("name", sorted(built_in()))
def test_a_recipe_is_printed_as_an_object_that_says_the_same(
    name: str, tmp_path: Path, capsys: Captured
) -> None:
    assert run(["show", name, "-o", "yaml"]) == 0
    file = tmp_path / "own.yaml"
    file.write_text(capsys.readouterr().out)

    assert read(file) == built_in()[name]
    assert run(["show", str(file), "-o", "yaml"]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_an_object_is_tried_on_a_log_as_a_file_is(tmp_path: Path, capsys: Captured) -> None:
    assert run(["show", "paddle-autogrow-oom", "-o", "yaml"]) == 0
    file = tmp_path / "own.yaml"
    file.write_text(capsys.readouterr().out + "  disabled: true\n")

    assert run(["test", str(file), "--log", str(PADDLE), *options(PADDLE)]) == 0
    assert OOM.title in capsys.readouterr().out
    assert run(["show", str(file), "-o", "toml"]) == 2
    assert not missing(capsys.readouterr().err, "-o toml", repr(str(file)), "TOML")


def test_a_recipe_that_is_switched_off_says_so(tmp_path: Path, capsys: Captured) -> None:
    assert run(["show", "cuda-invalid-image", "-o", "yaml"]) == 0
    file = tmp_path / "own.yaml"
    file.write_text(capsys.readouterr().out + "  disabled: true\n")

    first = []
    for recipe in ("cuda-invalid-image", str(file)):
        assert run(["show", recipe]) == 0
        first.append(capsys.readouterr().out.splitlines()[1])

    assert first[0] != first[1]


def test_control_codes_of_a_log_do_not_reach_the_terminal(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("\x1b[2J\x1b[31mCUDA_ERROR_INVALID_IMAGE\x1b[0m\n")

    assert run(["test", "cuda-invalid-image", "--log", str(log)]) == 0

    assert "\x1b" not in capsys.readouterr().out


def test_a_log_with_more_lines_of_interest_than_are_read_gets_no_half_answer(
    tmp_path: Path, capsys: Captured
) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("CUDA_ERROR_INVALID_IMAGE\n" * 10_001)

    assert run(["test", "cuda-invalid-image", "--log", str(log)]) == 2

    assert not missing(capsys.readouterr().err, "--log", repr(str(log)), 10000)


def test_a_recipe_of_log_lines_without_a_log_says_that_none_was_given(capsys: Captured) -> None:
    assert run(["test", "paddle-autogrow-oom"]) == 1
    assert not missing(capsys.readouterr().err, "no log", "--log")


def test_a_wrong_command_gets_the_commands_that_there_are(capsys: Captured) -> None:
    assert run(["shake"]) == 2
    assert not missing(capsys.readouterr().err, "list", "show", "test")
