"""Tries each kind of test that a recipe may have: when it is true, and what the answer says if it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detectors.text.sizes import parse_size
from detectors.wire.contract import Fault
from recover.api.recipe_spec import Framework, Recipe
from recover.k8s.quantities import parse_count
from recover.recipes.check import problems
from recover.recipes.match import Evidence, LogLine, Matched, NotMatched, match
from recover.recipes.values import facts_of_labels, parse_version
from recover.stories.known_issue import story_of_answer
from tests.facts import names


def recipe(*clauses: dict[str, Any], **change: Any) -> Recipe:
    made = msgspec.convert(
        {
            "name": "mine",
            "title": "an issue of ours",
            "source": "our own runbook",
            "match": {"allOf": clauses},
            "change": {"advise": "change it"} | change,
            **({"verify": {"steps": True}} if change else {}),
        },
        Recipe,
    )
    assert problems(made) == ()
    return made


def lines(*texts: str) -> Evidence:
    return Evidence(lines=tuple(LogLine(text=text, number=n) for n, text in enumerate(texts, start=1)))


@pytest.mark.parametrize(
    ("test", "fits", "does_not", "said"),
    [
        (
            {"exitCode": 135},
            Evidence(exit_codes=frozenset([1, 135])),
            Evidence(exit_codes=frozenset([1])),
            [135, 1],
        ),
        (
            {"fault": "hang"},
            Evidence(faults=frozenset([Fault.HANG])),
            Evidence(),
            ["hang"],
        ),
        (
            {"signal": "xid-31"},
            Evidence(signals=frozenset(["xid-31"])),
            Evidence(signals=frozenset(["xid-13"])),
            ["xid-31", "xid-13"],
        ),
        (
            {"framework": "paddle"},
            Evidence(framework=Framework.PADDLE),
            Evidence(framework=Framework.JAX),
            ["paddle", "jax"],
        ),
        (
            {"request": {"name": "nvidia.com/gpu", "is": "requested"}},
            Evidence(requests={"nvidia.com/gpu": 1}),
            Evidence(requests={"nvidia.com/gpu": 0}),
            ["nvidia.com/gpu"],
        ),
        (
            {"request": {"name": "nvidia.com/gpu", "is": "not-requested"}},
            Evidence(),
            Evidence(requests={"nvidia.com/gpu": 8}),
            ["nvidia.com/gpu", 8],
        ),
        (
            {"request": {"name": "a/core", "is": "not-multiple-of", "value": 100}},
            Evidence(requests={"a/core": 150}),
            Evidence(requests={"a/core": 200}),
            ["a/core", 200, 100],
        ),
        (
            {"request": {"name": "a/core", "is": "not-multiple-of", "value": 100}},
            Evidence(requests={"a/core": 1}),
            Evidence(requests={"a/core": 0}),
            ["a/core"],
        ),
        (
            {"request": {"name": "a/core", "is": "multiple-of", "value": 100}},
            Evidence(requests={"a/core": 100}),
            Evidence(requests={"a/core": 30}),
            ["a/core", 30, 100],
        ),
        ({"env": {"name": "A", "is": "set"}}, Evidence(env={"A": ""}), Evidence(), ["A"]),
        ({"env": {"name": "A", "is": "unset"}}, Evidence(), Evidence(env={"A": "1"}), ["A", "'1'"]),
        (
            {"env": {"name": "A", "is": "equals", "value": "1"}},
            Evidence(env={"A": "1"}),
            Evidence(env={"A": "2"}),
            ["A", "'2'"],
        ),
        (
            {"env": {"name": "A", "is": "not-equals", "value": "1"}},
            Evidence(),
            Evidence(env={"A": "1"}),
            ["A", "'1'"],
        ),
        (
            {"label": {"name": "pool", "values": ["a", "b"]}},
            Evidence(labels={"pool": "b"}),
            Evidence(labels={"pool": "c"}),
            ["pool", "'c'"],
        ),
        (
            {"label": {"name": "cuda-major-version", "atLeast": "12"}},
            Evidence(labels={"cuda-major-version": "13"}),
            Evidence(labels={"cuda-major-version": "9"}),
            ["cuda-major-version", "'9'"],
        ),
        (
            {"label": {"name": "pool"}},
            Evidence(labels={"pool": ""}),
            Evidence(),
            ["pool"],
        ),
    ],
)
def test_a_test_holds_or_says_why_not(
    test: dict[str, Any], fits: Evidence, does_not: Evidence, said: list[object]
) -> None:
    made = recipe(test)

    assert isinstance(match(made, fits), Matched)
    answer = match(made, does_not)
    assert isinstance(answer, NotMatched)
    ((why,),) = answer.why
    assert names(why, *said)


@pytest.mark.parametrize(
    ("relation", "by", "runtimes"),
    [
        ("at-least", 0, ["12.4", "12.4.0", "12.10", "13.0"]),
        ("at-most", 0, ["9.2", "11.8", "12.2", "12.4", "12.4.0"]),
        ("newer-than", 0, ["12.10", "13.0"]),
        ("older-than", 0, ["9.2", "11.8", "12.2"]),
        ("same-major", 0, ["12.2", "12.4", "12.4.0", "12.10"]),
        ("other-major", 0, ["9.2", "11.8", "13.0"]),
        ("majors-below", 1, ["11.8"]),
        ("not-majors-below", 1, ["9.2", "12.2", "12.4", "12.4.0", "12.10", "13.0"]),
        ("more-majors-below", 1, ["9.2"]),
    ],
)
def test_versions_are_compared_as_versions(relation: str, by: int, runtimes: list[str]) -> None:
    made = recipe({"compare": {"left": "cuda.runtime", "is": relation, "right": "cuda.driver", "by": by}})
    every = ["9.2", "11.8", "12.2", "12.4", "12.4.0", "12.10", "13.0"]

    matched = [
        runtime
        for runtime in every
        if isinstance(match(made, Evidence(facts={"cuda.runtime": runtime, "cuda.driver": "12.4"})), Matched)
    ]

    assert matched == runtimes


def test_a_fact_that_is_not_known_makes_every_comparison_false() -> None:
    for relation in ("at-least", "at-most", "other-major"):
        made = recipe({"compare": {"left": "cuda.runtime", "is": relation, "right": "12.4"}})
        answer = match(made, Evidence())
        assert isinstance(answer, NotMatched)
        ((why,),) = answer.why
        assert names(why, "cuda.runtime")


def test_a_later_line_may_fit_where_an_earlier_one_does_not() -> None:
    template = "wanted {wanted:size}, free {free:size}"
    made = recipe(
        {
            "log": template,
            "where": [{"left": "{free}", "is": "at-least", "right": "{wanted}"}],
        }
    )

    answer = match(made, lines("wanted 2GB, free 1GB", "wanted 1.5GB, free 1536MB", "wanted 1GB, free 9GB"))

    assert isinstance(answer, Matched)
    assert [hit.line.number for hit in answer.hits if hit.line] == [2]
    assert answer.captured == {"wanted": "1.5GB", "free": "1536MB"}
    missed = match(made, lines("wanted 2GB, free 1GB"))
    assert isinstance(missed, NotMatched)
    assert names(missed.why[0][0].removeprefix(f"log {template!r}"), 1, "free", "1GB", "wanted", "2GB")


def test_all_that_is_missing_is_told_at_once() -> None:
    made = recipe(
        {"anyOf": [{"exitCode": 1}, {"exitCode": 2}]}, {"signal": "xid-31"}, {"log": "some literal text"}
    )

    answer = match(made, Evidence(exit_codes=frozenset([2])))

    assert isinstance(answer, NotMatched)
    (hit,) = answer.hits
    assert names(hit.said, 2)
    assert len(answer.why) == 2


@pytest.mark.parametrize(
    ("env", "told"),
    [({"A": "2"}, [["A=2", "'1'"]]), ({"A": "1"}, [["A=1"]]), ({"B": "2"}, [])],
)
def test_a_variable_that_the_template_sets_itself_is_named(
    env: dict[str, str], told: list[list[str]]
) -> None:
    made = recipe({"exitCode": 1}, env={"A": "1"})

    def answered(env: dict[str, str]) -> list[str]:
        answer = match(made, Evidence(exit_codes=frozenset([1]), env=env))
        assert isinstance(answer, Matched)
        return [line.text for section in story_of_answer(answer).sections for line in section.lines]

    of_the_template = [text for text in answered(env) if text not in answered({})]
    assert len(of_the_template) == len(told)
    assert all(names(text, *facts) for text, facts in zip(of_the_template, told, strict=True))


def test_the_rank_of_a_line_is_told() -> None:
    text = "some literal text"

    answer = match(recipe({"log": text}), Evidence(lines=(LogLine(text=text, number=4, rank=3),)))

    assert names(story_of_answer(answer).sections[0].lines[0].text, 4, 3, text)


def test_the_drivers_cuda_version_is_read_from_labels_and_what_is_given_wins() -> None:
    discovered = {
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "54",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "4",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "5",
    }
    assert facts_of_labels(discovered) == {"cuda.driver": "12.4", "gpu.compute": "7.5"}
    assert facts_of_labels({"cuda-major-version": "12"}) == {}

    made = recipe({"compare": {"left": "cuda.driver", "is": "at-least", "right": "12.4"}})
    assert isinstance(match(made, Evidence(labels=discovered)), Matched)
    assert isinstance(match(made, Evidence(labels=discovered, facts={"cuda.driver": "11.8"})), NotMatched)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("12.4", (12, 4)),
        ("v12", (12,)),
        ("12.0", (12,)),
        ("0.0", (0,)),
        ("", None),
        ("12.x", None),
        ("-1", None),
    ],
)
def test_a_version_is_read(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("text", "count_bytes"),
    [
        ("16GiB", 2**34),
        ("16 gb", 2**34),
        ("1.5k", 1536),
        ("0B", 0),
        ("16", None),
        ("GiB", None),
        ("1e9B", None),
    ],
)
def test_an_amount_of_memory_is_read(text: str, count_bytes: float | None) -> None:
    assert parse_size(text) == count_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [("30", 30), ("1k", 1000), ("2Ki", 2048), ("", None), ("-1", None), ("0.5", None), ("1kk", None)],
)
def test_a_count_of_a_resource_is_read(text: str, count: int | None) -> None:
    assert parse_count(text) == count
