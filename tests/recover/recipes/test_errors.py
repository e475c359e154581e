"""What people get wrong in a recipe: each message names its file or object, field, value, and what fits."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.cli.recipes_command import run
from recover.recipes.convert import RecipeError
from recover.recipes.load import built_in, built_in_text, load, parse, read
from recover.recipes.objects import seen, settle

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

MISTAKES: dict[str, tuple[str, str, str]] = {
    "an unknown key": (
        "attempts = 2", "atempts = 2",
        "field atempts: value 2: no such field; expected one of title, source, match, change, verify",
    ),
    "an unknown key of a part": (
        "steps = true", "step = true",
        "field verify.step: value True: no such field; expected one of log, absent, steps",
    ),
    "a wrong type": (
        "attempts = 2", 'attempts = "2"', "field attempts: value '2': expected `int`, got `str`",
    ),
    "a wrong type where nothing may stand": (
        REQUEST, 'exitCode = "1"', "field match.allOf[2].exitCode: value '1': expected `int`, got `str`",
    ),
    "no name": ('name = "mine"\n', "", "field name: value (none): this field is required"),
    "a name with spaces": ('"mine"', '"My Recipe"', "field name: value 'My Recipe': expected small letters"),
    "an empty match": (
        GOOD[GOOD.index("[[match") : GOOD.index("[change]")], "[match]\nallOf = []\n",
        "field match.allOf: value []: expected `array` of length >= 1",
    ),
    "a clause with two tests": (
        REQUEST, REQUEST + "\nexitCode = 1",
        "field match.allOf[2]: value exitCode, request: expected exactly one of log, exitCode",
    ),
    "a clause without a test": (
        REQUEST, "", "field match.allOf[2]: value (none): expected exactly one of log",
    ),
    "a placeholder twice": (
        "{file} of", "{file} of {file}",
        "bytes': expected each placeholder once, {file} stands there twice",
    ),
    "a template that matches anything": (
        "unable to write to file {file} of {shm_bytes:integer} bytes", "E {file}",
        "field match.allOf[0].log: value 'E {file}': expected at least 6 characters outside placeholders",
    ),
    "a placeholder in the advice that nothing captures": (
        "than {shm_bytes} bytes", "than {shm} bytes",
        "change.advise: value {shm}: expected a placeholder that every match captures (file, shm_bytes)",
    ),
    "a bad variable name": (
        "SHM =", '"SHM-SIZE" =',
        "field change.env: value 'SHM-SIZE': expected letters, digits and _, not beginning with a digit",
    ),
    "a variable of ours": (
        "SHM =", "REKINDLE_RESUME_FROM =",
        "field change.env: value 'REKINDLE_RESUME_FROM': expected another name, REKINDLE_* is Rekindle's own",
    ),
    "no attempts": ("attempts = 2", "attempts = 0", "field attempts: value 0: expected `int` >= 1"),
    "an unknown fault class": (
        '"application"', '"gremlins"',
        "field match.allOf[1].anyOf[0].fault: value 'gremlins': expected one of device-lost, device-reset",
    ),
    "an unknown condition of a request": (
        'is = "requested"', 'is = "many"',
        "field match.allOf[2].request.is: value 'many': expected one of requested, not-requested",
    ),
    "a multiple of nothing": (
        'is = "requested"', 'is = "multiple-of"',
        "field match.allOf[2].request.value: value 0: expected at least 1 with is = 'multiple-of'",
    ),
    "an unknown fact": (
        REQUEST, 'compare = { left = "cuda.dirver", is = "older-than", right = "12.4" }',
        "field match.allOf[2].compare.left: value 'cuda.dirver': expected a fact (cuda.driver, cuda.runtime",
    ),
    "a comparison that is always the same": (
        REQUEST, 'compare = { left = "12.2", is = "older-than", right = "12.4" }',
        "field match.allOf[2].compare: value '12.2' and '12.4': expected at least one fact or placeholder",
    ),
    "a version against memory": (
        REQUEST, 'compare = { left = "cuda.driver", is = "at-least", right = "16GiB" }',
        "field match.allOf[2].compare: value 'cuda.driver' and '16GiB': expected two of one kind",
    ),
    "TOML that is none": ("[verify]", "[verify", "not valid TOML: Expected ']' at the end of a table"),
    "contradictory placement": (
        'values = ["small"]', 'values = ["small", "big"]',
        "field change.placement.forbid[0]: value 'pool': expected no node that is required to be forbidden",
    ),
    "a value that no label can have": (
        'values = ["big"]', 'values = ["very big"]',
        "field change.placement.require[0].values[0]: value 'very big': expected a label's value: letters",
    ),
    "a label that is too long": (
        'name = "pool", values = ["big"]', f'name = "example.org/{"p" * 64}", values = ["big"]',
        "expected a label such as nvidia.com/gpu.compute.major",
    ),
    "a label of a domain that is none": (
        'name = "pool", values = ["big"]', 'name = "Our_Own/pool", values = ["big"]',
        "field change.placement.require[0].name: value 'Our_Own/pool': expected a label such as",
    ),
    "a variable whose value is no text": (
        'SHM = "big"', 'A = "1", SHM = 1',
        "field change.env[SHM]: value 1: expected `str`, got `int`",
    ),
    "a variable that no ConfigMap takes": (
        "SHM = ", f"{'S' * 254} = ", "letters, digits and _, not beginning with a digit, at most 253",
    ),
    "held, and yet changed": (
        "[change]\n", '[change]\nhold = "always"\n',
        "field change.hold: value 'always': expected no env and no placement beside it: nothing would run",
    ),
    "an unknown hold": (
        "[change]\n", '[change]\nhold = "yes"\n',
        "field change.hold: value 'yes': expected one of 'never', 'unless-placed', 'always'",
    ),
    "nothing to verify by": ("steps = true", "", "field verify: value (none): expected log or steps"),
    "a title that is too long": ("Ranks die", "R" * 400, "...: expected `str` of length <= 300"),
    "a list where a text belongs": (
        'title = "Ranks die of a small /dev/shm"', "title = []",
        "field title: value []: expected `str`, got `array`",
    ),
}  # fmt: skip
"""What is replaced in GOOD, by what, and what is told."""


def test_the_recipe_that_the_mistakes_are_made_in_is_good(tmp_path: Path) -> None:
    assert read(_file(tmp_path, GOOD)).name == "mine"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_field_value_and_what_was_expected(mistake: str, tmp_path: Path) -> None:
    was, now, told = MISTAKES[mistake]
    assert was in GOOD
    file = _file(tmp_path, GOOD.replace(was, now, 1))

    with pytest.raises(RecipeError) as caught:
        read(file)

    (line,) = caught.value.lines
    assert line.startswith(f"{file}: ")
    assert told in line
    assert line.endswith("; this recipe is not used, all others are")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (GOOD.encode().replace(b"small", b"sm\xe4ll", 1), "line 2: value b'\\xe4': expected UTF-8 text"),
        (GOOD.encode() + b"# " + b"x" * 70_000, "too long: expected at most 65536 bytes"),
        (b"", "field title: value (none): this field is required"),
        (b"\x00\x01\x02", "not valid TOML"),
        (b"attempts = " + b"9" * 5000, "not valid TOML: Exceeds the limit"),
        (b"match = " + b"[" * 60_000, "not valid TOML: nested too deeply"),
    ],
)
def test_a_file_that_holds_no_recipe_is_told(data: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(data)

    with pytest.raises(RecipeError) as caught:
        read(file)

    assert str(caught.value).startswith(f"{file}: {told}")


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.toml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(RecipeError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: cannot be read: {why}: expected TOML or YAML")


def test_an_object_is_read_as_kubectl_prints_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(_object(GOOD))

    assert read(file) == parse(GOOD, "mine.toml")


def test_a_folder_without_recipes_is_told(tmp_path: Path) -> None:
    (error,) = load([tmp_path]).errors

    assert str(error).startswith(f"{tmp_path}: cannot be read: Is a directory")


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

    assert [line.split(": value")[0] for line in caught.value.lines] == [
        f"{file}: field change.env",
        f"{file}: field change.advise",
    ]


def test_one_bad_recipe_never_stops_the_others(tmp_path: Path) -> None:
    _file(tmp_path, GOOD, "a.toml")
    _file(tmp_path, GOOD.replace("attempts = 2", "attempts = 0"), "b.toml")
    _file(tmp_path, GOOD, "c.toml")
    _file(tmp_path, GOOD.replace('"mine"', '"vllm-bfloat16"'), "d.toml")
    _file(tmp_path, GOOD.replace('"mine"', '"other"'), "e.toml")

    loaded = load([tmp_path])

    assert loaded.recipes.keys() == built_in().keys() | {"mine", "other"}
    assert loaded.recipes["vllm-bfloat16"].title == "Ranks die of a small /dev/shm"
    told = [str(error).removeprefix(f"{tmp_path}/").partition(";")[0] for error in loaded.errors]
    assert told == [
        "b.toml: field attempts: value 0: expected `int` >= 1",
        f"c.toml: field name: value 'mine': expected a name of its own, {tmp_path / 'a.toml'} has it",
    ]


def test_the_list_shows_the_good_ones_and_tells_the_bad_one(tmp_path: Path, capsys: Captured) -> None:
    _file(tmp_path, GOOD, "a.toml")
    bad = _file(tmp_path, GOOD.replace("attempts = 2", "attempts = 0"), "b.toml")

    assert run(["list", str(tmp_path)]) == 2

    out, err = capsys.readouterr()
    assert "mine" in out
    assert "paddle-autogrow-oom" in out
    assert err.startswith(f"rekindle recipes: {bad}: field attempts: value 0")
    assert err.count("\n") == 1


@pytest.mark.parametrize("mistake", sorted(MISTAKES.keys() - {"TOML that is none"}))
def test_a_mistake_in_an_object_is_told_with_object_field_value_and_what_was_expected(mistake: str) -> None:
    was, now, told = MISTAKES[mistake]
    if mistake == "no name":
        told = "field metadata.name: value '': expected small letters"
    told = told.replace("field ", "field spec.").replace("spec.name:", "metadata.name:")
    told = told.replace("spec.metadata", "metadata")

    (judged,) = settle(built_in(), [seen(_object(GOOD.replace(was, now, 1)))]).judged

    assert (judged.accepted, judged.reason) == (False, "Invalid")
    assert judged.message.startswith(f"Recipe {judged.seen.name}: ")
    assert told in judged.message
    assert judged.message.endswith("; this recipe is not used, all others are")


def test_the_object_that_the_mistakes_are_made_in_is_good() -> None:
    (judged,) = settle(built_in(), [seen(_object(GOOD))]).judged

    assert (judged.accepted, judged.seen.recipe) == (True, parse(GOOD, "mine.toml"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("spec: [", "not valid YAML: line 1: while parsing a flow node expected the node content"),
        ("day: 2026-02-31", "not valid YAML: day is out of range for month"),
        (
            "a: 1\n---\nb: 2",
            "not valid YAML: line 2: expected a single document in the stream but found another document",
        ),
        ("a:\n\tb: 1", "not valid YAML: line 2: while scanning for the next token found character '\\t'"),
        ("[" * 20_000, "not valid YAML: nested too deeply"),
        ("", "field kind: value (none): expected apiVersion rekindle.dev/v1alpha1 and kind Recipe"),
        ("kind: Pod\napiVersion: v1", "field kind: value 'Pod': expected apiVersion rekindle.dev"),
        (
            "kind: Recipe\napiVersion: v1",
            "field apiVersion: value 'v1': expected apiVersion rekindle.dev/v1alpha1 and kind Recipe",
        ),
        (
            "kind: Recipe\napiVersion: rekindle.dev/v1alpha1\nsepc: {}",
            "field spec: value (none): this field is required",
        ),
        (
            "kind: Recipe\napiVersion: rekindle.dev/v1alpha1\nmetadata: []\nspec: {}",
            "field metadata: value []: expected `object`, got `array`",
        ),
    ],
)
def test_a_yaml_file_that_holds_no_recipe_is_told(text: str, told: str, tmp_path: Path) -> None:
    file = _file(tmp_path, text, "mine.yaml")

    with pytest.raises(RecipeError) as caught:
        read(file)

    assert str(caught.value).startswith(f"{file}: {told}")


def _object(toml: str) -> bytes:
    """The recipe of a file as the API server would tell it."""
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
