"""The golden files and the functions that render them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.golden.commands import commands
from tests.golden.names import keys, metrics, values
from tests.golden.played import played
from tests.golden.printed import printed
from tests.golden.scenes import scenes
from tests.golden.templates import templates
from tests.golden.text import without_version

__all__ = ["FILES", "PACKAGES", "kept", "path_of", "rendered"]

FILES = Path(__file__).parent / "files"
PACKAGES = ("chaos", "detectors", "recover")

_MADE: dict[str, Callable[[], Iterable[str]]] = {
    "commands": commands,
    "metrics": metrics,
    "values": values,
    "keys": keys,
    "printed": printed,
    "played": played,
    "templates": lambda: templates(PACKAGES),
}


def rendered() -> dict[str, str]:
    """Returns the text of each file as the code renders it now. The scenes run in a process beside the
    others."""
    with ThreadPoolExecutor(1) as beside:
        said = beside.submit(lambda: list(scenes()))
        texts = {name: _text(make()) for name, make in _MADE.items()}
        return {**texts, "scenes": _text(said.result())}


def kept() -> dict[str, str]:
    """Returns the stored text of each file."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(FILES.glob("*.txt"))}


def path_of(name: str) -> Path:
    return FILES / f"{name}.txt"


def _text(lines: Iterable[str]) -> str:
    return without_version("\n".join(lines).rstrip("\n") + "\n")
