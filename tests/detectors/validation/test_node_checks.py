"""The checks that need no GPU library: each passes, fails and cannot run as its page says."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import msgspec
import pytest

from detectors.commands import extras
from detectors.validation import devices, kernel_log, nvml_health
from detectors.validation.kernel_log import reset_line
from detectors.validation.node_check import CannotRunError, Node, Result
from detectors.wire.step_report import Outcome

from .fake_nvml import Gpu, NVMLError, NVMLError_LibraryNotFound, put_nvml

UUIDS = ("GPU-38", "GPU-39")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns the root of a node whose driver shows two GPUs."""
    for pci, uuid in zip(("0000:38:00.0", "0000:39:00.0"), UUIDS, strict=True):
        folder = tmp_path / "proc/driver/nvidia/gpus" / pci
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: H100\nGPU UUID: {uuid}\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("")
    return tmp_path


def node(root: Path, *, expected: int = 2, repaired: tuple[str, ...] = (), incident: str = "") -> Node:
    return Node(host_root=str(root), devices_expected=expected, devices=repaired, incident=incident)


def gpus() -> list[Gpu]:
    return [Gpu(uuid=uuid, pci=f"00000000:{uuid[-2:]}:00.0") for uuid in UUIDS]


def gpus_named(result: Result) -> list[str]:
    return re.findall(r"GPU-\d+", result.message)


# --- devices ----------------------------------------------------------------------------------------------


def test_all_gpus_are_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvml(monkeypatch, *gpus())

    result = devices.run(node(root))

    assert result.outcome is Outcome.PASSED
    assert "2 of 2" in result.message


def test_a_gpu_that_nvml_does_not_show_is_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvml(monkeypatch, gpus()[0])

    result = devices.run(node(root))

    assert result.outcome is Outcome.FAILED
    assert "1 of 2" in result.message
    assert gpus_named(result) == ["GPU-39"]


def test_a_gpu_that_is_lost_is_missing_though_nvml_counts_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = gpus()
    second.lost = "GPU is lost"
    put_nvml(monkeypatch, first, second)

    result = devices.run(node(root))

    assert "1 of 2" in result.message
    assert gpus_named(result) == ["GPU-39"]


