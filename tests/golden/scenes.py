"""Renders what the product prints and returns in scenes that other tests have set up. SCENES.txt names the
functions of these tests.

The tests run in a separate process with the plugin tap.py. They are found by name in any file, so a file of
tests may be moved or split. The result does not show which test a text comes from. The lines are sorted, and
of lines that differ only in numbers the first is kept.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.golden.templates import ROOT
from tests.golden.text import form_of

__all__ = ["LIST", "lines_said", "ran", "scenes"]

LIST = Path(__file__).parent / "SCENES.txt"
_TESTS = ROOT / "tests"
_TMP = "/tmp"


class MissingScene(Exception):
    """A test that SCENES.txt names does not exist any more, or has failed."""


def scenes() -> Iterator[str]:
    names = LIST.read_text(encoding="utf-8").split()
    said = ran(names)
    if lost := sorted(set(names) - said.keys()):
        raise MissingScene(
            f"no test has this name: {', '.join(lost)}. If it was renamed, put its new name into "
            f"{LIST.relative_to(ROOT)}; if it went, take it out and run `make golden`"
        )
    yield from lines_said(said)


def lines_said(said: dict[str, list[str]]) -> Iterator[str]:
    forms: set[str] = set()
    for line in sorted({line for lines in said.values() for line in lines}):
        if (form := form_of(line)) not in forms:
            forms.add(form)
            yield line


def ran(names: list[str]) -> dict[str, list[str]]:
    """Runs the tests. Returns what the product printed and returned, by the name of each test that passed."""
    with tempfile.TemporaryDirectory(dir=_TMP) as place:
        told = Path(place, "told.json")
        command = [sys.executable, "-m", "pytest", "-q", "--assert=plain", "-p", "no:cacheprovider"]
        # Tables that show paths are as wide as the paths: pytest's own folder becomes longer with each tenth
        # run.
        command += ["-p", "tests.golden.tap", f"--basetemp={place}/scenes"]
        done = subprocess.run(
            [
                *command,
                f"--golden-tap={told}",
                f"--golden-scenes={','.join(names)}",
                *map(str, _files(names)),
            ],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": _TMP},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MissingScene(done.stdout[-4000:] + done.stderr[-4000:])
        return msgspec.json.decode(told.read_bytes(), type=dict[str, list[str]])


def _files(names: list[str]) -> Iterator[Path]:
    """Yields the files that define one of these tests."""
    wanted = set(names)
    for path in sorted(_TESTS.rglob("test_*.py")):
        if wanted & set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.M)):
            yield path
