"""Logs of healthy machines cause no finding above a note: a detector that considers them broken is worse than
none.

Each record goes the whole way from its bytes to the findings, while no device of the node is known, so that
no address counts as foreign. tests/detectors/quiet/README.md says where each file comes from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.rules import RULES, families
from detectors.rules.base import Rule
from detectors.rules.sentences import SentenceRow
from detectors.wire.contract import Family, Severity
from tests.detectors.rules import toy_driver
from tests.detectors.rules.quiet import FILES, QUIET, near, read, records, table

RECORDS_MIN = 2_000
RECORDS_OF_FAMILY_MIN = 20
RECORDS_OF_RULE_MIN = 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_healthy_log_makes_no_finding_above_a_note(path: Path) -> None:
    drafts = [(text, read(text)) for text in records(path)]

    loud = [
        f"{draft.code} {draft.severity}: {text}"
        for text, draft in drafts
        if draft is not None and draft.severity is not Severity.INFO
    ]

    assert loud == []


@pytest.mark.parametrize(
    ("healthy", "broken", "severity"),
    [
        (
            "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: ee2000000040110a",
            "mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 7: fe2000000040110a",
            Severity.FATAL,
        ),
        (
            "pcieport 0000:00:1d.0: AER: device recovery failed",
            "pcieport 0000:00:1d.0: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
            Severity.SUSPECT,
        ),
        (
            "nvidia 0000:41:00.0: AER: can't recover (no error_detected callback)",
            "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            Severity.FATAL,
        ),
    ],
    ids=["machine check", "port", "GPU"],
)
def test_what_a_healthy_machine_says_is_a_note_and_the_fault_itself_is_none(
    healthy: str, broken: str, severity: Severity
) -> None:
    note, fault = read(healthy), read(broken)

    assert note is not None
    assert note.severity is Severity.INFO
    assert fault is not None
    assert fault.severity is severity


def test_the_corpus_is_large() -> None:
    assert sum(len(records(path)) for path in FILES) >= RECORDS_MIN


@pytest.mark.parametrize("family", families())
def test_each_family_has_healthy_lines_that_begin_as_its_own_do(family: Family) -> None:
    different = {text for _, text in near(family)}

    assert len(different) >= RECORDS_OF_FAMILY_MIN


def too_loud(rule: Rule[Any], rows: list[SentenceRow]) -> list[str]:
    """Returns the codes above a note, if too few healthy lines begin like those of the rule's own driver. The
    lines of another driver of the same family prove nothing about this driver."""
    different = {text for path in FILES for text in records(path) if text.startswith(rule.heads)}
    if len(different) >= RECORDS_OF_RULE_MIN:
        return []
    return [row.code for row in rows if row.severity is not Severity.INFO or row.repeated is not None]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_of_sentences_has_notes_only_until_healthy_lines_of_its_driver_are_there(
    rule: Rule[Any],
) -> None:
    tables = [table for table in rule.tables if issubclass(table.row, SentenceRow)]

    assert too_loud(rule, [row for table in tables for row in table.packaged()]) == []


def test_a_new_driver_of_a_known_family_has_notes_only() -> None:
    (table,) = toy_driver.RULE.tables
    (row,) = table.packaged()

    assert too_loud(toy_driver.RULE, [row]) == []
    assert too_loud(toy_driver.RULE, [msgspec.structs.replace(row, severity=Severity.SUSPECT)]) == [row.code]


def test_the_table_shows_each_family_and_nothing_above_a_note() -> None:
    *rows, last = list(table())[1:]

    assert [row.split()[0] for row in rows] == list(families())
    assert {row.split()[-1] for row in rows} == {"0"}
    assert last.endswith(" 0 above a note")


def test_the_readme_names_each_file_with_its_number_of_records() -> None:
    readme = (QUIET / "README.md").read_text(encoding="utf-8")

    assert [path.name for path in FILES if f"| `{path.name}` | {len(records(path))} |" not in readme] == []
