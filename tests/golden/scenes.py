"""What the product says in scenes that other tests have set up; SCENES.txt names these tests' functions.

They run in a process of their own with the plugin tap.py. They are found by name, wherever they stand, so a
file of tests may move or be split. Which of them says what is not told, only what is said: in lines that are
sorted, and of lines that differ in nothing but numbers the first.
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
    """A test that SCENES.txt names is gone, or has failed."""


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
    """By the name of each test that passed: what the product said in it."""
    with tempfile.TemporaryDirectory(dir=_TMP) as place:
        told = Path(place, "told.json")
        command = [sys.executable, "-m", "pytest", "-q", "--assert=plain", "-p", "no:cacheprovider"]
        # Tables that show paths are as wide as those are: pytest's own folder is longer with each tenth run.
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
    """Those that define one of these tests."""
    wanted = set(names)
    for path in sorted(_TESTS.rglob("test_*.py")):
        if wanted & set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.M)):
            yield path
