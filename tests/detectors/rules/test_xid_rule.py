"""Every real line of the reference parses, and the fields that decide are read from places where the tenant
cannot write."""

# ruff: noqa: E501  the kernel's lines are kept whole

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules import KernelRules
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.rules.xid_lines import XidLine, parse
from detectors.text.pci import parse_pci
from detectors.wire.contract import Device, Fault, Origin, Remedy, Severity

RULES = KernelRules()
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
HOST = HostFacts(boot_id="b", devices=(Device(uuid="GPU-38", pci="00000000:38:00.0"),))


def read(text: str) -> Draft | None:
    return RULES.read(KernelLine(sequence=1, at=NOW, text=text), HOST)


def draft(text: str) -> Draft:
    found = read(text)
    assert found is not None
    return found


# Real, complete lines, each with the values that are read: code, address, GPU instance, pid, name, cause.
# fmt: off
LINES: dict[str, tuple[object, ...]] = {
    "(PCI:0000:38:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 9, TPC 1, SM 1): Out Of Range Address":
        (13, "0000:38:00", None, None, "<unknown>", None),
    "(PCI:0000:38:00): 31, pid=1942, name=llama-bench, channel 0x00000002, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC6 GPCCLIENT_T1_13 faulted @ 0x6f6f_320c2000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ":
        (31, "0000:38:00", None, 1942, "llama-bench", None),
    "(PCI:0000:38:00): 43, pid=2924364, name=pt_main_thread, Ch 00000008":
        (43, "0000:38:00", None, 2924364, "pt_main_thread", None),
    "(PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149":
        (45, "0000:dc:00", None, 1818990, "python3", 149),
    "(PCI:0000:38:00): 48, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0xe9b9107e0 partition 3, subpartition 0.":
        (48, "0000:38:00", None, None, "", None),
    "(PCI:0000:38:00): 63, pid=2187734, name=python, Row Remapper: New row (0x0000000e9b9107e0) marked for remapping, reset gpu to activate.":
        (63, "0000:38:00", None, 2187734, "python", None),
    "(PCI:0000:0f:00): 64, pid='<unknown>', name=<unknown>, Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped":
        (64, "0000:0f:00", None, None, "<unknown>", None),
    "(PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)":
        (74, "0003:00:00", None, None, "<unknown>", None),
    "(PCI:0000:06:00): 79, GPU has fallen off the bus.":
        (79, "0000:06:00", None, None, "", None),
    "(PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No":
        (94, "0000:01:00", 5, 7194, "", None),
    "(PCI:0000:01:00 GPU-I:11 GPU-CI:02): 13, pid=1, name=a b:c, Graphics":
        (13, "0000:01:00", 11, 1, "a b:c", None),
    "(PCI:0000:38:00): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No":
        (95, "0000:38:00", None, 7062, "", None),
    "(PCI:0000:38:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005":
        (109, "0000:38:00", None, 1797828, "pt_main_thread", None),
    "(PCI:0000:38:00): 119, pid=1263500, name=cache_mgr_main, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801813 0x4c).":
        (119, "0000:38:00", None, 1263500, "cache_mgr_main", None),
    "(PCI:0000:38:00): 120, pid='<unknown>', name=<unknown>, GSP Error: Task 1 raised error code 0x5 for reason 0x0 at 0x63f01ac":
        (120, "0000:38:00", None, None, "<unknown>", None),
    "(PCI:0008:01:00): 145, pid=11436, name=cache_mgr_main, RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)":
        (145, "0008:01:00", None, 11436, "cache_mgr_main", None),
    "(PCI:0000:38:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)":
        (154, "0000:38:00", None, None, "", None),
    "(PCI:0000:38:00): 171, GDDR, Uncorrectable DRAM error in FBPA 3 subpartition 0 physAddr 0xe9b9107e0":
        (171, "0000:38:00", None, None, "", None),
    "(0000:01:00): 13, 0005 00000000 0000c797":
        (13, "0000:01:00", None, None, "", None),
    "(PCI:0000:01:00): 43, Ch 00000020, engmask 00000101":
        (43, "0000:01:00", None, None, "", None),
}
# fmt: on


