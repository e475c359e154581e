"""Text of a scenario, of an error and of a path is printed unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from chaos.cli import commands
from chaos.scenarios.scenario import Scenario


def test_words_that_look_like_markup_are_printed_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "own.yaml"
    written.write_text("name: own\nabout: 'a [/b] :warning: [red]word'\nexpect: {recoveries: 0}\n")

    def perform(scenario: Scenario, console: Console, **_: object) -> None:
        console.print(scenario.about)

    monkeypatch.setattr(commands, "perform", perform)

    assert commands.chaos(["run", str(written)]) == 1
    assert capsys.readouterr().out == "a [/b] :warning: [red]word\n"
