"""Tests that the rooms of each package have one order, which is that of pyproject.toml, and that each room
describes itself."""

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
LAYERS = {c["containers"][0]: c["layers"] for c in CONTRACTS if c["type"] == "layers" and "containers" in c}
(PURE,) = [c["source_modules"] for c in CONTRACTS if c["name"].startswith("Pure rooms")]
ROOMS_OF_IO = {
    "detectors.client",
    "detectors.commands",
    "detectors.service",
    "detectors.sources",
    "detectors.agent",
    "detectors.validation",
    "detectors.reset",
    "recover.checkpoints",
    "recover.kube",
    "recover.runtime",
    "recover.snapshot",
    "recover.doctor",
    "recover.cli",
}
"""Rooms that may do I/O. All other rooms of the agent and the controller are pure. chaos is a rig, and all
of it may do I/O."""


def _imported(package: str) -> dict[str, set[str]]:
    """Returns room -> the rooms of its package that it imports, directly or through others."""
    direct: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / package).rglob("*.py"):
        here = path.relative_to(ROOT).parts[1].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            there = {name.split(".")[1] for name in names if name.startswith(f"{package}.")}
            direct[here] |= there & set(LAYERS[package]) - {here}
    found = {}
    for room in list(direct):
        seen, todo = set(), [room]
        while todo:
            fresh = direct[todo.pop()] - seen
            seen |= fresh
            todo += fresh
        found[room] = seen
    return found


@pytest.mark.parametrize("package", ["detectors", "recover", "chaos"])
def test_no_two_rooms_import_each_other_even_through_a_third(package: str) -> None:
    imported = _imported(package)

    assert {room for room, below in imported.items() if room in below} == set()


@pytest.mark.parametrize("package", ["detectors", "recover", "chaos"])
def test_every_room_is_in_the_order_and_nothing_lies_loose_beside_the_rooms(package: str) -> None:
    folder = ROOT / package
    rooms = {p.name for p in folder.iterdir() if p.is_dir() and any(p.rglob("*.py"))}

    assert rooms == set(LAYERS[package])
    assert {p.name for p in folder.glob("*.py")} == {"__init__.py"}


@pytest.mark.parametrize("package", ["detectors", "recover", "chaos"])
def test_the_folders_of_tests_are_the_rooms(package: str) -> None:
    folders = {p.name for p in (ROOT / "tests" / package).iterdir() if any(p.rglob("test_*.py"))}
    loose = {p.name for p in (ROOT / "tests" / package).glob("test_*.py")}

    assert folders <= set(LAYERS[package])
    assert not loose


def test_every_room_is_pure_or_listed_as_a_room_of_io() -> None:
    rooms = {f"{package}.{room}" for package in ("detectors", "recover") for room in LAYERS[package]}

    assert set(PURE) | ROOMS_OF_IO == rooms
    assert not set(PURE) & ROOMS_OF_IO


@pytest.mark.parametrize("room", [f"{package}.{room}" for package, rooms in LAYERS.items() for room in rooms])
def test_a_room_says_what_lives_there_comes_in_goes_out_and_what_it_may_touch(room: str) -> None:
    text = ROOT.joinpath(*room.split("."), "__init__.py").read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""

    assert all(f"\n{word}: " in said for word in ("In", "Out", "Touches")), said


@pytest.mark.parametrize("package", ["detectors", "recover", "chaos"])
def test_the_drawing_has_every_room_above_the_rooms_that_it_imports(package: str) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn = page.partition(f"\n {package}: ")[2].partition("└")[0].splitlines()
    found = {
        name: (number, bool(star))
        for number, line in enumerate(drawn)
        for name, star in re.findall(r"(?:[│┤] | {3,})([a-z0-9]+)( \*)?(?: {2,})", line)
        if name in LAYERS[package]
    }
    imports = {(room, below) for room, rooms in _imported(package).items() for below in rooms}

    assert found.keys() == set(LAYERS[package])
    assert {
        (room, below) for room, below in imports if room in found and found[room][0] >= found[below][0]
    } == set()
    if package != "chaos":
        assert {f"{package}.{room}" for room, (_, star) in found.items() if star} == {
            room for room in ROOMS_OF_IO if room.startswith(f"{package}.")
        }
