"""Advice with placeholders."""

from __future__ import annotations

from recover.recipes.templates import fill, names_in


def test_advice_is_filled_with_what_was_captured() -> None:
    assert fill("use {n} of {{x}}, {other}", {"n": "8"}) == "use 8 of {x}, {other}"


def test_the_placeholders_of_advice_come_in_its_order() -> None:
    assert names_in("use {n} of {{x}}, {other:size}") == ("n", "other")
