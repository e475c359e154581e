"""NVLink lines are decoded by their register words. The agent records what NVIDIA ignores, and Rekindle never
acts on it."""

# ruff: noqa: E501  the kernel's lines are kept whole

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.catalog.nvlink5 import NvLink5Row, NvLink5Table, driver_major
from detectors.catalog.nvlink_bits import packaged_nvlink_bits
from detectors.catalog.tables import UserRows
from detectors.catalog.xid import XidRow
from detectors.folds.core import AgentCore
from detectors.rules import KernelRules
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.rules.nvlink import parse, registers
from detectors.service.settings import AgentSettings
from detectors.wire.contract import Device, Fault, Origin, Remedy, Severity

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
RULES = KernelRules()
TABLE = NvLink5Table.packaged()
SEVERITY = {"IGNORE": Severity.INFO, "RESET_GPU": Severity.FATAL, "XID_154_EVAL": Severity.PENDING}


def draft(text: str, driver: str = "", rules: KernelRules = RULES) -> Draft:
    line = KernelLine(sequence=1, at=NOW, text=f"NVRM: Xid (PCI:0000:04:00): {text}")
    found = rules.read(line, HostFacts(driver_version=driver))
    assert found is not None
    return found


def word(layout: str) -> int:
    """Returns the first word of a row, with every free bit unset."""
    return int(layout.replace("-", "0"), 2)


def line_of(row: NvLink5Row, *, is_r575: bool) -> str:
    layout = row.layout_r575 if is_r575 else row.layout_before_r575
    status = next(iter(row.statuses), 0)
    severity = row.vendor_severity or "Nonfatal"
    return f"{row.xid}, {row.units[-1]} {severity} XC0 i0 Link 07 (0x{word(layout):08x} 0x{status:08x} 0x0)"


# Real lines of public reports, each with its severity and remedy.
# fmt: off
LINES = {
    "145, pid=11436, name=cache_mgr_main, RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)":
        ("pending", "restart-application"),  # XID_154_EVAL
    "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)":
        ("info", "none"),
    # columns padded by the driver: github.com/NVIDIA/NVSentinel and github.com/leptonai/gpud, tests of their Xid readers
    "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "150, MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "145, pid=4021, name=VLLM::Worker_TP, RLW_REMAP Fatal XC0 i0 Link 07 (0x00000004 0x00000040 0x00000000 0x00000000 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "146, TLW_RX/TLW_RX_PIPE1 Nonfatal XC0 i0 Link 00 (0x0000000b 0x00000001 0x00000000 0x00000000)":
        ("info", "none"),
    "145, RLW_RXPIPE Nonfatal XC0 i0 Link 00 (0x00000006 0x00000001 0x00000000 0x00000000)":
        ("info", "none"),
    "145, RLW_RXPIPE Nonfatal XC0 i0 Link 00 (0x00000086 0x00000001 0x00000000 0x00000000)":
        ("fatal", "reset-device"),  # escalated
    "145, RLW_RSPCOL Fatal XC0 i0 Link 00 (0x00000005 0x00000002 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "149, NETIR Fatal XC0 i0 Link -1 (0x00000006 0x00000000 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)":
        ("fatal", "reset-device"),
    "149, NETIR_LINK_DOWN Fatal XC0 i0 Link 08 (0x02600011 0x00000000)":
        ("info", "none"),  # NVIDIA ignores this reason although the link is down
}
# fmt: on


@pytest.mark.parametrize(("text", "expected"), LINES.items(), ids=lambda value: str(value)[:40])
def test_a_real_line_is_decoded(text: str, expected: tuple[str, str]) -> None:
    found = draft(text)

    assert (found.severity, found.remedy) == expected
    assert (found.fault, found.origin) == (Fault.NVLINK, Origin.KERNEL)


def test_the_table_is_whole() -> None:
    """There are 95 rows in NVIDIA's sheet, and three of them have a second action."""
    assert len(TABLE.rows) == 98
    assert Counter(row.vendor_action for row in TABLE.rows) == {
        "IGNORE": 45,
        "RESET_GPU": 45,
        "XID_154_EVAL": 8,
    }


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_a_row_follows_nvidias_action_and_names_its_source(row: NvLink5Row) -> None:
    assert row.severity is SEVERITY[row.vendor_action]
    assert row.source
    assert row.vendor_severity in ("Fatal", "Nonfatal", "")


