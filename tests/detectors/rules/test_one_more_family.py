"""A family of faults needs one file with its rows, like toy_family.py, and one line in RULES, as the fixture
adds it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from detectors import rules
from detectors.agent.wiring import core_of
from detectors.folds.core import AgentCore
from detectors.service.settings import AgentSettings, Catalogue
from detectors.sources.kmsg import KERN, Record, kernel_line_of
from detectors.wire.contract import CoverageState, Family, Finding, Severity, Source
from tests.detectors.rules import toy_family
from tools.docs.generate import REFERENCE, pages

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
OWN_ROW = """
[[toy]]
code = {code}
meaning = "On our boards this is a broken fan"
fault = "thermal"
severity = "pending"
remedy = "inspect"
source = "our own experience"
"""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, toy_family.RULE))


def agent(tmp_path: Path, own_rows: str = "") -> AgentCore:
    """Returns the core as the agent makes it from its settings, with a user's rows."""
    extra = tmp_path / "extra.toml"
    extra.write_text(own_rows)
    return core_of(AgentSettings(catalogue=Catalogue(extra=str(extra))), boot_id="b")


def found(core: AgentCore, text: str) -> list[Finding]:
    """Returns the findings after one record of the kernel log."""
    record = Record(facility=KERN, sequence=1, usec=0, text=text)
    line = kernel_line_of(record, lambda _: NOW)
    if line is not None:
        core.kernel_line(line)
    return core.findings


def toy_line(code: int) -> str:
    return f"toy-nvswitch: Toy (PCI:0000:05:00.0): {code}, Port 3 is gone"


def test_a_line_that_a_packaged_row_describes_is_a_finding(tmp_path: Path) -> None:
    (finding,) = found(agent(tmp_path), toy_line(11001))

    assert (finding.code, finding.severity) == ("toy-11001", Severity.FATAL)


def test_a_line_that_only_a_users_row_describes_is_a_finding(tmp_path: Path) -> None:
    assert not found(agent(tmp_path), toy_line(7))

    core = agent(tmp_path, OWN_ROW.format(code=7))

    (finding,) = found(core, toy_line(7))
    assert (finding.code, finding.severity) == ("toy-7", Severity.PENDING)
    assert not core.status(NOW).catalogue_problems


def test_a_users_row_wins_over_the_packaged_one(tmp_path: Path) -> None:
    (finding,) = found(agent(tmp_path, OWN_ROW.format(code=11001)), toy_line(11001))

    assert finding.severity is Severity.PENDING


@pytest.mark.parametrize(
    ("own_rows", "names"),
    [
        (OWN_ROW.format(code='"7"'), ("[[toy]]", "row 1", "code '7'", "`int`")),
        (OWN_ROW.format(code=7) + "colour = 1\n", ("colour", "1")),
        (OWN_ROW.format(code=7) * 2, ("[[toy]]", "row 2", "code 7")),
        ("[[toys]]\ncode = 7\n", ("[[toy]]", "[[log_error]]")),
    ],
    ids=["a bad value", "an unknown field", "the same again", "an unknown table"],
)
def test_a_bad_row_of_a_user_is_told_exactly(tmp_path: Path, own_rows: str, names: tuple[str, ...]) -> None:
    (problem,) = agent(tmp_path, own_rows).status(NOW).catalogue_problems

    assert all(name in problem for name in names), problem


def test_the_coverage_of_the_kernel_log_names_the_family(tmp_path: Path) -> None:
    core = agent(tmp_path)
    core.cover(Source.KMSG, CoverageState.COVERED, NOW)

    (row,) = core.status(NOW).coverage
    assert {Family.GPU_XID, Family.NVSWITCH_SXID} <= set(row.families)


def test_the_family_has_a_page_of_its_rows() -> None:
    page = pages()[REFERENCE / "nvswitch-sxid.md"]

    assert "`[[toy]]`" in page
    (row,) = toy_family.TOYS.packaged()
    assert (
        f"| {row.code} | {row.meaning} | {row.fault} | {row.severity} | {row.remedy} | {row.source} |" in page
    )
