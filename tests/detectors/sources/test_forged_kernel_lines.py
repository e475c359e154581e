"""No tenant can cause more than a note by the text that the kernel quotes: names, paths, options, prefixes of
a firewall.

Each record goes the whole way from its bytes to the findings, once with the node's devices known and once
without.
"""

# ruff: noqa: E501  the kernel's lines are kept whole

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import rules
from detectors.folds.core import AgentCore
from detectors.rules import KernelRules
from detectors.rules.facts import Draft, HostFacts, KernelLine, addresses_of
from detectors.rules.sentences import SentenceRow
from detectors.service.settings import AgentSettings
from detectors.sources.inventory import addresses
from detectors.sources.kmsg import kernel_line_of, parse_record
from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.contract import Device, Severity
from tests.detectors.sources.tenant_words import COMM_BYTES_MAX, FIREWALL_TEXTS, NAMED_TEXTS, escaped

RULES = KernelRules()
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
DEVICE = Device(uuid="GPU-3b", pci="00000000:3b:00.0")
DRIVERS_LINES = (
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "NVRM: Xid (0000:3b:00): 79, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00): 48, DBE",
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "NVRM: GPU at 0000:3b:00.0 has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands.",
)
SAID_BY_DRIVERS = (
    *DRIVERS_LINES,
    "nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
    "mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 5: be00000000800400",
    *(
        example
        for table in rules.tables()
        if issubclass(table.row, SentenceRow)
        for row in table.packaged()
        if row.severity is not Severity.INFO
        for example in row.examples
    ),
)
"""Lines each of which is more than a note."""
NAMED_LINES = (
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name={name}, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00): 43, pid=4711, name={name}, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00): 45, pid=4711, name={name}, Ch 00000001 caused by previous Xid 149",
    "NVRM: Xid (PCI:0000:3b:00): 94, pid=4711, name={name}, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    "NVRM: Xid (PCI:0000:3b:00): 94, pid=4711, name={name}, Contained: CE User Channel (0x9)",
    "NVRM: Xid (PCI:0000:3b:00): 95, pid=4711, name={name}, Uncontained: LTC TAG (0x2, 0x1)",
    "NVRM: Xid (PCI:0000:3b:00): 145, pid=4711, name={name}, RLW_REMAP Nonfatal XC0 i0 Link 07 (0x00000004 0x00000040)",
    "NVRM: Xid (PCI:0000:3b:00): 154, pid=4711, name={name}, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    "NVRM: Xid (PCI:0000:3b:00): 109, pid=4711, name={name}",
)
"""Lines with the one place where the driver quotes a name, before each of the texts that the rules read
further."""
KNOWN_FORGERIES = (
    "NVRM: GPU 3b:0 ",
    "NVRM: Xid (): 7",
    "NVRM: Xid (1): ",
    "NVRM: Xid (PCI:",
    "NVRM: GPU 0000:",
    "\nNVRM: Xid (0):",
    "\x01c\x010NVRM: Xid ",
    ". RST: Yes",
    "x, y Fatal XC0 ",
    "IN= OUT= SRC=",
)

# A forger would try pieces of the driver's text. Any other text is a possible name as well.
PIECES = st.builds(
    lambda line, start, length: line.encode()[start : start + length],
    st.sampled_from(SAID_BY_DRIVERS),
    st.integers(0, 60),
    st.integers(1, COMM_BYTES_MAX),
)
NAMES = st.one_of(
    st.sampled_from(KNOWN_FORGERIES).map(str.encode),
    PIECES,
    st.binary(max_size=COMM_BYTES_MAX).map(lambda name: name.replace(b"\0", b"")),
)
DEVICES = st.sampled_from([(DEVICE,), ()])
LONG = st.one_of(
    st.sampled_from(SAID_BY_DRIVERS).map(str.encode),
    st.sampled_from(SAID_BY_DRIVERS).map(lambda line: b"\n" + line.encode() + b"\n"),
    st.binary(max_size=80),
)


def read(text: bytes, *, prio: int = 3, devices: tuple[Device, ...] = (DEVICE,)) -> Draft | None:
    """Returns the draft that the rules make from a record with this text, as the kernel writes it."""
    record = parse_record(b"%d,7,1000,-;%s" % (prio, escaped(text)))
    assert record is not None
    line = kernel_line_of(record, lambda usec: NOW)
    host = HostFacts(devices=devices, addresses=addresses_of(devices))
    return None if line is None else RULES.read(line, host)


def harmless(found: Draft | None) -> bool:
    """Whether there is no draft, or only a note, on which nothing acts."""
    return found is None or found.severity is Severity.INFO


@pytest.mark.parametrize("line", DRIVERS_LINES)
@pytest.mark.parametrize("devices", [(DEVICE,), ()], ids=["devices known", "unknown"])
def test_what_the_driver_says_is_a_finding(line: str, devices: tuple[Device, ...]) -> None:
    found = read(line.encode(), devices=devices)

    assert found is not None
    assert (found.subject.pci, found.severity) == ("0000:3b:00", Severity.FATAL)