@pytest.mark.parametrize("is_r575", [False, True], ids=["before R575", "R575"])
@pytest.mark.parametrize("driver", ["", "570.124.06", "580.95.05"])
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_every_row_is_found_by_a_line_of_either_layout_whatever_driver_is_known(
    row: NvLink5Row, driver: str, is_r575: bool
) -> None:
    found = draft(line_of(row, is_r575=is_r575), driver)

    assert (found.severity, found.remedy) == (row.severity, row.remedy)


def test_no_word_fits_both_layouts_but_where_they_are_one() -> None:
    """Therefore each line is read correctly even if the driver's version is not known."""
    for a in TABLE.rows:
        for b in TABLE.rows:
            pair = zip(a.layout_before_r575, b.layout_r575, strict=True)
            apart = any({x, y} == {"0", "1"} for x, y in pair)
            if a.xid == b.xid and not apart:
                assert a.xid == 150
                assert a.severity is b.severity is Severity.FATAL


def row(**changes: object) -> NvLink5Row:
    fields: dict[str, object] = {
        "name": "a",
        "xid": 145,
        "units": ("U",),
        "layout_before_r575": "-" * 32,
        "layout_r575": "1" * 32,
        "vendor_action": "IGNORE",
        "investigate": "",
        "vendor_severity": "",
        "severity": Severity.INFO,
        "remedy": Remedy.NONE,
        "source": "a test",
    }
    return NvLink5Row(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("major", "severity"), [(570, "info"), (575, "fatal"), (None, "info")])
def test_where_both_layouts_fit_the_driver_decides_and_without_it_the_one_that_acts_less(
    major: int | None, severity: str
) -> None:
    new = row(name="b", layout_before_r575="1" * 32, layout_r575="0" * 31 + "-", severity=Severity.FATAL)
    found = NvLink5Table([row(), new]).decode(145, frozenset({"U"}), 0, 0, major=major)

    assert found is not None
    assert found.severity == severity


def test_several_errors_at_once_are_as_grave_as_the_gravest() -> None:
    harmless = "145, RLW_RSPCOL Nonfatal XC0 i0 Link 00 (0x00000005 0x80000001 0x0)"
    grave = "145, RLW_RSPCOL Fatal XC0 i0 Link 00 (0x00000005 0x80000003 0x0)"

    assert draft(harmless).severity is Severity.INFO
    assert draft(grave).severity is Severity.FATAL


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00400000 0x0)", "pending"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000000 0x0)", "pending"),
        ("145, NEW_UNIT Nonfatal XC0 i0 Link 00 (0x00000004 0x00000100 0x0)", "pending"),
        ("149, NETIR_MFDE_EVENT Nonfatal XC0 i0 Link 00 (0x00000014 0x00000002 0x0)", "pending"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00", "pending"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004)", "pending"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x100", "pending"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 words)", "pending"),
        ("145, something else entirely", "pending"),
        ("145", "pending"),
        ("149, NETIR_LINK_DOWN Fatal XC0 i0 Link 08 (0x00300011 0x00000000)", "fatal"),
        ("145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000100 0x0)", "fatal"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000040 0x0)", "pending"),
    ],
    ids=[
        "an unknown status",
        "no status",
        "an unknown unit",
        "a number that is no set of bits",
        "no words",
        "one word",
        "cut off",
        "no numbers",
        "another form",
        "nothing",
        "an unknown reason, and the driver says Fatal",
        "the driver says Fatal of what the table ignores",
        "the driver says Nonfatal of what the table calls fatal",
    ],
)
def test_a_line_that_no_row_fits_is_never_healthy_and_fatal_only_by_the_drivers_own_word(
    text: str, severity: str
) -> None:
    found = draft(text)

    assert (found.severity, found.remedy) == (severity, Remedy.INSPECT)


def test_a_process_name_decides_nothing() -> None:
    text = "145, pid=1, name=a, RLW Fatal XC, RLW_RSPCOL Nonfatal XC0 i0 Link 00 (0x00000005 0x00000001 0x0)"

    assert draft(text).severity is Severity.INFO


def test_a_users_own_row_for_the_code_is_taken_as_it_stands() -> None:
    mine = XidRow(
        code=145,
        mnemonic="MINE",
        meaning="on our boards always a riser",
        fault=Fault.DEVICE_RESET,
        origin=Origin.KERNEL,
        severity=Severity.FATAL,
        remedy=Remedy.RESET_DEVICE,
        source="us",
    )
    text = "145, RLW_RSPCOL Nonfatal XC0 i0 Link 00 (0x00000005 0x00000001 0x0)"

    found = draft(text, rules=KernelRules(UserRows({"xid": [mine]})))

    assert (found.fault, found.severity) == (Fault.DEVICE_RESET, Severity.FATAL)


