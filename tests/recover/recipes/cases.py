"""Reads the fixtures: logs with real wordings. A file's name begins with the one recipe that the file
matches, or with `none`.

The first line of a file has the other known facts, as options of `rekindle recipes test`.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from recover.api.recipe_spec import Recipe
from recover.recipes.given import evidence
from recover.recipes.match import Evidence, templates_of

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.log"))


def expected(fixture: Path) -> str:
    return fixture.name.partition(".")[0]


def options(fixture: Path) -> list[str]:
    head = fixture.read_text(encoding="utf-8").splitlines()[0]
    assert head.startswith("#:"), fixture.name
    return shlex.split(head.removeprefix("#:"))


def known(recipe: Recipe, fixture: Path) -> Evidence:
    parser = argparse.ArgumentParser()
    for name in ("--request", "--fact", "--label", "--env"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--exit-code", action="append", type=int, default=[])
    parser.add_argument("--framework", default="")
    given = parser.parse_args(options(fixture))
    return evidence(
        templates=templates_of(recipe),
        logs=[str(fixture)],
        exit_codes=given.exit_code,
        requests=given.request,
        env=given.env,
        facts=given.fact,
        labels=given.label,
        faults=[],
        signals=[],
        framework=given.framework,
    )
