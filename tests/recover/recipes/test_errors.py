"""Tests mistakes that people make in a recipe: each message names the file or object, the field, the
value, and what fits."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.wire.contract import Fault
from recover.api.recipe_spec import Hold, RequestIs
from recover.cli.recipes_command import run
from recover.recipes.convert import RecipeError
from recover.recipes.load import built_in, built_in_text, load, parse, read
from recover.recipes.objects import seen, settle
from recover.recipes.values import FACTS
from tests.facts import names

Captured = pytest.CaptureFixture[str]

GOOD = """\
name = "mine"
title = "Ranks die of a small /dev/shm"
source = "our own runbook, page 12"
attempts = 2

[[match.allOf]]
log = "unable to write to file {file} of {shm_bytes:integer} bytes"

[[match.allOf]]
anyOf = [{ fault = "application" }, { exitCode = 135 }]

[[match.allOf]]
request = { name = "nvidia.com/gpu", is = "requested" }

[change]
env = { SHM = "big" }
advise = "Mount an emptyDir of medium Memory at /dev/shm, larger than {shm_bytes} bytes."

[change.placement]
require = [{ name = "pool", values = ["big"] }]
forbid = [{ name = "pool", values = ["small"] }]

[verify]
steps = true
"""
REQUEST = 'request = { name = "nvidia.com/gpu", is = "requested" }'
ONE_MATCH = '[[match.allOf]]\nlog = "unable to write to file {file} of {shm_bytes:integer} bytes"'

MISTAKES: dict[str, tuple[str, str, str, list[object]]] = {
    "an unknown key": (
        "attempts = 2", "atempts = 2",
        "atempts", [2, "title", "source", "match", "change", "verify"],
    ),
    "an unknown key of a part": (
        "steps = true", "step = true", "verify.step", [True, "log", "absent", "steps"],
    ),
    "a wrong type": (
        "attempts = 2", 'attempts = "2"', "attempts", ["'2'", "int", "str"],
    ),
    "a wrong type where nothing may stand": (
        REQUEST, 'exitCode = "1"', "match.allOf[2].exitCode", ["'1'", "int", "str"],
    ),
    "no name": ('name = "mine"\n', "", "name", []),
    "a name with spaces": ('"mine"', '"My Recipe"', "name", ["'My Recipe'", 63]),
    "an empty match": (
        GOOD[GOOD.index("[[match") : GOOD.index("[change]")], "[match]\nallOf = []\n",
        "match.allOf", ["[]", 1],
    ),
    "a clause with two tests": (
        REQUEST, REQUEST + "\nexitCode = 1",
        "match.allOf[2]", ["exitCode", "request", "log", "fault"],
    ),
    "a clause without a test": (REQUEST, "", "match.allOf[2]", ["log", "exitCode", "fault"]),
    "a placeholder twice": (
        "{file} of", "{file} of {file}", "match.allOf[0].log", ["{file}"],
    ),
    "a template that matches anything": (
        "unable to write to file {file} of {shm_bytes:integer} bytes", "E {file}",
        "match.allOf[0].log", ["'E {file}'", 6],
    ),
    "a placeholder in the advice that nothing captures": (
        "than {shm_bytes} bytes", "than {shm} bytes",
        "change.advise", ["{shm}", "file", "shm_bytes"],
    ),
    "a bad variable name": ("SHM =", '"SHM-SIZE" =', "change.env", ["'SHM-SIZE'", 253]),
    "a variable of ours": (
        "SHM =", "REKINDLE_RESUME_FROM =", "change.env", ["'REKINDLE_RESUME_FROM'", "REKINDLE_*"],
    ),
    "no attempts": ("attempts = 2", "attempts = 0", "attempts", [0, 1]),
    "an unknown fault class": (
        '"application"', '"gremlins"',
        "match.allOf[1].anyOf[0].fault", ["'gremlins'", *Fault],
    ),
    "an unknown condition of a request": (
        'is = "requested"', 'is = "many"',
        "match.allOf[2].request.is", ["'many'", *RequestIs],
    ),
    "a multiple of nothing": (
        'is = "requested"', 'is = "multiple-of"',
        "match.allOf[2].request.value", [0, 1, "'multiple-of'"],
    ),
    "an unknown fact": (
        REQUEST, 'compare = { left = "cuda.dirver", is = "older-than", right = "12.4" }',
        "match.allOf[2].compare.left", ["'cuda.dirver'", *FACTS],
    ),
    "a comparison that is always the same": (
        REQUEST, 'compare = { left = "12.2", is = "older-than", right = "12.4" }',
        "match.allOf[2].compare", ["'12.2'", "'12.4'"],
    ),
    "a version against memory": (
        REQUEST, 'compare = { left = "cuda.driver", is = "at-least", right = "16GiB" }',
        "match.allOf[2].compare", ["'cuda.driver'", "'16GiB'"],
    ),
    "TOML that is none": ("[verify]", "[verify", "", ["TOML", "']'"]),
    "contradictory placement": (
        'values = ["small"]', 'values = ["small", "big"]', "change.placement.forbid[0]", ["'pool'"],
    ),
    "a value that no label can have": (
        'values = ["big"]', 'values = ["very big"]',
        "change.placement.require[0].values[0]", ["'very big'"],
    ),
    "a label that is too long": (
        'name = "pool", values = ["big"]', f'name = "example.org/{"p" * 64}", values = ["big"]',
        "change.placement.require[0].name", [f"'example.org/{'p' * 64}'"],
    ),
    "a label of a domain that is none": (
        'name = "pool", values = ["big"]', 'name = "Our_Own/pool", values = ["big"]',
        "change.placement.require[0].name", ["'Our_Own/pool'"],
    ),
    "a variable whose value is no text": (
        'SHM = "big"', 'A = "1", SHM = 1', "change.env[SHM]", [1, "str", "int"],
    ),
    "a variable that no ConfigMap takes": ("SHM = ", f"{'S' * 254} = ", "change.env", [253]),
    "held, and yet changed": (
        "[change]\n", '[change]\nhold = "always"\n', "change.hold", ["'always'", "env", "placement"],
    ),
    "an unknown hold": (
        "[change]\n", '[change]\nhold = "yes"\n', "change.hold", ["'yes'", *map(repr, map(str, Hold))],
    ),
    "nothing to verify by": ("steps = true", "", "verify", ["log", "steps"]),
    "a title that is too long": ("Ranks die", "R" * 400, "title", ["str", 300]),
    "a list where a text belongs": (
        'title = "Ranks die of a small /dev/shm"', "title = []", "title", ["[]", "str", "array"],
    ),
    "a list of tables where one table belongs": (
        "[change]\n", "[[change]]\n", "change", ["array", "[change]", "[[change]]"],
    ),
}  # fmt: skip
"""Mistake -> the text in GOOD that is replaced, its replacement, the field that the message names, and
words for value and expectation."""


def test_the_recipe_that_the_mistakes_are_made_in_is_good(tmp_path: Path) -> None:
    assert read(_file(tmp_path, GOOD)).name == "mine"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_field_value_and_what_was_expected(mistake: str, tmp_path: Path) -> None:
    was, now, field, facts = MISTAKES[mistake]
    assert was in GOOD
    file = _file(tmp_path, GOOD.replace(was, now, 1))

    with pytest.raises(RecipeError) as caught:
        read(file)

    (what,), (line,) = caught.value.what, caught.value.lines
    assert line.startswith(f"{file}: ")
    assert what in line
    assert names(what, field, *facts)


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (GOOD.encode().replace(b"small", b"sm\xe4ll", 1), [2, "b'\\xe4'", "UTF-8"]),
        (GOOD.encode() + b"# " + b"x" * 70_000, [65536]),
        (b"", ["title"]),
        (b"\x00\x01\x02", ["TOML"]),
        (b"attempts = " + b"9" * 5000, ["TOML", 4300]),
        (b"match = " + b"[" * 60_000, ["TOML"]),
    ],
)
def test_a_file_that_holds_no_recipe_is_told(data: bytes, facts: list[object], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(data)

    with pytest.raises(RecipeError) as caught:
        read(file)

    (what,) = caught.value.what
    assert str(caught.value).startswith(f"{file}: {what}")
    assert names(what, *facts)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.toml", errno.ENOENT), (tmp_path, errno.EISDIR)):
        with pytest.raises(RecipeError) as caught:
            read(path)
        assert names(str(caught.value), path, os.strerror(why), "TOML", "YAML")


def test_an_object_is_read_as_kubectl_prints_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(_object(GOOD))

    assert read(file) == parse(GOOD, "mine.toml")


def test_a_folder_without_recipes_is_told(tmp_path: Path) -> None:
    (error,) = load([tmp_path]).errors

    assert names(str(error), tmp_path, os.strerror(errno.EISDIR))


@given(st.sampled_from(sorted(built_in())), st.data())
def test_a_file_that_was_damaged_anywhere_is_read_or_told(name: str, data: st.DataObject) -> None:
    text = built_in_text(name)
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 40)))
    put = data.draw(st.sampled_from(["", "{", "}", '"', "[]", "1", "true", "\n", "a = 1\n", "{x}", "-", "0"]))

    told: tuple[str, ...] = ()
    try:
        parse(text[:begin] + put + text[end:], "mine.toml")
    except RecipeError as error:
        told = error.lines

    assert all(line.startswith("mine.toml: ") for line in told)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = _file(tmp_path, GOOD.replace("SHM =", '"S M" =').replace("{shm_bytes} bytes", "{shm} bytes"))

    with pytest.raises(RecipeError) as caught:
        read(file)

    for line, field in zip(caught.value.lines, ("change.env", "change.advise"), strict=True):
        assert line.startswith(f"{file}: ")
        assert names(line, field)


def test_one_bad_recipe_never_stops_the_others(tmp_path: Path) -> None:
    _file(tmp_path, GOOD, "a.toml")
    _file(tmp_path, GOOD.replace("attempts = 2", "attempts = 0"), "b.toml")
    _file(tmp_path, GOOD, "c.toml")
    _file(tmp_path, GOOD.replace('"mine"', '"vllm-bfloat16"'), "d.toml")
    _file(tmp_path, GOOD.replace('"mine"', '"other"'), "e.toml")

    loaded = load([tmp_path])

    assert loaded.recipes.keys() == built_in().keys() | {"mine", "other"}
    assert loaded.recipes["vllm-bfloat16"].title == loaded.recipes["mine"].title
    bad, taken = loaded.errors
    assert (bad.origin, taken.origin) == (str(tmp_path / "b.toml"), str(tmp_path / "c.toml"))
    assert names(*bad.what, "attempts", 0, 1)
    assert names(*taken.what, "name", "'mine'", tmp_path / "a.toml")


def test_the_list_shows_the_good_ones_and_tells_the_bad_one(tmp_path: Path, capsys: Captured) -> None:
    _file(tmp_path, GOOD, "a.toml")
    bad = _file(tmp_path, GOOD.replace("attempts = 2", "attempts = 0"), "b.toml")

    assert run(["list", str(tmp_path)]) == 2

    out, err = capsys.readouterr()
    assert "mine" in out
    assert "paddle-autogrow-oom" in out
    assert names(err, bad, "attempts", 0)
    assert err.count("\n") == 1


@pytest.mark.parametrize("mistake", sorted(MISTAKES.keys() - {"TOML that is none"}))
def test_a_mistake_in_an_object_is_told_with_object_field_value_and_what_was_expected(mistake: str) -> None:
    was, now, field, facts = MISTAKES[mistake]
    field = "metadata.name" if field == "name" else f"spec.{field}"

    (judged,) = settle(built_in(), [seen(_object(GOOD.replace(was, now, 1)))]).judged

    assert (judged.accepted, judged.reason) == (False, "Invalid")
    assert judged.message.startswith(f"Recipe {judged.seen.name}: ")
    assert names(judged.message, field, *facts)


def test_the_object_that_the_mistakes_are_made_in_is_good() -> None:
    (judged,) = settle(built_in(), [seen(_object(GOOD))]).judged

    assert (judged.accepted, judged.seen.recipe) == (True, parse(GOOD, "mine.toml"))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("spec: [", ["YAML", 1]),
        ("day: 2026-02-31", ["YAML", "day"]),
        ("a: 1\n---\nb: 2", ["YAML", 2]),
        ("a:\n\tb: 1", ["YAML", 2, "'\\t'"]),
        ("[" * 20_000, ["YAML"]),
        ("", ["kind", "rekindle.dev/v1alpha1", "Recipe"]),
        ("kind: Pod\napiVersion: v1", ["kind", "'Pod'", "rekindle.dev/v1alpha1", "Recipe"]),
        ("kind: Recipe\napiVersion: v1", ["apiVersion", "'v1'", "rekindle.dev/v1alpha1", "Recipe"]),
        ("kind: Recipe\napiVersion: rekindle.dev/v1alpha1\nsepc: {}", ["spec"]),
        (
            "kind: Recipe\napiVersion: rekindle.dev/v1alpha1\nmetadata: []\nspec: {}",
            ["metadata", "[]", "object", "array"],
        ),
    ],
)
def test_a_yaml_file_that_holds_no_recipe_is_told(text: str, facts: list[object], tmp_path: Path) -> None:
    file = _file(tmp_path, text, "mine.yaml")

    with pytest.raises(RecipeError) as caught:
        read(file)

    (what,) = caught.value.what
    assert str(caught.value).startswith(f"{file}: {what}")
    assert names(what, *facts)


def _object(toml: str) -> bytes:
    """Returns the recipe of a file as the API server returns it."""
    spec = tomllib.loads(toml)
    metadata = {"uid": "u", "resourceVersion": "1", "generation": 1}
    if "name" in spec:
        metadata["name"] = spec.pop("name")
    body = {"apiVersion": "rekindle.dev/v1alpha1", "kind": "Recipe", "metadata": metadata, "spec": spec}
    return msgspec.json.encode(body)


def _file(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
