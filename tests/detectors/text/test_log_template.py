"""Literal templates: what they match, what they leave, and that no line makes them slow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.text.log_template import BadTemplateError, Kind, parse

NEEDED = "with compute capability at least {major:integer}.{minor:integer}"


@pytest.mark.parametrize(
    ("template", "line", "captured"),
    [
        ("out of memory", "CUDA Out Of Memory!", {}),
        (NEEDED, "GPUs WITH compute capability AT LEAST 8.0.", {"major": "8", "minor": "0"}),
        ("has version {v:number}", "it has version 12.4.1.", {"v": "12.4.1"}),
        ("has version {v:number}", "it has version 12.", {"v": "12"}),
        ("allocate {n:size} on", "Cannot allocate 25.5MB on", {"n": "25.5MB"}),
        ("allocate {n:size}", "allocate 16 GiB.", {"n": "16 GiB"}),
        ("allocate {n:size}", "allocate 0.000000B.", {"n": "0.000000B"}),
        ("allocate {n:size}", "allocate 16 memories", None),
        ("at file {f}:{n:integer})", "(at file /A/b.cc:69)", {"f": "/A/b.cc", "n": "69"}),
        ("paddle::{name}", "3 paddle::memory::Alloc, then", {"name": "memory::Alloc"}),
        ("Your {gpu:text} GPU has", "Your Tesla V100 GPU has", {"gpu": "Tesla V100"}),
        ("Your {gpu} GPU has", "Your Tesla V100 GPU has", None),
        ("float16 is only", "bfloat16 is only", None),
        ("float16 is only", "torch.float16 is only", {}),
        ("CUDA_ERROR_UNKNOWN", "CUDA_ERROR_UNKNOWN_2", None),
        ("step {n:integer} of", "step x, step 7 of", {"n": "7"}),
        ("failed: {{{code}}}", "failed: {E7}", {"code": "E7"}),
        ("version {v:number}", "version none", None),
        ("version {v:number}", "\x1b[1;31mversion \x1b[0m12.4\x1b[0m", {"v": "12.4"}),
        ("ends with {word}", "ends with ", None),
    ],
)
def test_a_template_takes_what_it_says(template: str, line: str, captured: dict[str, str] | None) -> None:
    assert parse(template).match(line) == captured


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{what} has happened", ()),
        ("error {a}{b} of rank", ()),
        ("error {a} of rank {a}", ("{a}",)),
        ("error {a:float} of", (*Kind, "'float'")),
        ("error {a b} of rank", ("{a b}",)),
        ("error {a of rank", ("}",)),
        ("error a} of rank", ("{",)),
        ("oom {a}", ("6",)),
    ],
)
def test_a_template_that_cannot_be_used_says_why(template: str, names: tuple[str, ...]) -> None:
    with pytest.raises(BadTemplateError) as caught:
        parse(template)

    assert all(name in str(caught.value) for name in names), caught.value


@given(st.text(max_size=200), st.integers(0, 10**15), st.text(max_size=200))
def test_a_number_is_found_in_any_surroundings(before: str, number: int, after: str) -> None:
    line = f"{before} loaded {number} shards {after}"

    assert parse("loaded {n:integer} shards").match(f"{line}") is not None


@given(st.text(), st.text())
def test_no_line_and_no_template_raise_anything_else(template: str, line: str) -> None:
    try:
        parsed = parse(template)
    except BadTemplateError:
        return
    parsed.match(line)


@pytest.mark.parametrize("piece", ["loaded ", "{", "{a}", "{{", "{step}x"])
def test_a_template_of_a_megabyte_is_read_or_refused_in_linear_time(piece: str) -> None:
    begun, message = time.process_time(), ""

    try:
        parse(piece * ((1 << 20) // len(piece)))
    except BadTemplateError as error:
        message = str(error)

    assert time.process_time() - begun < 60.0, "a quadratic reader takes hours"
    assert len(message) < 500


@pytest.mark.parametrize("line", ["step " * 200_000, "step 1" * 200_000, "step " + "9" * 1_000_000])
def test_a_line_made_to_be_slow_is_not(line: str) -> None:
    template = parse("step {a:text} step {b:text} step {c:number} ended")
    begun = time.process_time()

    assert template.match(line) is None

    assert time.process_time() - begun < 1.0
