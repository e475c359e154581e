"""Tests advice with placeholders."""

from __future__ import annotations

from recover.recipes.templates import fill, names_in


def test_advice_is_filled_with_what_was_captured() -> None:
    assert fill("{n} {{x}}, {other}", {"n": "8"}) == "8 {x}, {other}"


def test_the_placeholders_of_advice_come_in_its_order() -> None:
    assert names_in("{n} {{x}}, {other:size}") == ("n", "other")
