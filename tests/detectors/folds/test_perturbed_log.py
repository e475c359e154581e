"""A kernel log as real nodes write it: odd bytes, long lines, storms, addresses and drivers of all ages."""

# ruff: noqa: E501  the kernel's lines are kept whole

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from detectors.folds.core import AgentCore
from detectors.folds.status_size import STATUS_BYTES_MAX, bounded
from detectors.rules import KernelRules
from detectors.rules.facts import HostFacts, KernelLine
from detectors.service.settings import AgentSettings
from detectors.wire.base import EVIDENCE_BYTES_MAX
from detectors.wire.contract import FINDINGS_MAX, Device, Fault
from tests.detectors.sources.test_kmsg import Heard, following, record

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
DEVICES = tuple(
    Device(uuid=f"GPU-{number:02x}", pci=f"00000000:{number:02X}:00.0") for number in range(0x38, 0x40)
)
OFF = "GPU has fallen off the bus."


@pytest.fixture
def core() -> AgentCore:
    core = AgentCore(AgentSettings(), boot_id="0f1e2d3c-0000-4000-8000-000000000000")
    core.inventory(DEVICES, "595.45.04")
    return core


async def heard(path: Path, *lines: bytes) -> Heard:
    path.write_bytes(b"\n".join(lines) + b"\n" + record(99, "the last").encode())
    async with following(path) as found:
        await found.until(lambda: found.sequence == 99)
    return found


@pytest.mark.parametrize(
    "name",
    [b"a\x00b", rb"a\x00b", b"\xff\xfe", rb"\xff\xfe", "é漢".encode(), rb"\x1b[2J", rb"a\x0aNVRM: b"],
    ids=["NUL", "escaped NUL", "no UTF-8", "escaped", "UTF-8", "terminal codes", "a newline"],
)
async def test_whatever_a_process_is_called_its_line_is_a_finding(
    tmp_path: Path, core: AgentCore, name: bytes
) -> None:
    line = b"4,1,1000,-;NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=" + name + b", " + OFF.encode()

    (found,) = (await heard(tmp_path / "kmsg", line)).lines
    core.kernel_line(found)

    (finding,) = core.findings
    assert (finding.code, finding.subject.device) == ("xid-79", "GPU-38")
    assert msgspec.json.decode(msgspec.json.encode(finding), type=type(finding)) == finding


async def test_dictionary_lines_of_a_record_are_no_records_however_long(tmp_path: Path) -> None:
    dictionary = (
        b" SUBSYSTEM=pci",
        b" DEVICE=+pci:0000:38:00.0",
        b" 4,7,7,-;NVRM: Xid (PCI:0000:38:00): 79, x",
        b" LONG=" + b"x" * 6000,
        b" BYTES=\xff\x00",
    )
    lines = (b"4,1,1000,-;NVRM: Xid (PCI:0000:38:00): 48, DBE", *dictionary)

    found = await heard(tmp_path / "kmsg", *lines)

    assert [line.sequence for line in found.lines] == [1]
    assert found.bad_lines == []
    (gap,) = found.gaps
    assert gap.startswith("97: ")
    assert "99" in gap


async def test_a_line_of_kilobytes_is_a_finding_with_the_beginning_of_it(
    tmp_path: Path, core: AgentCore
) -> None:
    line = b"4,1,1000,-;NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=p, " + b"x" * 8000

    (found,) = (await heard(tmp_path / "kmsg", line)).lines
    core.kernel_line(found)

    assert core.findings[0].evidence.startswith("NVRM: Xid (PCI:0000:38:00): 79, pid=1")
    assert len(core.findings[0].evidence) == EVIDENCE_BYTES_MAX


@pytest.mark.parametrize(
    "address",
    ["PCI:0000:3b:00", "PCI:0000:3B:00", "PCI:00000000:3B:00", "PCI:0000:3b:00.0", "0000:3b:00"],
)
def test_an_address_is_the_same_device_however_it_is_written(core: AgentCore, address: str) -> None:
    core.kernel_line(KernelLine(sequence=1, at=NOW, text=f"NVRM: Xid ({address}): 79, {OFF}"))

    assert (core.findings[0].subject.device, core.findings[0].subject.pci) == ("GPU-3b", "0000:3b:00")


