"""Checks that the example on the page about recipes can be used unchanged."""

from __future__ import annotations

import re
from pathlib import Path

from recover.cli.recipes_command import run
from recover.model.judged_recipes import RecipeReason
from recover.recipes.load import read

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "recipes.md"


def test_every_reason_of_an_object_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert all(f"`{reason}`" in page for reason in RecipeReason)


def test_the_example_matches_the_line_that_it_is_about(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file, log = tmp_path / "small-shm.toml", tmp_path / "rank0.log"
    file.write_text(example)
    log.write_text("RuntimeError: unable to write to file </torch_171_3>: No space left on device (28)\n")

    assert read(file).name == "small-shm"
    assert run(["test", str(file), "--log", str(log), "--exit-code", "1"]) == 0
    assert run(["test", str(file), "--log", str(log), "--exit-code", "137"]) == 1
