"""Machine checks, decoded by the bits of a bank's status register."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules import KernelRules
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Fault, Severity, SubjectKind

RULES = KernelRules()
NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
VALID, UNCORRECTED, ENABLED, CORRUPT, REQUIRED = (1 << bit for bit in (63, 61, 60, 57, 55))


def read(text: str) -> Draft | None:
    return RULES.read(KernelLine(sequence=1, at=NOW, text=text), HostFacts())


def bank(status: int, words: str = "Machine Check Exception: 5") -> Draft | None:
    return read(f"mce: [Hardware Error]: CPU 3: {words} Bank 7: {status:016x}")


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        ("Machine Check Exception: 5 Bank 5: be00000000800400", "mce-uncorrected", Severity.FATAL),
        ("Machine Check: 0 Bank 5: 8c00004000010090", "mce-corrected", Severity.INFO),
        ("Machine Check: 0 Bank 5: bea0000000000108", "mce-before", Severity.SUSPECT),
        ("Machine Check: 0 Bank 0: b200000000070005", "mce-before", Severity.SUSPECT),
        ("Machine Check Exception: 0 Bank 0: b200000000070005", "mce-before", Severity.SUSPECT),
        ("Machine Check Exception: 4 Bank 0: b200000000070005", "mce-uncorrected", Severity.FATAL),
        ("Machine Check Exception: 0 Bank 5: 8c00004000010090", "mce-corrected", Severity.INFO),
    ],
)
def test_real_lines(text: str, code: str, severity: Severity) -> None:
    draft = read(f"mce: [Hardware Error]: CPU 0: {text}")

    assert draft is not None
    assert (draft.code, draft.severity) == (code, severity)
    assert (draft.fault, draft.subject.kind) == (Fault.HOST_HARDWARE, SubjectKind.NODE)


@pytest.mark.parametrize(
    ("status", "severity"),
    [
        (VALID, Severity.INFO),
        (VALID | UNCORRECTED, Severity.SUSPECT),
        (VALID | UNCORRECTED | ENABLED, Severity.SUSPECT),
        (VALID | UNCORRECTED | ENABLED | CORRUPT, Severity.FATAL),
        (VALID | UNCORRECTED | ENABLED | REQUIRED, Severity.FATAL),
        (VALID | UNCORRECTED | CORRUPT, Severity.INFO),
        (VALID | CORRUPT, Severity.INFO),
    ],
)
def test_the_bits_decide(status: int, severity: Severity) -> None:
    draft = bank(status)

    assert draft is not None
    assert draft.severity is severity


@pytest.mark.parametrize("status", [VALID | UNCORRECTED | ENABLED | bit for bit in (CORRUPT, REQUIRED)])
def test_an_error_without_an_exception_has_ended_the_previous_boot(status: int) -> None:
    draft = bank(status, "Machine Check: 0")

    assert draft is not None
    assert (draft.code, draft.severity) == ("mce-before", Severity.SUSPECT)


@given(st.integers(0, (1 << 63) - 1))
def test_a_register_that_is_not_valid_says_nothing(status: int) -> None:
    assert bank(status) is None


AMD = "[Hardware Error]: CPU:21 (19:1:1) MC1_STATUS[-|UE|MiscV|-|-|-|-|-|-|-]: 0x{:016x}"


@pytest.mark.parametrize(
    ("status", "severity"),
    [
        (VALID | ENABLED, Severity.INFO),
        (VALID | ENABLED | 1 << 44, Severity.SUSPECT),
        (VALID | UNCORRECTED | ENABLED, Severity.SUSPECT),
        (VALID | UNCORRECTED | ENABLED | REQUIRED, Severity.FATAL),
        (VALID | UNCORRECTED | ENABLED | CORRUPT, Severity.SUSPECT),
        (0x8700900800000000, Severity.INFO),
    ],
    ids=["corrected", "deferred", "not used", "used", "before", "contradictory"],
)
def test_what_the_decoder_of_amd_prints_is_read_by_the_same_bits(status: int, severity: Severity) -> None:
    draft = read(AMD.format(status))

    assert draft is not None
    assert draft.severity is severity


def test_other_lines_of_machine_checks_are_no_findings() -> None:
    assert read("mce: [Hardware Error]: Machine check events logged") is None
    assert read("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 5: 8c0") is None