@pytest.mark.parametrize(("text", "expected"), LINES.items(), ids=lambda value: str(value)[:24])
def test_a_real_line_parses(text: str, expected: tuple[object, ...]) -> None:
    fields = parse("NVRM: Xid " + text)

    assert fields is not None
    assert (
        fields.code,
        fields.pci,
        fields.gpu_instance,
        fields.pid,
        fields.name,
        fields.caused_by,
    ) == expected


def test_the_subject_is_found_by_number_whatever_the_padding() -> None:
    found = draft("NVRM: Xid (PCI:0000:38:00 GPU-I:05): 94, pid=7194, Contained")

    assert (found.subject.device, found.subject.pci, found.subject.gpu_instance) == (
        "GPU-38",
        "0000:38:00",
        5,
    )


def test_only_a_contained_error_that_names_its_instance_is_confined_to_it() -> None:
    found = {
        (code, instance): draft(f"NVRM: Xid (PCI:0000:38:00{instance}): {code}, pid=1, Text").confined
        for code in (31, 48, 79, 94, 95, 119)
        for instance in ("", " GPU-I:05", " GPU-I:05 GPU-CI:00")
    }

    assert {key for key, confined in found.items() if confined} == {
        (94, " GPU-I:05"),
        (94, " GPU-I:05 GPU-CI:00"),
    }


def test_a_device_of_another_domain_is_another_device() -> None:
    assert draft("NVRM: Xid (PCI:0003:38:00): 79, GPU has fallen off the bus.").subject.device == ""


@pytest.mark.parametrize(
    "address", ["PCI:what", "", "PCI:", "3b:00.0", "PCI:3b:00", "0000:3b", "0000:3b:00 x"]
)
def test_without_a_whole_address_no_driver_has_written_the_line(address: str) -> None:
    assert read(f"NVRM: Xid ({address}): 79, GPU has fallen off the bus.") is None


@pytest.mark.parametrize(
    ("value", "remedy", "clears"),
    [
        ("0x0 (None)", Remedy.NONE, True),
        ("0x1 (GPU Reset Required)", Remedy.RESET_DEVICE, False),
        ("0x2 (Node Reboot Required)", Remedy.REBOOT_NODE, False),
        ("0x3 (Drain P2P)", Remedy.RESTART_APPLICATION, False),
        ("0x4 (Drain and Reset)", Remedy.DRAIN_AND_RESET, False),
        ("0x5 (Recover IMEX Domain)", Remedy.INSPECT, False),
        ("0x63 (Who Knows)", Remedy.CONTACT_SUPPORT, False),
        ("nonsense", Remedy.CONTACT_SUPPORT, False),
    ],
)
def test_the_vendors_verdict_is_read_from_the_text(value: str, remedy: Remedy, clears: bool) -> None:
    found = draft(f"NVRM: Xid (PCI:0000:38:00): 154, GPU recovery action changed from 0x1 (X) to {value}")

    assert (found.remedy, found.clears, found.final, found.verdict) == (remedy, clears, not clears, True)


def test_a_process_name_cannot_fake_a_verdict() -> None:
    text = "NVRM: Xid (PCI:0000:38:00): 145, pid=1, name=a, X Nonfatal , RLW_SRC_TRACK Fatal XC1 i0 Link 03"

    assert draft(text).severity is Severity.FATAL


@pytest.mark.parametrize(
    ("text", "severity", "remedy"),
    [
        ("145, pid=1, name=a, b Fatal c, RLW_SRC_TRACK Nonfatal XC1 i0 Link 03", "pending", "inspect"),
        (
            "94, pid=1, name=x, D-RST: Yes, Contained: CE. RST: No, D-RST: No",
            "pending",
            "restart-application",
        ),
        ("95, pid=1, name=x, . RST: No, Uncontained: LTC. RST: Yes, D-RST: No", "fatal", "reset-device"),
    ],
)
def test_a_process_name_changes_neither_severity_nor_remedy(text: str, severity: str, remedy: str) -> None:
    found = draft(f"NVRM: Xid (PCI:0000:38:00): {text}")

    assert (found.severity, found.remedy) == (severity, remedy)


