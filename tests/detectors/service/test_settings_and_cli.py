"""Settings files, the agent's arguments, and the light dispatcher."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from detectors.agent import command as agent_command
from detectors.commands import main
from detectors.commands.standard_output import EXIT_UNREAD
from detectors.service.metrics import TABLE, Metrics
from detectors.service.settings import AgentSettings, Chain, SettingsError, load


def test_without_a_file_the_defaults_hold() -> None:
    assert load(None, [], AgentSettings) == AgentSettings()


def test_a_file_and_then_overrides_are_read(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("[chain]\nrepeat_s = 30.0\nconsequence_s = 5\n")

    settings = load(
        file, ["chain.repeat_s=90", "catalogue.extra=/etc/x.toml", "nvml.enabled=false"], AgentSettings
    )

    assert settings.chain == Chain(repeat_s=90.0, consequence_s=5.0)
    assert (settings.catalogue.extra, settings.nvml.enabled) == ("/etc/x.toml", False)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[chain]\nrepeat_s = 'x'", ("chain.repeat_s", "'x'", "`float`")),
        ("[chain]\nrepeat_s = -1", ("chain.repeat_s", "-1", "`float` > 0")),
        ("[chain]\nrepeats = 1", ("chain.repeats", " 1")),
        ("[cain]", (" cain", "{}")),
        ("[chain", ("TOML",)),
        ("[chain]\nrepeat_s = inf", ("chain.repeat_s", "inf", "`float` <= 1000000000.0")),
        ("[publishing]\nburst_writes = 99999999999999999999", ("`int` <= 10000",)),
        (f"[chain]\nrepeat_s = {'9' * 5000}", ("TOML",)),
        (f"[chain]\nrepeat_s = {'[' * 5000}", ("TOML",)),
    ],
)
def test_a_bad_file_is_named_with_field_value_and_what_was_expected(
    tmp_path: Path, text: str, names: tuple[str, ...]
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)

    with pytest.raises(SettingsError) as caught:
        load(file, [], AgentSettings)

    assert str(caught.value).startswith(str(file))
    assert all(name in str(caught.value) for name in names), caught.value


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=os.strerror(errno.ENOENT)) as caught:
        load(tmp_path / "none.toml", [], AgentSettings)

    assert str(caught.value).startswith(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    "override",
    [
        *("chain", "chain.repeat_s=soon", ".x=1", "chain=1", "chain.x.y=1"),
        *("chain.repeat_s=Infinity", "chain.repeat_s=NaN", f"chain.repeat_s={'9' * 5000}"),
    ],
)
def test_a_bad_override_is_told(override: str) -> None:
    with pytest.raises(SettingsError, match="--set"):
        load(None, [override], AgentSettings)


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--server", "http://x"], ("--node", "$NODE_NAME")),
        (["--node", "n"], ("--server",)),
        (["--node", "n", "--server", "http://x", "--listen", "9101"], ("--listen", "host:port")),
        (["--node", "n", "--server", "http://x", "--token-file", "/none/t"], ("--token-file", "/none/t")),
        (["--node", "n", "--server", "http://x", "--set", "a.b=1"], ("field a", "{'b': 1}")),
    ],
)
def test_bad_arguments_of_the_agent_end_with_a_reason(
    args: list[str],
    names: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert agent_command.run(args) == 2
    told = capsys.readouterr().err
    assert all(name in told for name in names), told


def said(args: list[str], monkeypatch: pytest.MonkeyPatch, points: list[EntryPoint]) -> int:
    monkeypatch.setattr(main, "entry_points", lambda group: points)
    monkeypatch.setattr(sys, "argv", ["rekindle", *args])
    return main.main()


POINTS = [
    EntryPoint("agent", "no_such_module:run", main.GROUP),
    EntryPoint("version", "platform:python_version", main.GROUP),
    EntryPoint("broken", "no_such_module:run", main.GROUP),
    EntryPoint("len", "builtins:len", main.GROUP),
]


def test_the_help_names_every_command_and_loads_none_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(["--help"], monkeypatch, POINTS) == 0

    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert "no_such_module" not in lines["agent"], "it is not loaded"
    assert (len.__doc__ or "").splitlines()[0] in lines["len"]
    assert "no_such_module" in lines["broken"]


def test_every_command_of_ours_has_its_line_in_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = list(entry_points(group=main.GROUP))
    asked: list[str] = []
    monkeypatch.setattr(EntryPoint, "load", lambda point: asked.append(point.name))

    assert said(["--help"], monkeypatch, installed) == 0
    assert "doctor" in capsys.readouterr().out
    assert asked == []


def test_where_chaos_is_left_out_its_commands_say_so_and_the_help_is_silent_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = list(entry_points(group=main.GROUP))
    monkeypatch.setattr(main, "find_spec", lambda name: None)

    assert said(["demo"], monkeypatch, installed) == 2
    assert ".venv/bin/rekindle demo" in capsys.readouterr().err
    assert said(["--help"], monkeypatch, installed) == 0
    printed = capsys.readouterr().out
    assert "rekindle doctor" in printed
    assert not any(word in printed for word in ("demo", "chaos", "bench"))


def test_a_command_gets_its_arguments_and_gives_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(["len", "a", "b", "c"], monkeypatch, POINTS) == 3


def test_an_unknown_command_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(["agnet"], monkeypatch, POINTS) == 2
    assert "'agent'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["crds"],
        ["recipes", "list"],
        ["recipes", "list", "-o", "json"],
        ["agent", "scan", "--help"],
    ],
    ids=" ".join,
)
def test_a_command_whose_output_nobody_reads_ends_quietly_as_by_sigpipe(args: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        command = [sys.executable, "-m", "detectors.commands.main", *args]
        done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, done.stderr) == (EXIT_UNREAD, b"")


def test_a_scan_whose_output_nobody_reads_does_not_end_as_on_a_broken_node(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("[    0.000000] Linux version 6.8.0\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        command = [sys.executable, "-m", "detectors.commands.main", "agent", "scan", "--replay", "log"]
        done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, check=False, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (EXIT_UNREAD, b"")


def test_a_command_whose_errors_nobody_reads_either_ends_so_too() -> None:
    """`2>&1 | head -1` causes this case."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        command = [sys.executable, "-m", "detectors.commands.main", "no-such-command"]
        done = subprocess.run(command, stdout=unread, stderr=unread, check=False)

    assert done.returncode == EXIT_UNREAD


