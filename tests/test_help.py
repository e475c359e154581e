"""Tests `--help` of every command, which has one style whichever library reads the arguments, and the list of
exit statuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from chaos.bench import BENCHES
from detectors.commands.exit_status import MEANINGS, UNUSABLE, Exit
from detectors.commands.main import GROUP
from tests.facts import missing

Captured = pytest.CaptureFixture[str]

BENCH = [f"bench {name}" for name in BENCHES]
COMMANDS = [*(name for name in MEANINGS if name != "bench"), *BENCH]
PARENTS = ["bench", "chaos", "checkpoints", "recipes"]
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
RUN: dict[str, Callable[[list[str]], int]] = {point.name: point.load() for point in entry_points(group=GROUP)}


def asked(called: str, *args: str) -> int:
    name, *rest = called.split()
    try:
        return RUN[name]([*rest, *args])
    except SystemExit as end:  # argparse exits by itself
        return int(end.code or 0)


def helped(called: str, flag: str, capsys: Captured) -> str:
    status = asked(called, flag)
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    return printed.out


def one_line(text: str) -> str:
    return " ".join(text.split())


def options(text: str) -> dict[str, str]:
    """Returns for each option its description in one line."""
    told: dict[str, str] = {}
    name = ""
    for line in text.partition("Options:\n")[2].split("\n\n")[0].splitlines():
        if found := re.match(r"  (-\S.*?)(  +(\S.*))?$", line):
            name = found[1]
            told[name] = found[3] or ""
        else:
            told[name] = f"{told[name]} {line.strip()}".strip()
    return told


def test_every_command_has_its_row_of_exit_statuses() -> None:
    assert {name.split()[0] for name in MEANINGS} == RUN.keys()


@pytest.mark.parametrize("called", [*COMMANDS, *PARENTS])
def test_help_begins_with_usage_and_an_imperative_sentence(called: str, capsys: Captured) -> None:
    usage, sentence, *_ = helped(called, "--help", capsys).split("\n\n")

    assert usage.startswith(f"Usage: rekindle {called} [OPTIONS]")
    first, *_ = one_line(sentence).split()
    assert sentence.startswith("  ")
    assert re.fullmatch("[A-Z][a-z]*[^s]", first), f"{first} is no imperative"
    assert one_line(sentence).endswith(".")


@pytest.mark.parametrize("called", [*COMMANDS, *PARENTS])
def test_every_option_is_described_by_a_sentence(called: str, capsys: Captured) -> None:
    told = options(helped(called, "--help", capsys))

    assert told["-h, --help"] == "Show this message and exit."
    for option, words in told.items():
        assert re.match(r"[A-Z$0-9].*[.)\]]$", words), f"{option}: {words!r}"
        assert not re.search(r"<(str|int|list)|\{", option), f"{option}: a placeholder is no type"


@pytest.mark.parametrize("called", COMMANDS)
def test_no_argument_is_described_by_a_type_of_a_library(called: str, capsys: Captured) -> None:
    usage, _, rest = helped(called, "--help", capsys).partition("\n")
    assert not re.search(r"[{}]", usage)
    assert not re.search(r"<[a-z]+>", rest)


@pytest.mark.parametrize("called", COMMANDS)
def test_help_ends_with_the_exit_statuses(called: str, capsys: Captured) -> None:
    last = one_line(helped(called, "-h", capsys).rpartition("Exit status: ")[2])

    row = MEANINGS.get(called, MEANINGS["bench"])
    for status, meaning in row.items():
        assert f"{int(status)} {meaning}" in last
    assert f"{int(Exit.UNUSABLE)} {UNUSABLE}" in last


@pytest.mark.parametrize("called", COMMANDS)
def test_an_example_is_one_line_of_the_help_at_any_width(
    called: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    told = helped(called, "--help", capsys)

    if "Example:" in told:
        command, after, *_ = told.partition("  Example:\n")[2].splitlines()
        assert command.startswith("    ")
        assert "rekindle " in command
        assert after == ""


@pytest.mark.parametrize("called", MEANINGS)
def test_the_page_of_commands_has_the_same_row(called: str) -> None:
    row = MEANINGS[called]
    cells = (row.get(status, "") for status in (Exit.GOOD, Exit.BAD, Exit.NO_ANSWER))

    assert f"| `{called}` | {' | '.join(cells)} |".replace("|  |", "| |") in PAGE.read_text()


@pytest.mark.parametrize("called", PARENTS)
def test_a_command_of_several_says_which_where_none_is_asked_for(called: str, capsys: Captured) -> None:
    assert RUN[called](["no-such"]) == Exit.UNUSABLE

    printed = capsys.readouterr()
    assert printed.out == ""
    assert not missing(printed.err, "'no-such'")


@pytest.mark.parametrize("called", ["status", "recipes list", "crds", "bench footprint"])
def test_an_argument_that_cannot_be_used_is_told_alike(called: str, capsys: Captured) -> None:
    assert asked(called, "--no-such") == Exit.UNUSABLE

    usage, _, error = capsys.readouterr().err.partition("\n\n")
    first, second = usage.splitlines()
    assert first.startswith(f"Usage: rekindle {called} [OPTIONS]")
    assert second == f"Try 'rekindle {called} -h' for help."
    assert error.startswith("Error: ")
    assert "--no-such" in error


@pytest.mark.parametrize(
    ("called", "told"),
    [
        ("status -o xml", "-o: 'xml': expected one of table, wide, json, yaml, name."),
        (
            "read-log /x -o xml",
            "-o/--output: 'xml': expected one of table, wide, json, yaml, name.",
        ),
        ("checkpoints scan /x --time soon", "--time: 'soon': expected seconds, 0 or more."),
        ("recipes test a --exit-code x", "--exit-code: expected a whole number."),
        ("read-log", "Missing argument 'FILE'."),
        ("why", "Missing argument 'JOB|NODE'."),
    ],
)
def test_a_wrong_value_is_told_in_our_words(called: str, told: str, capsys: Captured) -> None:
    assert asked(called) == Exit.UNUSABLE
    assert capsys.readouterr().err.splitlines()[-1] == f"Error: {told}"


@pytest.mark.parametrize(
    "called", ["status", "doctor", "recipes list", "checkpoints scan", "chaos run", *BENCH]
)
def test_answers_are_printed_as_table_json_or_yaml_and_nothing_else(called: str, capsys: Captured) -> None:
    told = options(helped(called, "--help", capsys))

    assert not missing(told["-o, --output FORM"], "table", "json", "yaml")
    assert missing(told["-o, --output FORM"], "toml") == ["toml"]
