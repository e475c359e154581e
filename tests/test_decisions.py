"""Checks docs/decisions: each record has its parts and its row, and each link leads somewhere."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("0*.md"))
INDEX = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_records_are_numbered_without_gaps_and_each_has_its_row_with_its_title() -> None:
    titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in RECORDS]
    rows = re.findall(r"^\| \[(\d{4})\]\((.*)\) \| (.*) \|$", INDEX, re.MULTILINE)

    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))
    assert rows == [
        (path.name[:4], path.name, title.partition(": ")[2])
        for path, title in zip(RECORDS, titles, strict=True)
    ]
    assert all(title.startswith(f"# {path.name[:4]}: ") for path, title in zip(RECORDS, titles, strict=True))


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_status_context_decision_and_consequences_in_this_order(record: Path) -> None:
    text = record.read_text(encoding="utf-8")

    assert re.search(r"^Status: (accepted|replaced|dropped), \d{4}-\d\d-\d\d", text, re.MULTILINE)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]


@pytest.mark.parametrize("page", [*RECORDS, FOLDER / "README.md"], ids=lambda path: path.stem)
def test_links_and_named_files_of_the_repository_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    named = re.findall(r"`((?:detectors|recover|chaos|tests|image)/[\w/.]+\.\w+)`", text)

    assert [link for link in links if not (FOLDER / link).exists()] == []
    assert [name for name in named if not (FOLDER.parents[1] / name).exists()] == []
