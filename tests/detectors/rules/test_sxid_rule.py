"""SXid lines: every row of the catalogue, with each word that the driver may print."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detectors.rules import KernelRules
from detectors.rules.facts import Draft, HostFacts, KernelLine, addresses_of
from detectors.rules.sxid_lines import SXIDS, SxidRow
from detectors.wire.contract import Device, Fault, Origin, Remedy, Severity, SubjectKind

RULES = KernelRules()
NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
ROWS = {row.code: row for row in SXIDS.packaged()}
SWITCH = HostFacts(addresses=addresses_of([Device(uuid="", pci="0000:c3:00.0")]))


def read(text: str, host: HostFacts = SWITCH) -> Draft | None:
    return RULES.read(KernelLine(sequence=1, at=NOW, text=text), host)


def sxid(rest: str) -> Draft | None:
    return read(f"nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): {rest}")


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: str(row.code))
def test_each_code_is_read_as_its_row_and_the_drivers_word_say(row: SxidRow) -> None:
    said = [sxid(f"{row.code}, {word}Link 28 text (First)") for word in ("Fatal, ", "Non-fatal, ", "")]

    assert [draft and draft.severity for draft in said] == [row.fatal, row.nonfatal, row.severity]
    assert {draft and draft.code for draft in said} == {f"sxid-{row.code}"}


def test_a_fatal_error_takes_the_node_out_unless_nvidias_own_tool_ignores_it() -> None:
    assert len(ROWS) == 400
    assert {row.fatal for row in ROWS.values() if row.nvsentinel != "IGNORE"} == {Severity.FATAL}
    ignored = [row for row in ROWS.values() if row.nvsentinel == "IGNORE" and row.guide != "always fatal"]
    assert {row.fatal for row in ignored} == {Severity.SUSPECT}


def test_an_error_that_the_driver_calls_non_fatal_never_takes_a_node_out() -> None:
    assert {row.nonfatal for row in ROWS.values()} == {Severity.INFO, Severity.SUSPECT}


def test_the_subject_is_the_switch_and_the_remedy_a_reboot() -> None:
    draft = sxid("24007, Fatal, Link 28 sourcetrack timeout error (First)")

    assert draft is not None
    assert (draft.subject.kind, draft.subject.pci) == (SubjectKind.SWITCH, "0000:c3:00")
    assert (draft.fault, draft.origin, draft.remedy) == (Fault.NVSWITCH, Origin.FABRIC, Remedy.REBOOT_NODE)


@pytest.mark.parametrize(
    "rest",
    [
        "11004, Severity 1 Engine instance 42 Sub-engine instance 00",
        "12028, Data {0x000001c0, 0x00bd5c8a, 0x00000500, 0x00000064}",
        "12028",
        "123456, Fatal, Link 1 x",
    ],
)
def test_registers_and_other_lines_are_no_findings(rest: str) -> None:
    assert sxid(rest) is None


def test_a_code_without_a_row_is_never_healthy() -> None:
    said = [sxid(f"39999, {word}Link 1 x") for word in ("Fatal, ", "Non-fatal, ", "")]

    assert [draft and draft.severity for draft in said] == [
        Severity.FATAL,
        Severity.INFO,
        Severity.SUSPECT,
    ]


def test_a_switch_that_the_node_does_not_have_is_no_finding() -> None:
    line = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"

    assert read(line) is None
    assert read(line, HostFacts()) is not None
