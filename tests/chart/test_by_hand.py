"""A person who adds a kind of job learns each place of the chart, and each page, that must name the kind by
hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from recover.workloads import WORKLOADS, Workload
from tests.chart.by_hand import lacking_in_chart, lacking_in_words, texts

KINDS = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.resource.kind)
WORDS = {
    "PyTorchJob": r"(?i)pytorch\w*",
    "PaddleJob": r"(?i)paddle\w*",
    "TFJob": r"(?i)tf(job|replica)\w*",
    "JobSet": r"(?i)jobset\w*|replicatedJobs",
}
"""Patterns of a kind's words in the chart, by kind. The kind Job is missing, because its words are parts of
others."""


@KINDS
def test_the_chart_names_every_kind_wherever_it_must(workload: Workload) -> None:
    lacking = [str(place) for place in lacking_in_chart(workload, texts())]
    assert not lacking, "\n".join(lacking)


@KINDS
def test_pages_messages_and_cases_of_the_doctor_name_every_kind(workload: Workload) -> None:
    lacking = lacking_in_words(workload)
    assert not lacking, "\n".join(lacking)


def standing(words: str) -> Iterator[tuple[str, int, int, int]]:
    """Yields file, line, first and last column of the words in the chart, outside comments and messages."""
    for name, text in texts().items():
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.lstrip().startswith(("#", "message:")):
                for found in re.finditer(words, line):
                    yield name, number, found.start(), found.end()


@pytest.mark.parametrize(
    ("kind", "name", "number", "first", "last"),
    [
        pytest.param(kind, *where, id=f"{kind}-{where[0].rpartition('/')[2]}-{where[1]}-{where[2]}")
        for kind, words in WORDS.items()
        for where in standing(words)
    ],
)
def test_no_word_of_a_kind_may_be_missing_unnoticed(
    kind: str, name: str, number: int, first: int, last: int
) -> None:
    """Therefore the places that are reported for a new kind are all places that name this kind."""
    (workload,) = (one for one in WORKLOADS if one.resource.kind == kind)
    files = texts()
    lines = files[name].splitlines(keepends=True)
    line = lines[number - 1]
    lines[number - 1] = line[:first] + "x" * (last - first) + line[last:]

    places = lacking_in_chart(workload, {**files, name: "".join(lines)})

    assert any(place.file == name and place.first <= number <= place.last for place in places), line