def test_a_gpu_that_left_the_bus_is_missing_by_name_where_it_was_repaired(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvml(monkeypatch, *gpus())

    result = devices.run(node(root, expected=3, repaired=("GPU-77",)))

    assert result.outcome is Outcome.FAILED
    assert "2 of 3" in result.message
    assert gpus_named(result) == ["GPU-77"]


def test_a_gpu_that_was_repaired_must_be_there_though_nobody_knows_the_count(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvml(monkeypatch, *gpus())

    result = devices.run(node(root, expected=0, repaired=("GPU-77",)))

    assert result.outcome is Outcome.FAILED
    assert result.message.startswith("2 GPUs ")
    assert gpus_named(result) == ["GPU-77"]


def test_where_nobody_knows_the_count_nvml_must_show_what_the_driver_shows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvml(monkeypatch, gpus()[0])
    assert devices.run(node(root, expected=0)).outcome is Outcome.FAILED

    put_nvml(monkeypatch, *gpus())
    result = devices.run(node(root, expected=0))
    assert result.outcome is Outcome.PASSED
    assert result.message.startswith("2 GPUs ")


def test_without_nvml_the_drivers_folders_are_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvml(monkeypatch, error=NVMLError_LibraryNotFound("NVML Shared Library Not Found"))

    assert devices.run(node(root)).outcome is Outcome.PASSED
    short = devices.run(node(root, expected=3))

    assert short.outcome is Outcome.FAILED
    assert "2 of 3 GPUs" in short.message
    assert "NVML Shared Library Not Found" in short.message


def test_a_node_without_a_driver_cannot_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvml(monkeypatch, error=NVMLError("Driver Not Loaded"))

    with pytest.raises(CannotRunError, match="proc/driver/nvidia"):
        devices.run(node(tmp_path, expected=0))


def test_where_devices_are_expected_a_node_without_a_driver_has_lost_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvml(monkeypatch, error=NVMLError("Driver Not Loaded"))

    told = devices.run(node(tmp_path, expected=8))

    assert told.outcome is Outcome.FAILED
    assert "0 of 8" in told.message
    assert str(tmp_path / "proc/driver/nvidia") in told.message


# --- nvml-health ------------------------------------------------------------------------------------------


def test_healthy_gpus_pass(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvml(monkeypatch, *gpus())

    result = nvml_health.run(node(root))

    assert result.outcome is Outcome.PASSED
    assert "2" in result.message


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ({"rows": (0, 1, 1, 0)}, "reset"),
        ({"rows": (0, 512, 0, 1)}, "replaced"),
        ({"rows": None, "pages_pending": 1}, "reset"),
        ({"sram_exceeded": 1}, "SRAM"),
        ({"action": 1}, nvml_health._ACTIONS[1]),
        ({"action": 2}, nvml_health._ACTIONS[2]),
        ({"action": 9}, "9"),
        ({"uncorrected": 3}, "3"),
        ({"clocks": [0x08]}, nvml_health._CLOCK_REASONS[0x08]),
        ({"clocks": [0x41]}, nvml_health._CLOCK_REASONS[0x40]),
        ({"clocks": [0x80]}, nvml_health._CLOCK_REASONS[0x80]),
        ({"lost": "GPU is lost"}, "GPU is lost"),
    ],
)
def test_a_gpu_that_says_that_it_needs_something_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, trouble: dict[str, object], says: str
) -> None:
    monkeypatch.setattr(nvml_health, "_CLOCK_PAUSE_S", 0.0)
    first, second = gpus()
    for name, value in trouble.items():
        setattr(second, name, value)
    put_nvml(monkeypatch, first, second)

    result = nvml_health.run(node(root))

    assert result.outcome is Outcome.FAILED
    name, _, trouble_told = result.message.partition(": ")
    assert name == ("GPU 1" if second.lost else "GPU-39")
    assert says in trouble_told
    assert ";" not in trouble_told, "it is the only trouble"


def test_a_clock_that_is_held_down_for_a_moment_only_is_no_fault(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_health, "_CLOCK_PAUSE_S", 0.0)
    put_nvml(monkeypatch, Gpu(clocks=[0x28, 0x21, 0x01]))

    assert nvml_health.run(node(root)).outcome is Outcome.PASSED


def test_what_a_gpu_does_not_support_is_no_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvml(monkeypatch, Gpu(rows=None, sram_exceeded=None, uncorrected=None, action=None, clocks=None))

    assert nvml_health.run(node(root)).outcome is Outcome.PASSED


def test_a_driver_that_does_not_answer_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvml(monkeypatch, error=NVMLError("Driver Not Loaded"))

    result = nvml_health.run(node(root))

    assert (result.outcome, result.message) == (Outcome.FAILED, "NVML: Driver Not Loaded")


@pytest.mark.parametrize(
    ("has_driver", "lacks"), [(True, "libnvidia-ml.so.1"), (False, "proc/driver/nvidia")]
)
def test_a_pod_without_nvml_cannot_ask_and_says_what_it_lacks(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_driver: bool, lacks: str
) -> None:
    put_nvml(monkeypatch, error=NVMLError_LibraryNotFound("NVML Shared Library Not Found"))

    with pytest.raises(CannotRunError, match=lacks):
        nvml_health.run(node(root if has_driver else tmp_path / "other"))


