"""Logs of healthy machines make no finding above a note: a detector that takes them for broken is worse
than none.

Each record goes the whole way from its bytes to the findings, while no device of the node is known: then no
address is a stranger's. tests/detectors/quiet/README.md says where each file comes from.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest

from detectors.rules import RULES, KernelRules, families
from detectors.rules.facts import Draft, HostFacts
from detectors.sources.kmsg import heard, parse_record
from detectors.wire.contract import Family, Severity

QUIET = Path(__file__).parents[1] / "quiet"
FILES = sorted(path for path in QUIET.iterdir() if path.name != "README.md")
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
KERNEL_RULES = KernelRules()
NOBODYS = HostFacts()
RECORDS_MIN = 2_000
RECORDS_OF_FAMILY_MIN = 20


def records(path: Path) -> list[str]:
    """One record is one line, as the kernel escapes it: a newline within a record stands as `\\x0a`."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return text.decode().removesuffix("\n").split("\n")


def read(text: str) -> Draft | None:
    record = parse_record(b"4,7,1000,-;" + text.encode())
    assert record is not None, text
    line = heard(record, lambda usec: NOW)
    return None if line is None else KERNEL_RULES.read(line, NOBODYS)


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
            "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: fe2000000040110a",
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
    heads = tuple(head for rule in RULES if rule.family is family for head in rule.heads)

    near = {text for path in FILES for text in records(path) if text.startswith(heads)}

    assert len(near) >= RECORDS_OF_FAMILY_MIN


def test_the_readme_names_each_file_with_its_number_of_records() -> None:
    readme = (QUIET / "README.md").read_text(encoding="utf-8")

    assert [path.name for path in FILES if f"| `{path.name}` | {len(records(path))} |" not in readme] == []