def test_an_instance_that_no_device_has_is_none() -> None:
    """The API would accept no status with a number that is too large."""
    fields = parse(f"NVRM: Xid (PCI:0000:38:00 GPU-I:{'9' * 20}): 94, pid=1, Contained")

    assert fields is not None
    assert (fields.code, fields.gpu_instance) == (94, None)


def test_an_nvlink_line_that_says_nonfatal_is_pending() -> None:
    text = "NVRM: Xid (PCI:0008:01:00): 145, pid=11436, name=x, RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x0)"

    assert draft(text).severity is Severity.PENDING


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", Remedy.RESET_DEVICE),
        ("94, pid=7194, Contained: CE (0x9). RST: No, D-RST: Yes", Remedy.DRAIN_AND_RESET),
        ("94, pid=7194, Contained: CE (0x9). RST: No, D-RST: No", Remedy.RESTART_APPLICATION),
    ],
)
def test_containment_lines_name_the_reset_they_want(text: str, remedy: Remedy) -> None:
    assert draft(f"NVRM: Xid (PCI:0000:01:00): {text}").remedy is remedy


def test_an_unknown_code_is_a_finding_and_never_healthy() -> None:
    found = draft("NVRM: Xid (PCI:0000:38:00): 999, something new")

    assert (found.fault, found.severity, found.origin) == (Fault.UNKNOWN, Severity.PENDING, Origin.KERNEL)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:38:00.0: GPU has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:38:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA GPU 0000:38:00.0\n               NVRM: (PCI ID: 10DE:26B5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA GPU 0000:38:00.0 (PCI ID: 10de:1c8d)\nNVRM: installed in this system has fallen off\n"
        "NVRM: the bus and is not responding to commands.",
    ],
)
def test_a_plain_line_of_a_lost_gpu_is_a_final_verdict(text: str) -> None:
    found = draft(text)

    assert (found.fault, found.final, found.subject.device) == (Fault.DEVICE_LOST, True, "GPU-38")


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module",
        "NVRM: GPU at PCI:0000:91:00: GPU-0123",
        "NVRM: Xid (PCI:0000:38:00) 79",
        "NVRM: Xid (PCI:0000:38:00): seventy-nine",
        "NVRM: Xid (",
        "NVRM: GPU 0000:38:00.0: something else, which has fallen off the bus.",
        "NVRM: GPU 0000:38:00.0: GPU has fallen off the bus and on again.",
        "python: NVRM: Xid (PCI:0000:38:00): 79, GPU has fallen off the bus.",
    ],
)
def test_another_line_is_no_finding(text: str) -> None:
    assert read(text) is None


@given(st.text(max_size=200))
def test_no_text_makes_a_rule_raise(text: str) -> None:
    for head in ("NVRM: Xid (", "NVRM: Xid (PCI:0000:38:00): 154, ", "NVRM: GPU ", "NVRM: The NVIDIA GPU "):
        read(head + text)


@given(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31))
def test_an_address_reads_back_from_all_its_spellings(domain: int, bus: int, device: int) -> None:
    short = f"{domain:04x}:{bus:02x}:{device:02x}"

    assert parse_pci(short) == parse_pci(f"{short}.0") == parse_pci(f"{domain:08X}:{bus:02X}:{device:02X}.0")


def test_a_line_without_process_keeps_its_whole_text() -> None:
    assert parse("NVRM: Xid (PCI:0000:01:00): 43, Ch 00000020, engmask 00000101") == XidLine(
        43, "0000:01:00", None, None, "", "Ch 00000020, engmask 00000101", None
    )