def test_an_image_without_the_package_cannot_ask(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(CannotRunError, match=re.escape(extras.install("agent"))):
        nvml_health.run(node(root))


# --- kernel-log -------------------------------------------------------------------------------------------

LOST = "NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=python3, GPU has fallen off the bus."
CLEARED = "NVRM: Xid (PCI:0000:38:00): 154, GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)"


def says(root: Path, *lines: str, prio: int = 4) -> None:
    """Appends one record a minute, so that none is folded as a consequence."""
    log = root / "dev/kmsg"
    begin = log.read_text().count("\n")
    with log.open("a") as file:
        for number, line in enumerate(lines, start=begin):
            file.write(f"{prio},{number},{number * 60_000_000},-;{line}\n SUBSYSTEM=pci\n")


def test_a_quiet_kernel_log_passes(root: Path) -> None:
    says(root, "Linux version 6.8.0", "usb 1-1: new high-speed USB device")

    result = kernel_log.run(node(root))

    assert result.outcome is Outcome.PASSED


def test_a_fatal_xid_of_this_boot_fails_and_names_the_gpu(root: Path) -> None:
    says(root, LOST)

    result = kernel_log.run(node(root))

    assert result.outcome is Outcome.FAILED
    assert all(name in result.message for name in ("xid-79", "GPU-38", LOST))


MINE = "gpu-7-device-lost-1a"


def test_what_came_before_the_reset_does_not_count_and_what_came_after_it_does(root: Path) -> None:
    repaired = node(root, repaired=("GPU-38",), incident=MINE)
    says(root, LOST)
    says(root, reset_line("GPU-38", MINE), prio=12)
    passed = kernel_log.run(repaired)
    says(root, LOST.replace("38:00", "39:00"))
    failed = kernel_log.run(repaired)

    assert passed.outcome is Outcome.PASSED
    assert failed.outcome is Outcome.FAILED
    assert "xid-79" in failed.message
    assert gpus_named(failed) == ["GPU-39"]


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        (reset_line("GPU-38", "gpu-7-device-lost-older"), ("GPU-38",)),
        (reset_line("GPU-38", ""), ("GPU-38",)),
        (reset_line("GPU-38", f"{MINE}-2"), ("GPU-38",)),
        (reset_line("GPU-39", MINE), ("GPU-38",)),
        (reset_line("GPU-38", MINE), ("GPU-38", "GPU-39")),
        (reset_line("GPU-38", MINE), ()),
        (f"rekindle: devices were reset (incident {MINE})", ("GPU-38",)),
        (f"{reset_line('GPU-38', MINE)} and so on", ("GPU-38",)),
    ],
    ids=["older", "by hand", "longer name", "other device", "one of two", "not all", "no device", "more"],
)
def test_a_reset_for_another_incident_or_of_other_devices_clears_nothing(
    root: Path, line: str, repaired: tuple[str, ...]
) -> None:
    says(root, LOST)
    says(root, line, prio=12)

    result = kernel_log.run(node(root, repaired=repaired, incident=MINE))

    assert result.outcome is Outcome.FAILED
    assert all(name in result.message for name in ("xid-79", "GPU-38", LOST, line))


@pytest.mark.parametrize(
    ("line", "repaired", "incident"),
    [
        (reset_line("GPU-39,GPU-38", MINE), ("GPU-38", "GPU-39"), MINE),
        (reset_line("GPU-38, GPU-39", MINE), ("GPU-38",), MINE),
        (reset_line("", MINE), ("GPU-38",), MINE),
        (reset_line("", MINE), (), MINE),
        (f"rekindle: devices were reset:  (incident {MINE})", (), MINE),
        (reset_line("GPU-38", ""), ("GPU-38",), ""),
    ],
    ids=["any order", "more than those", "all", "all of all", "a template without a name", "both by hand"],
)
def test_a_reset_of_at_least_the_devices_under_repair_for_their_incident_counts(
    root: Path, line: str, repaired: tuple[str, ...], incident: str
) -> None:
    says(root, LOST)
    says(root, line, prio=12)

    assert kernel_log.run(node(root, repaired=repaired, incident=incident)).outcome is Outcome.PASSED


