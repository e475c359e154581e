"""Tests recover/stories/keys.py: the list of the keys that people write is consistent, and agrees with the
reference page."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.stories.keys import KEYS, PREFIX, WRITTEN_BY_US, Form, Key, On

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "labels.md").read_text()
USABLE = {
    "auto-recovery": ["enabled", " Observe ", "DISABLED"],
    "checkpoint": ["/ckpt", " /a b; format = torch-dcp", "/c;format=generic;marker=done", "/c;digests=check"],
    "checkpoint-repair": ["none", "", "tracker, set-aside", "tracker,,none"],
    "step-template": ["step {step}/", "\n{step}\n"],
    "hang-timeout": ["off", "0", " 1H30m", "0.5s"],
    "on-terminal": ["leave", " Recreate"],
    "checkpoint-on-sigterm": ["true", " False"],
    "cuda-runtime": ["12.4", "v12"],
    "attempts-per-cause": ["1", "999999999"],
    "max-recoveries": ["48"],
    "hold": ["", "true"],
    "hold-reason": ["moving racks"],
    "hold-until": ["2030-01-31T18:00:00Z", "20300131T180000+0100", "2030-W05-4 18:00-05"],
    "mode": ["observe", "recover", "repair"],
    "managed": ["false", "true"],
    "spare": ["true", "false", "", "rack-7"],
    "vgpu-baseline": ["12.4.1"],
}


def _fits(key: Key, value: str) -> bool:
    return not key.pattern or re.fullmatch(key.pattern, value) is not None


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_what_can_be_used_fits_the_pattern_that_warns(key: Key) -> None:
    for value in USABLE[key.name.removeprefix(PREFIX)]:
        assert key.usable(value), value
        assert _fits(key, value), value


@given(key=st.sampled_from(KEYS), value=st.text(st.characters(max_codepoint=126), max_size=24))
def test_no_pattern_warns_of_a_value_that_is_used(key: Key, value: str) -> None:
    if key.usable(value):
        assert _fits(key, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto-recovery", "yes"),
        ("checkpoint", "ckpt"),
        ("checkpoint", "/ckpt;format=torch_dcp"),
        ("checkpoint", "/ckpt,format=torch-dcp;"),
        ("checkpoint-repair", "all"),
        ("step-template", "step"),
        ("hang-timeout", "20 minutes"),
        ("on-terminal", "delete"),
        ("checkpoint-on-sigterm", "yes"),
        ("cuda-runtime", "twelve"),
        ("max-recoveries", "0"),
        ("hold-until", "tomorrow"),
        ("mode", "Observe"),
        ("managed", "no"),
    ],
)
def test_the_usual_mistakes_are_seen_by_the_pattern_alone(name: str, value: str) -> None:
    (key,) = [one for one in KEYS if one.name == PREFIX + name]

    assert not key.usable(value)
    assert not _fits(key, value)


def test_the_reference_page_has_each_key_with_the_places_where_it_is_read() -> None:
    written_by_people, _, written_by_us = PAGE.partition("## Written by Rekindle")
    for key in KEYS:
        (row,) = re.findall(
            rf"^\| `{key.name.removeprefix(PREFIX)}` \| ([^|]*) \|", written_by_people, re.MULTILINE
        )
        assert set(re.findall(r"job|namespace|node", row)) == set(key.on), key.name
        assert ("label" in row) == (Form.LABEL in key.forms), key.name
    assert all(f"`{name.removeprefix(PREFIX)}`" in written_by_us for name in WRITTEN_BY_US)


def test_each_value_that_is_refused_has_a_consequence() -> None:
    assert {key.name for key in KEYS if key.pattern} == {key.name for key in KEYS if key.instead}
    assert {on for key in KEYS for on in key.on} == set(On)
