"""Tests the built-in recipes: each fixture matches exactly its own recipe, and every recipe has a fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from recover.recipes.load import built_in
from recover.recipes.match import Matched, NotMatched, match
from tests.recover.recipes.cases import FIXTURES, expected, known

RECIPES = built_in()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_a_fixture_matches_its_own_recipe_and_no_other(fixture: Path) -> None:
    matched = {
        name for name, recipe in RECIPES.items() if isinstance(match(recipe, known(recipe, fixture)), Matched)
    }

    assert matched == {expected(fixture)} - {"none"}


def test_every_recipe_has_a_fixture_and_the_name_of_its_file() -> None:
    assert {expected(fixture) for fixture in FIXTURES} == RECIPES.keys() | {"none"}
    assert all(recipe.name == name for name, recipe in RECIPES.items())


@pytest.mark.parametrize("cores", [100, 200, 300])
def test_a_paddle_job_on_whole_cards_is_not_touched(cores: int) -> None:
    assert isinstance(_paddle(cores), NotMatched)


@pytest.mark.parametrize("cores", [1, 10, 30, 99, 150, 250])
def test_a_paddle_job_on_part_of_a_card_gets_the_other_allocator(cores: int) -> None:
    answer = _paddle(cores)

    assert isinstance(answer, Matched)
    assert answer.recipe.change.env == {"FLAGS_allocator_strategy": "naive_best_fit"}
    assert (answer.captured["wanted"], answer.captured["available"]) == ("25.002197MB", "3.187500GB")


def _paddle(cores: int) -> Matched | NotMatched:
    recipe = RECIPES["paddle-autogrow-oom"]
    (fixture,) = (one for one in FIXTURES if one.name == "paddle-autogrow-oom.2.0.log")
    evidence = known(recipe, fixture)
    evidence.requests["tencent.com/vcuda-core"] = cores
    return match(recipe, evidence)


def test_an_exception_of_gpu_manager_is_a_warning_and_no_refusal() -> None:
    change = RECIPES["cuda-gpu-manager-older-runtime"].change

    assert (change.hold, change.placement, change.env) == ("never", None, {})
    assert change.advise