@pytest.mark.parametrize(
    ("version", "major"), [("580.95.05", 580), ("570", 570), ("", None), ("R580", None), ("٥٧٥.1", None)]
)
def test_the_drivers_branch(version: str, major: int | None) -> None:
    assert driver_major(version) == major


@given(st.sampled_from(range(144, 151)), st.text(max_size=120))
def test_no_text_makes_it_raise_and_none_makes_it_healthy(xid: int, text: str) -> None:
    found = draft(f"{xid}, {text}")

    assert found.severity is not Severity.INFO
    assert found.fault is Fault.NVLINK


@given(
    st.sampled_from(TABLE.rows),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from(["Fatal", "Nonfatal"]),
    st.sampled_from(["", "570.1", "580.1"]),
)
def test_words_are_harmless_only_where_a_row_of_nvidia_says_so(
    row: NvLink5Row, intr_info: int, status: int, severity: str, driver: str
) -> None:
    text = f"{row.units[0]} {severity} XC0 i0 Link 00 (0x{intr_info:08x} 0x{status:08x} 0x0)"
    line = parse(text)
    assert line is not None
    assert line.words == (intr_info, status, 0)

    if draft(f"{row.xid}, {text}", driver).severity is Severity.INFO:
        layouts = [
            r
            for r in TABLE.rows
            if r.xid == row.xid
            and (r.has_layout(intr_info, is_r575=False) or r.has_layout(intr_info, is_r575=True))
        ]
        assert any(r.severity is Severity.INFO for r in layouts)


# --- Xid 74 ----------------------------------------------------------------------------------------------------


def seven(**bits: int) -> str:
    """Returns a line with seven register words, the first of which is register 1, for example
    `seven(r1=0x1)`."""
    words = ", ".join(f"0x{bits.get(f'r{n}', 0):x}" for n in range(1, 8))
    return f"74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14({words})"


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (seven(r3=0x10000), "fatal"),
        (seven(r1=0x10000), "fatal"),
        (seven(r1=1 | 1 << 23 | 1 << 30), "info"),
        (seven(r5=1 << 20 | 1 << 29), "info"),
        (seven(r1=1 | 1 << 20), "pending"),
        (seven(r4=1 << 16), "pending"),
        (seven(r4=1 << 18), "fatal"),
        (seven(r1=1 | 1 << 4), "fatal"),
        (seven(r1=1, r3=1), "fatal"),
        (seven(r1=1, r2=1), "fatal"),
        (seven(r1=1 | 1 << 31), "fatal"),
        (seven(), "fatal"),
        ("74, NVLink: fatal error detected on link 14(0x1, 0x0)", "fatal"),
        ("74, NVLink: fatal error detected on link 14(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "fatal"),
        ("74, NVLink: fatal error detected on link 14(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, zero)", "fatal"),
        ("74, something else", "fatal"),
    ],
)
def test_registers_decide_and_what_is_not_understood_is_fatal(text: str, severity: str) -> None:
    found = draft(text)

    assert found.severity == severity
    assert found.remedy is (Remedy.NONE if severity == "info" else Remedy.INSPECT)


def test_each_bit_of_a_register_has_one_row() -> None:
    bits = [(row.register, bit) for row in packaged_nvlink_bits() for bit in row.bits]

    assert len(bits) == len(set(bits))


@given(st.text(max_size=120))
def test_no_text_of_a_74_makes_it_raise(text: str) -> None:
    assert len(registers(text)) in (0, 7)
    draft(f"74, {text}")


# --- what becomes of it ----------------------------------------------------------------------------------------


def test_a_harmless_line_does_not_hide_a_fatal_one_of_the_same_code_and_gpu() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    core.inventory([Device(uuid="GPU-4", pci="00000000:04:00.0")], "580.95.05")
    words = ["0x00000005 0x00000001", "0x00000005 0x00000002"]
    for n, (severity, word_) in enumerate(zip(["Nonfatal", "Fatal"], words, strict=True)):
        text = f"NVRM: Xid (PCI:0000:04:00): 145, RLW_RSPCOL {severity} XC0 i0 Link 00 ({word_} 0x0)"
        core.kernel_line(KernelLine(sequence=n, at=NOW, text=text))

    assert [f.severity for f in core.findings] == [Severity.INFO, Severity.FATAL]


def test_the_driver_that_an_earlier_run_published_is_known_before_the_inventory_is_read() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    core.inventory([Device(uuid="GPU-4", pci="00000000:04:00.0")], "580.95.05")
    later = AgentCore(AgentSettings(), boot_id="b")

    later.restore(core.status(NOW))

    assert later.status(NOW).driver_version == "580.95.05"
