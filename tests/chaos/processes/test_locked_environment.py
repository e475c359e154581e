"""Environments of locked packages: each is made once and found again, and a missing one is reported
clearly."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from chaos.processes import locked_environment
from chaos.processes.locked_environment import LockedEnvironment, MissingError

NONE_NEEDED = "# nothing at all\n"
SNAKE = LockedEnvironment(name="snake", command="make snake", cost="3 MB to fetch")
LAYER = LockedEnvironment(name="layer", command="make layer", cost="1 MB to fetch", below=SNAKE)


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Creates the lock of SNAKE in place of the real locks, and a separate cache."""
    monkeypatch.setattr(locked_environment, "LOCKS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "snake.lock"
    file.write_text(NONE_NEEDED, encoding="utf-8")
    return file


def test_it_is_made_once_with_what_lies_below_found_again_and_made_anew_for_another_lock(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock.with_name("layer.lock").write_text(NONE_NEEDED, encoding="utf-8")
    assert LAYER.main() == 0
    python = LAYER.interpreter()
    below = next(SNAKE.interpreter().parents[1].glob("lib/python*/site-packages"))
    (below / "venom.py").write_text("", encoding="utf-8")
    assert subprocess.run([python, "-c", "import venom"], check=False).returncode == 0
    assert capsys.readouterr().out == f"{python}\n"

    assert LAYER.main() == SNAKE.main() == 0
    assert capsys.readouterr().err == ""

    lock.write_text("# something else\n", encoding="utf-8")
    with pytest.raises(MissingError, match="make snake"):
        SNAKE.interpreter()


def test_one_that_was_not_made_is_told_with_the_command_and_what_it_costs() -> None:
    with pytest.raises(MissingError, match=r"snake-\w+ .*`make snake` .*3 MB"):
        SNAKE.interpreter()


def test_what_could_not_be_installed_is_told_and_its_rest_is_not_taken_for_whole(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock.write_text("no requirement\n", encoding="utf-8")

    assert SNAKE.main() == 1

    said = capsys.readouterr().err.splitlines()
    assert said[1].startswith("make snake: pip")
    assert "requirement" in "".join(said[2:]), "pip's own words"
    with pytest.raises(MissingError, match="make snake"):
        SNAKE.interpreter()


def test_without_its_lock_the_lock_that_is_missing_is_named(lock: Path) -> None:
    lock.unlink()

    with pytest.raises(MissingError, match=re.escape(f"{lock}: {os.strerror(errno.ENOENT)}")):
        SNAKE.interpreter()
