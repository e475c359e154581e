"""A command whose extra is not installed says so. Each case is a separate process, whose imports are blocked
in the way in which they fail after `pip install .` without extras."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import pytest

from detectors.commands import extras, main

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {
    "agent": {"grpc", "google.protobuf", "pynvml"},
    "controller": {"kubernetes_asyncio", "yaml"},
    "cli": {"rich", "typer", "yaml"},
    "chaos": {"kubernetes", "numpy"},
}
"""Modules that each extra's own packages bring. The extra chaos brings the other extras, too."""
ALL = set().union(*MODULES.values())
WITHOUT_EXTRA = {"agent", "validate", "reset-devices", "completion", "checkpoints", "read-log"}
"""Commands whose --help needs no extra. They report a missing extra when they need it."""
BLOCKED = """
import contextlib, importlib.abc, io, json, sys

blocked, calls = json.loads(sys.argv[1])

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from detectors.commands import extras, main
find_spec = extras.find_spec
extras.find_spec = lambda name: None if name in blocked else find_spec(name)
answers = []
for call in calls:
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["rekindle", *call]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main.main()
        except SystemExit as end:
            status = end.code or 0
    answers.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(answers), file=sys.__stderr__)
"""


class Said(NamedTuple):
    status: int
    out: str
    err: str


def run_without(modules: Iterable[str], *calls: list[str]) -> list[Said]:
    asked = json.dumps([sorted(modules), calls])
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, asked], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [Said(*answer) for answer in json.loads(done.stderr)]


def test_every_command_has_an_extra_that_the_project_offers() -> None:
    commands = {point.name for point in entry_points(group=main.GROUP)}

    assert extras.EXTRA_OF.keys() == commands
    assert set(extras.EXTRA_OF.values()) == MODULES.keys()
    assert MODULES.keys() <= PROJECT["optional-dependencies"].keys()


def test_the_page_has_each_command_beside_its_extra() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    rows = page.partition("| extra | commands |")[2].partition("\n\n")[0].splitlines()
    told = {
        command: extra
        for row in rows
        if (extra := row.partition("|")[2].partition("|")[0].strip(" `")) in MODULES
        for command in re.findall(r"`([a-z-]+)`", row.split("|")[2])
    }

    assert told == extras.EXTRA_OF


def test_without_any_extra_a_command_names_the_extra_and_the_command_that_installs_it() -> None:
    commands = sorted(extras.EXTRA_OF.keys() - WITHOUT_EXTRA)
    answers = dict(zip(commands, run_without(ALL, *([name, "--help"] for name in commands)), strict=True))

    for name, said in answers.items():
        extra = extras.EXTRA_OF[name]
        assert said.status == 2, name
        assert said.err.startswith(f"rekindle {name}: "), said.err
        assert said.err.endswith(f"\n  {extras.install(extra)}\n"), said.err
        assert "Traceback" not in said.err


def test_a_module_that_only_one_way_of_a_command_needs_is_named_when_it_is_needed(tmp_path: Path) -> None:
    scan = ["checkpoints", "scan", str(tmp_path)]
    (as_table, as_json, as_yaml) = run_without(ALL, scan, [*scan, "-o", "json"], [*scan, "-o", "yaml"])

    assert (as_table.status, as_yaml.status) == (2, 2)
    assert "'rich'" in as_table.err
    assert "'yaml'" in as_yaml.err
    assert all(said.err.endswith(f"  {extras.install('cli')}\n") for said in (as_table, as_yaml))
    assert (as_json.status, as_json.err) == (3, "")


@pytest.mark.parametrize("extra", ["agent", "controller", "cli"])
def test_the_extra_of_a_command_is_enough_for_it(extra: str) -> None:
    commands = [name for name, needed in extras.EXTRA_OF.items() if needed == extra]

    for name, said in zip(
        commands, run_without(ALL - MODULES[extra], *([name, "--help"] for name in commands)), strict=True
    ):
        assert (said.status, said.err) == (0, ""), name


def test_without_numpy_a_demo_ends_before_it_starts_a_training() -> None:
    (said,) = run_without({"numpy"}, ["demo"])

    assert said.status == 2
    assert "'numpy'" in said.err
    assert said.err.endswith(f"  {extras.install('chaos')}\n")


def test_a_module_of_ours_that_is_missing_is_a_defect_and_no_extra() -> None:
    assert extras.not_installed("status", ModuleNotFoundError("", name="recover.gone")) == ""


def test_a_command_of_another_package_is_not_told_of_our_extras() -> None:
    assert extras.not_installed("theirs", ModuleNotFoundError("", name="torch")) == ""
