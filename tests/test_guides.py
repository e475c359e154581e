"""Pages that name code, or hold code that people copy: the names exist, and the code runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STEP = re.compile(r"^\| .* \| `([\w.]+)` \| `([\w/]+\.py)` \|$", re.MULTILINE)


def defined(file: str) -> set[str]:
    """Functions and classes of a file, and the methods of its classes."""
    found = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


def test_every_step_of_the_one_fault_names_a_function_that_its_file_has() -> None:
    steps = STEP.findall((ROOT / "docs/one-fault.md").read_text(encoding="utf-8"))

    assert len(steps) > 30, "the pattern finds nothing"
    assert [(function, file) for function, file in steps if function not in defined(file)] == []


@pytest.mark.parametrize(
    "page", [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/extending/*.md")], ids=lambda p: p.name
)
def test_every_file_of_ours_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:detectors|recover|chaos|tests|tools|charts|image)/[\w./-]+)`", page.read_text(encoding="utf-8")
    )

    assert [one for one in named if not (ROOT / one).exists()] == []
