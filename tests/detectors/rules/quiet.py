"""Logs of healthy machines, record by record, and the findings that they cause. `python -m
tests.detectors.rules.quiet` prints for each family how many records of how many logs begin like the family's
own lines, and what became of them.

tests/detectors/quiet/README.md says where each log comes from. The states of GPUs and of ports are sampled
values: tests/detectors/folds/test_gpu_states.py and test_fabric_quiet.py draw healthy ones.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from detectors.rules import RULES, KernelRules, families
from detectors.rules.facts import Draft, HostFacts
from detectors.sources.kmsg import kernel_line_of, parse_record
from detectors.wire.contract import Family, Severity

__all__ = ["FILES", "near", "read", "records"]

QUIET = Path(__file__).parents[1] / "quiet"
FILES = sorted(path for path in QUIET.iterdir() if path.name != "README.md")
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
KERNEL_RULES = KernelRules()
NOBODYS = HostFacts()


def records(path: Path) -> list[str]:
    """Returns the records of a log. One line is one record, as the kernel escapes it: a newline within a
    record is `\\x0a`."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return text.decode().removesuffix("\n").split("\n")


def read(text: str) -> Draft | None:
    record = parse_record(b"4,7,1000,-;" + text.encode())
    assert record is not None, text
    line = kernel_line_of(record, lambda usec: NOW)
    return None if line is None else KERNEL_RULES.read(line, NOBODYS)


def near(family: Family) -> list[tuple[Path, str]]:
    """Returns the records that begin like the family's own lines, each with its log."""
    heads = tuple(head for rule in RULES if rule.family is family for head in rule.heads)
    return [(path, text) for path in FILES for text in records(path) if text.startswith(heads)]


def table() -> Iterator[str]:
    yield "family         records  different  logs  notes  above a note"
    for family in families():
        found = near(family)
        severities = [draft.severity for _, text in found if (draft := read(text)) is not None]
        notes = severities.count(Severity.INFO)
        logs, texts = {path for path, _ in found}, {text for _, text in found}
        counts = f"{len(found):7}  {len(texts):9}  {len(logs):4}  {notes:5}  {len(severities) - notes:12}"
        yield f"{family:<14} {counts}"
    every = [text for path in FILES for text in records(path)]
    loud = sum(
        1 for text in every if (draft := read(text)) is not None and draft.severity is not Severity.INFO
    )
    yield f"all: {len(every)} records of {len(FILES)} logs, {loud} above a note"


if __name__ == "__main__":
    print("\n".join(table()))
    sys.exit(0)
