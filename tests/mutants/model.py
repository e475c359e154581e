"""Defines a mutant, and applies it in a copy of the tree."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

__all__ = ["ROOT", "Mutant", "NotApplicableError", "applied", "copied", "of"]

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("detectors", "recover", "chaos", "tests", "charts", "docs", "tools")
_PARTS = (*_FOLDERS, "pyproject.toml", "Dockerfile", "README.md")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".hypothesis", "modules")


class Mutant(msgspec.Struct, frozen=True):
    """One change of one file. `why` is the harm that the change does if nobody notices it."""

    name: str
    file: str
    search: str
    """Text that occurs in the file exactly once."""
    replacement: str
    why: str


def of(file: str, *changes: tuple[str, str, str, str]) -> tuple[Mutant, ...]:
    """Returns mutants of one file, each from name, search text, replacement and harm."""
    return tuple(Mutant(name, file, search, new, why) for name, search, new, why in changes)


class NotApplicableError(Exception):
    """The code has changed, and the table must be adapted."""


def applied(mutant: Mutant, text: str) -> str:
    """Returns the file's text with the change. Raises NotApplicableError."""
    count = text.count(mutant.search)
    if count != 1:
        raise NotApplicableError(
            f"mutant {mutant.name}: its search text stands {count} times in {mutant.file}, expected once:\n"
            f"{mutant.search}"
        )
    return text.replace(mutant.search, mutant.replacement)


def copied(folder: Path, mutant: Mutant | None) -> Path:
    """Copies the tree into `folder`, with the change. Raises NotApplicableError."""
    tree = folder / "tree"
    for part in _PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tree / part, ignore=_LEFT_OUT)
        else:
            shutil.copy(source, tree / part)
    if mutant is not None:
        file = tree / mutant.file
        file.write_text(applied(mutant, file.read_text()))
    return tree
