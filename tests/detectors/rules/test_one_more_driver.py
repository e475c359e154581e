"""A second driver of a family needs one file with its rows, like toy_driver.py, and one line in RULES, as the
fixture adds it. The tests find a file whose line in RULES is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest

from detectors import rules
from detectors.rules import KernelRules, gpu_driver_lines
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family, SubjectKind
from tests.detectors.rules import toy_driver
from tools.docs.generate import REFERENCE, pages

NOW = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, toy_driver.RULE))


def read(text: str) -> Draft | None:
    return KernelRules().read(KernelLine(sequence=1, at=NOW, text=text), HostFacts())


def test_its_table_has_the_name_of_its_file_and_both_drivers_are_read() -> None:
    (table,) = toy_driver.RULE.tables
    assert (toy_driver.RULE.name, table.name, toy_driver.RULE.family) == (
        "toy_driver",
        "toy_driver",
        Family.GPU_DRIVER,
    )

    draft = read("toydrv 0000:3b:00.0: did not answer for 30 s")

    assert draft is not None
    assert (draft.code, draft.subject.kind, draft.subject.pci) == (
        "toydrv-stuck",
        SubjectKind.DEVICE,
        "0000:3b:00",
    )
    assert read("NVRM: No NVIDIA GPU found.") is not None


def test_the_page_of_the_family_shows_both_tables_and_explains_placeholders_once() -> None:
    page = pages()[REFERENCE / "gpu-driver.md"]

    assert "`[[gpu_driver]]`" in page
    assert "`[[toy_driver]]`" in page
    assert "| toydrv-stuck |" in page
    assert page.count("`{pci}` is") == 1


def test_each_file_of_the_package_that_has_a_rule_is_registered() -> None:
    (folder,) = rules.__path__
    files = sorted(path.stem for path in Path(folder).glob("*.py") if path.stem != "__init__")
    found = {name: getattr(import_module(f"detectors.rules.{name}"), "RULE", None) for name in files}
    with_a_rule = {name: rule for name, rule in found.items() if rule is not None}

    assert len(with_a_rule) > 10, "the folder has moved"
    assert [name for name, rule in with_a_rule.items() if rule not in rules.RULES] == []


def test_two_rules_of_one_table_are_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, gpu_driver_lines.RULE))

    with pytest.raises(ValueError, match=r"\[\[gpu_driver\]\]: gpu_driver and gpu_driver"):
        KernelRules()
