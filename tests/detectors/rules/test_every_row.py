"""Each row of the catalogues of Xids, SXids and NVLink5 sub-codes, as a whole record of the kernel log, up to
the finding that the agent publishes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from detectors.catalog.log_errors import packaged_log_errors
from detectors.catalog.nvlink5 import NVLINK5_XIDS, NvLink5Row, NvLink5Table
from detectors.catalog.signature_rows import packaged_signatures
from detectors.catalog.xid import XIDS, RecoveryActions, XidRow
from detectors.folds.core import AgentCore
from detectors.rules import KernelRules
from detectors.rules.fabric_rows import fabric_rows
from detectors.rules.gpu_health import GpuHealth
from detectors.rules.sxid_lines import SXIDS, SxidRow
from detectors.service.settings import AgentSettings
from detectors.sources.kmsg import kernel_line_of, parse_record
from detectors.text.pci import parse_pci
from detectors.wire.contract import Device, Finding, Origin, Remedy, Severity, SubjectKind

NOW = datetime(2026, 11, 26, 1, 0, tzinfo=UTC)
RULES, HEALTH, PORTS = KernelRules(), GpuHealth(), fabric_rows()
LOG_ERRORS, SIGNATURES = packaged_log_errors(), packaged_signatures()
GPU = Device(uuid="GPU-1", pci="0000:3b:00.0")
SWITCH = parse_pci("0000:c3:00.0")
XID_ROWS: list[XidRow] = XIDS.packaged()
SXID_ROWS: list[SxidRow] = SXIDS.packaged()
NVLINK5_ROWS = NvLink5Table.packaged().rows


def finding(text: str, driver: str = "580.95.05") -> Finding:
    """Returns the finding of a fresh agent on a node with one GPU and one NVSwitch."""
    core = AgentCore(
        AgentSettings(),
        boot_id="b",
        kernel_rules=RULES,
        gpu_health=HEALTH,
        port_rows=PORTS,
        log_errors=LOG_ERRORS,
        recipes=SIGNATURES,
    )
    core.inventory([GPU], driver)
    assert SWITCH is not None
    core.on_bus(frozenset({SWITCH}))
    record = parse_record(f"3,1001,5000000,-;{text}".encode())
    assert record is not None
    line = kernel_line_of(record, lambda usec: NOW)
    assert line is not None, text
    assert core.kernel_line(line), text
    (found,) = core.status(NOW).findings
    return found


def xid(text: str, driver: str = "580.95.05") -> Finding:
    found = finding(f"NVRM: Xid (PCI:0000:3b:00): {text}", driver)
    assert (found.subject.kind, found.subject.device, found.subject.pci) == (
        SubjectKind.DEVICE,
        GPU.uuid,
        "0000:3b:00",
    )
    return found


def judged(found: Finding) -> tuple[object, ...]:
    return found.code, found.fault, found.origin, found.severity, found.remedy, found.final


def differing(pairs: Iterable[tuple[tuple[object, ...], tuple[object, ...]]]) -> list[object]:
    return [pair for pair in pairs if pair[0] != pair[1]]


def test_every_xid_is_a_finding_as_its_row_says() -> None:
    """The text decides about Xid 154, and the register words about Xids 144 to 150: a line without these
    words is at most pending."""
    rows = [row for row in XID_ROWS if row.code != 154]
    expected = [
        (
            f"xid-{row.code}",
            row.fault,
            row.origin,
            Severity.PENDING if row.code in NVLINK5_XIDS else row.severity,
            row.remedy,
            row.final,
        )
        for row in rows
    ]

    found = [judged(xid(f"{row.code}, pid=4021, name=pt_main_thread, Ch 00000008")) for row in rows]

    assert len(XID_ROWS) >= 179
    assert differing(zip(found, expected, strict=True)) == []


@pytest.mark.parametrize("value", range(1, 8))
def test_every_recovery_action_is_a_finding_as_its_row_says(value: int) -> None:
    action = RecoveryActions.packaged().of(value)
    text = f"154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x9 (X) to {value:#x} (Y)"

    assert judged(xid(text)) == ("xid-154", action.fault, Origin.DRIVER, action.severity, action.remedy, True)


def test_every_sxid_is_a_finding_as_its_row_and_the_drivers_word_say() -> None:
    cases = [
        (row, word, severity)
        for row in SXID_ROWS
        for word, severity in (("Fatal, ", row.fatal), ("Non-fatal, ", row.nonfatal), ("", row.severity))
    ]
    expected = [
        (
            f"sxid-{row.code}",
            row.fault,
            Origin.FABRIC,
            severity,
            Remedy.REBOOT_NODE if severity is Severity.FATAL else Remedy.NONE,
            SubjectKind.SWITCH,
            "0000:c3:00",
        )
        for row, word, severity in cases
    ]

    found = [
        finding(
            f"nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): {row.code:05d}, {word}Link 28 some error (First)"
        )
        for row, word, _ in cases
    ]

    told = [(*judged(one)[:5], one.subject.kind, one.subject.pci) for one in found]
    assert len(SXID_ROWS) == 400
    assert differing(zip(told, expected, strict=True)) == []


@pytest.mark.parametrize(("driver", "is_r575"), [("570.124.06", False), ("580.95.05", True)])
def test_every_sub_code_of_nvlink5_is_a_finding_as_its_row_says(driver: str, is_r575: bool) -> None:
    found = [xid(nvlink5(row, is_r575=is_r575), driver) for row in NVLINK5_ROWS]

    told = [(one.code, one.severity, one.remedy) for one in found]
    expected = [(f"xid-{row.xid}", row.severity, row.remedy) for row in NVLINK5_ROWS]
    assert len(NVLINK5_ROWS) >= 95
    assert differing(zip(told, expected, strict=True)) == []


def nvlink5(row: NvLink5Row, *, is_r575: bool) -> str:
    layout = row.layout_r575 if is_r575 else row.layout_before_r575
    word, status = int(layout.replace("-", "0"), 2), next(iter(row.statuses), 0)
    said = row.vendor_severity or "Nonfatal"
    words = f"0x{word:08x} 0x{status:08x} 0x00000000 0x00000000 0x00000000 0x00000000"
    return f"{row.xid}, pid=4021, name=pt_main_thread, {row.units[-1]} {said} XC0 i0 Link 07 ({words})"


def test_a_nonfatal_error_that_nvidia_ignores_at_once_and_later_is_a_note() -> None:
    """gpud calls this line a warning. NVIDIA's workbook names the sub-code and says `IGNORE` twice, as the
    immediate and as the investigatory action. In versions newer than R575 no other row fits its words."""
    words = "(0x0000000b 0x00000001 0x00000000 0x00000000)"

    found = xid(f"146, TLW_RX/TLW_RX_PIPE1 Nonfatal XC0 i0 Link 00 {words}", driver="")

    assert (found.severity, found.remedy) == (Severity.INFO, Remedy.NONE)