def test_what_the_driver_itself_has_taken_back_does_not_count(root: Path) -> None:
    says(
        root, "NVRM: Xid (PCI:0000:38:00): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"
    )
    assert kernel_log.run(node(root)).outcome is Outcome.FAILED

    says(root, CLEARED)
    assert kernel_log.run(node(root)).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("line", "prio"),
    [
        ("NVRM: Xid (PCI:0000:38:00): 31, pid=1942, name=llama, channel 0x00000002, MMU Fault", 4),
        ("NVRM: Xid (PCI:0000:38:00): 45, pid=1818990, name=python3, Ch 00000001", 4),
        (LOST, 12),
    ],
    ids=["a program's own fault", "a program's end", "written from user space"],
)
def test_what_anybody_could_have_caused_does_not_count(root: Path, line: str, prio: int) -> None:
    says(root, line, prio=prio)

    assert kernel_log.run(node(root)).outcome is Outcome.PASSED


def test_the_users_own_rows_win_over_the_packaged_ones(root: Path, tmp_path: Path) -> None:
    rows = tmp_path / "catalogue.toml"
    rows.write_text(
        '[[xid]]\ncode = 79\nmnemonic = "OFF_BUS"\nmeaning = "known of this board"\nfault = "device-lost"\n'
        'origin = "kernel"\nseverity = "info"\nremedy = "none"\nsource = "our own boards"\n'
    )
    says(root, LOST)

    asked = msgspec.structs.replace(node(root), catalogue=str(rows))

    assert kernel_log.run(asked).outcome is Outcome.PASSED


def test_many_faults_are_counted_and_some_told(root: Path) -> None:
    for number in range(0x50, 0x58):
        (root / f"sys/bus/pci/devices/0000:{number:02x}:00.0").mkdir(parents=True)
    says(root, *(LOST.replace("38:00", f"{number:02x}:00") for number in range(0x50, 0x58)))

    assert kernel_log.run(node(root)).message.endswith(" and 4 more")


def test_neither_a_device_that_the_node_does_not_have_nor_a_name_is_a_fault(root: Path) -> None:
    says(root, LOST.replace("38:00", "50:00"), "NVRM: GPU 38:0 [4711]: segfault, has fallen off the bus.")

    assert kernel_log.run(node(root)).outcome is Outcome.PASSED


def test_what_the_kernel_itself_prints_is_no_reset(root: Path) -> None:
    says(root, LOST, reset_line("GPU-38", ""), prio=4)

    assert kernel_log.run(node(root, repaired=("GPU-38",))).outcome is Outcome.FAILED


def test_a_log_that_has_lost_its_beginning_says_so(root: Path) -> None:
    (root / "dev/kmsg").write_text("4,700,1,-;usb 1-1: new device\n")

    assert "700" in kernel_log.run(node(root)).message


def test_a_device_is_read_record_by_record_until_there_is_none(root: Path) -> None:
    """A terminal gives one line to a read, and nothing if there is none, like the kernel log."""
    ours, theirs = os.openpty()
    (root / "dev/kmsg").unlink()
    (root / "dev/kmsg").symlink_to(os.ttyname(theirs))
    try:
        os.write(ours, f"6,0,1,-;usb 1-1: new device\n4,1,2,-;{LOST}\n".encode())

        result = kernel_log.run(node(root))
    finally:
        os.close(ours)
        os.close(theirs)
    assert all(name in result.message for name in ("xid-79", "GPU-38", LOST))


def test_rubbish_hides_nothing(root: Path) -> None:
    (root / "dev/kmsg").write_bytes(b"\xff\xfe\x00\n4,notanumber,1,-;NVRM: Xid\n4,1,1\n")
    with (root / "dev/kmsg").open("a") as file:
        file.write(f"4,1,1,-;{LOST}\n")

    assert kernel_log.run(node(root)).outcome is Outcome.FAILED


def test_a_kernel_log_that_cannot_be_read_proves_nothing(root: Path) -> None:
    (root / "dev/kmsg").unlink()

    with pytest.raises(CannotRunError, match=f"dev/kmsg: {os.strerror(errno.ENOENT)}"):
        kernel_log.run(node(root))