def test_a_command_that_is_told_to_end_ends_also_as_the_first_process_of_a_container() -> None:
    """The kernel withholds from such a process every signal for which it has no handler."""
    script = (
        "import sys; from importlib.metadata import EntryPoint; from detectors.commands import main as cli\n"
        "cli.entry_points = lambda group: [EntryPoint('ask', 'builtins:input', group)]\n"
        "sys.exit(cli.main())"
    )
    command = [sys.executable, "-c", script, "ask"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.read(2) == b"[]"  # its question: it waits for an answer
        deadline = time.monotonic() + 30
        while waiting.poll() is None and time.monotonic() < deadline:
            waiting.terminate()  # a signal may arrive between the question and the wait
            with suppress(subprocess.TimeoutExpired):  # while the process ends, it has no handler any more
                waiting.wait(2)

        assert waiting.poll() == 128 + signal.SIGTERM


def test_the_version_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(["--version"], monkeypatch, POINTS) == 0
    assert capsys.readouterr().out.startswith("rekindle ")


def test_the_agent_imports_neither_the_controller_nor_a_terminal_toolkit() -> None:
    script = "import sys, detectors.agent.command; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()

    unwanted = {"typer", "recover", "chaos", "numpy", "kubernetes", "kubernetes_asyncio", "pynvml"}
    assert unwanted.isdisjoint(modules)


def test_every_metric_is_scraped_with_its_help() -> None:
    text = Metrics().text().decode()

    for row in TABLE:
        assert f"# HELP {row.name.removesuffix('_total')}" in text, row.name