@pytest.mark.parametrize(
    ("text", "code", "fault"),
    [
        ("NVRM: Xid (0000:3b:00): 13, 0005 00000000 0000c797 00001b0c", "xid-13", Fault.APPLICATION),
        ("NVRM: Xid (PCI:0000:3b:00): 43, Ch 00000020, engmask 00000101", "xid-43", Fault.APPLICATION),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "xid-79", Fault.DEVICE_LOST),
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "xid-79",
            Fault.DEVICE_LOST,
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 119, Timeout waiting for RPC from GSP! Expected function 76 (GSP_RM_CONTROL)",
            "xid-119",
            Fault.DRIVER,
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 119, pid=1263500, name=cache_mgr_main, Timeout after 6s of waiting for RPC response from GPU4 GSP!",
            "xid-119",
            Fault.DRIVER,
        ),
        ("NVRM: GPU at 0000:3b:00.0 has fallen off the bus.", "nvrm-fallen-off-bus", Fault.DEVICE_LOST),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "nvrm-fallen-off-bus", Fault.DEVICE_LOST),
    ],
)
def test_lines_of_old_and_new_drivers_are_read(text: str, code: str, fault: Fault) -> None:
    line = KernelLine(sequence=1, at=NOW, text=text)

    draft = KernelRules().read(line, HostFacts(devices=DEVICES))

    assert draft is not None
    assert (draft.code, draft.fault, draft.subject.device) == (code, fault, "GPU-3b")


def test_two_gpus_that_fail_in_the_same_millisecond_are_two_findings(core: AgentCore) -> None:
    for sequence, bus in enumerate(("38", "3b"), start=1):
        core.kernel_line(
            KernelLine(sequence=sequence, at=NOW, text=f"NVRM: Xid (PCI:0000:{bus}:00): 79, {OFF}")
        )

    assert [(f.subject.device, f.id, f.count) for f in core.findings] == [
        ("GPU-38", "0f1e2d3c-kmsg-1", 1),
        ("GPU-3b", "0f1e2d3c-kmsg-2", 1),
    ]


@pytest.mark.parametrize("restarted", [False, True], ids=["the same agent", "the next one"])
def test_a_lost_gpu_that_nvml_shows_no_more_keeps_its_name_until_the_node_has_booted(
    core: AgentCore, restarted: bool
) -> None:
    def falls_off(sequence: int) -> None:
        at = NOW + timedelta(minutes=10 * sequence)
        core.kernel_line(KernelLine(sequence=sequence, at=at, text=f"NVRM: Xid (PCI:0000:3b:00): 79, {OFF}"))

    falls_off(1)
    if restarted:
        published = core.status(NOW)
        core = AgentCore(AgentSettings(), boot_id=core.boot_id)
        core.restore(published)
    without = [device for device in DEVICES if device.uuid != "GPU-3b"]
    core.inventory(without, "595.45.04")
    falls_off(2)
    assert [finding.subject.device for finding in core.findings] == ["GPU-3b", "GPU-3b"]
    assert len(core.status(NOW).devices) == len(DEVICES)

    core.new_boot("11111111-0000-4000-8000-000000000000")
    core.inventory(without, "595.45.04")
    assert len(core.status(NOW).devices) == len(without)


def test_in_a_storm_memory_stays_bounded_and_the_first_evidence_survives() -> None:
    """There are 5,000 lines a second of 6 codes, from 320 addresses and then from 10,240, none of which is
    known."""
    core = AgentCore(AgentSettings(), boot_id="0f1e2d3c-0000-4000-8000-000000000000")
    sequence = 0

    def storm(lines: int, buses: int) -> None:
        nonlocal sequence
        for _ in range(lines):
            sequence += 1
            bus, code = sequence % buses, (79, 119, 74, 45, 13, 48)[sequence % 6]
            text = f"NVRM: Xid (PCI:{sequence % 40:04x}:{bus:02x}:00): {code}, pid={sequence}, name=p, storm {sequence}"
            core.kernel_line(
                KernelLine(sequence=sequence, at=NOW + timedelta(seconds=sequence / 5000), text=text)
            )

    core.kernel_line(KernelLine(sequence=0, at=NOW, text=f"NVRM: Xid (PCI:0000:38:00): 79, {OFF}"))
    first = core.findings[0].id
    storm(2_000, 8)
    tracemalloc.start()
    storm(1_000, 256)
    before_bytes, _ = tracemalloc.get_traced_memory()
    storm(2_000, 256)
    after_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert first in [finding.id for finding in core.findings]
    assert len(core.findings) <= FINDINGS_MAX
    assert after_bytes - before_bytes < 4 * 1024 * 1024
    assert sum(f.count for f in core.findings) + sum(f.count for f in core.status(NOW).folded) == sequence + 1
    fitting = bounded(core.status(NOW))
    assert len(msgspec.json.encode(fitting)) <= STATUS_BYTES_MAX
    assert first in [finding.id for finding in fitting.findings]