@pytest.mark.parametrize("name", KNOWN_FORGERIES)
@pytest.mark.parametrize(
    "text",
    ["{}[4711]: segfault at 0 ip 0 sp 0 error 6 in x has fallen off the bus", "{}9, x", "{} (4711): x"],
)
def test_a_process_that_is_called_like_the_driver_crashes_and_breaks_nothing(name: str, text: str) -> None:
    assert read(text.format(name).encode(), devices=()) is None


@pytest.mark.parametrize("name", ["NVRM: GPU 18:0 ", "NVRM: Xid (): 7", "NVRM: Xid (PCI:"])
def test_a_crash_in_a_file_that_is_called_like_the_drivers_words_is_none(name: str) -> None:
    """Linux 6.18 printed this about three programs that did so."""
    text = (
        f"{name}[32246]: segfault at 0 ip 00007f1a740f4a83 sp 00007fff96f41528 error 6 in GPU has fallen off the bus."
        "[32a83,7f1a740d2000+74000] likely on CPU 0 (core 0, socket 0)"
    )

    assert read(text.encode(), devices=()) is None


@settings(deadline=None)
@given(st.lists(NAMES, min_size=3, max_size=3), LONG, st.sampled_from(NAMED_TEXTS), DEVICES)
def test_no_name_makes_a_finding_of_what_the_kernel_prints(
    names: list[bytes], long: bytes, text: str, devices: tuple[Device, ...]
) -> None:
    filled = text.encode().replace(b"{long}", long)
    for name in names:
        filled = filled.replace(b"{name}", name, 1)

    assert harmless(read(filled, devices=devices))


@settings(deadline=None)
@given(LONG, st.sampled_from(FIREWALL_TEXTS), DEVICES)
def test_no_prefix_of_a_firewall_rule_makes_a_finding(
    prefix: bytes, text: str, devices: tuple[Device, ...]
) -> None:
    filled = text.encode().replace(b"{long}", prefix[:127])

    assert harmless(read(filled, devices=devices))


@settings(deadline=None)
@given(st.integers(1, 127), st.integers(0, 7), st.sampled_from(SAID_BY_DRIVERS))
def test_what_a_program_writes_into_the_log_is_of_another_facility_and_no_finding(
    facility: int, level: int, line: str
) -> None:
    assert read(line.encode(), prio=facility * 8 + level) is None


@settings(deadline=None)
@given(st.sampled_from(SAID_BY_DRIVERS), st.binary(max_size=40))
def test_a_line_within_another_is_no_line(line: str, before: bytes) -> None:
    """A record may contain newlines, and so may a name. The text after a newline belongs to the same
    record."""
    assert read(b"x" + before + b"\n" + line.encode()) is None


@settings(deadline=None)
@given(NAMES, st.sampled_from(NAMED_LINES))
def test_how_a_process_is_called_changes_nothing_of_its_xid(name: bytes, line: str) -> None:
    assert read(line.encode().replace(b"{name}", name)) == read(line.encode().replace(b"{name}", b"python"))
    assert read(line.encode()) is not None


# --- which devices are the node's ------------------------------------------------------------------------


def core_of(*devices: Device, seen: frozenset[PciAddress] = frozenset()) -> AgentCore:
    core = AgentCore(AgentSettings(), boot_id="b")
    core.on_bus(seen)
    core.inventory(devices, "595.45.04")
    return core


def lost(core: AgentCore, pci: str, sequence: int = 1) -> int:
    """Returns the number of findings once the driver has reported that it lost this GPU."""
    text = f"NVRM: GPU {pci}.0: GPU has fallen off the bus."
    core.kernel_line(KernelLine(sequence=sequence, at=NOW, text=text))
    return len(core.findings)


def test_a_line_of_a_device_that_the_node_does_not_have_is_no_finding() -> None:
    assert lost(core_of(DEVICE), "0000:41:00") == 0


def test_while_no_device_of_the_node_is_known_the_drivers_words_count_by_themselves() -> None:
    assert lost(core_of(), "0000:41:00") == 1


def test_a_gpu_that_was_lost_before_the_driver_knew_it_is_still_on_the_bus() -> None:
    """The driver's probe of the GPU failed, so NVML and the driver show only the others."""
    address = parse_pci("0000:41:00")
    assert address is not None

    assert lost(core_of(DEVICE, seen=frozenset({address})), "0000:41:00") == 1


def test_a_device_that_was_seen_in_this_boot_stays_the_nodes() -> None:
    core = core_of(DEVICE, Device(uuid="GPU-41", pci="00000000:41:00.0"))
    core.inventory((DEVICE,), "595.45.04")

    assert lost(core, "0000:41:00") == 1


def test_the_next_agent_knows_the_devices_that_this_one_has_published() -> None:
    published = core_of(DEVICE).status(NOW)
    core = AgentCore(AgentSettings(), boot_id="b")
    core.restore(published)

    assert (lost(core, "0000:41:00"), lost(core, "0000:3b:00", 2)) == (0, 1)


def test_the_addresses_are_those_of_the_bus_and_of_the_driver(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:41:00.0").mkdir(parents=True)
    gpu = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("GPU UUID: \t GPU-????????-????-????-????-????????????\n")

    assert {str(address) for address in addresses(tmp_path)} == {"0000:3b:00", "0000:41:00"}
    assert addresses(tmp_path / "nothing") == frozenset()
