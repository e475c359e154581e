"""Tests what an attacker who has taken over an agent can still do. Each trial is a separate process, because
the confinement does not end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SYSLOG, MKNOD, CHOWN = 1 << 34, 1 << 27, 1 << 0
IS_ROOT = os.geteuid() == 0

TRIAL = """
import json, os, subprocess, sys
from pathlib import Path
from detectors.service import confinement

refused = int(sys.argv[3])
if refused:  # as a seccomp filter of the container does
    asked = confinement._syscall
    def answered(number, *arguments):
        if number == refused:
            raise PermissionError(1, "refused")
        return asked(number, *arguments)
    confinement._syscall = answered
try:
    held = confinement.confine(Path(sys.argv[1]), Path(sys.argv[2]))
except PermissionError:
    held = confinement.Confined("", 0, "")

def can(act):
    try:
        act()
    except OSError:
        return False
    return True

def opened(path, how):
    return can(lambda: os.close(os.open(path, how)))

root, dev = Path(sys.argv[1]), Path(sys.argv[2])
child = "import sys; open(sys.argv[1], 'w')"
answer = {
    "landlock": held.landlock,
    "told": [held.capabilities, held.devices],
    "status": Path("/proc/self/status").read_text(),
    "child's": subprocess.run([sys.executable, "-c", "print(open('/proc/self/status').read())"],
                              capture_output=True, text=True).stdout,
    "child writes": subprocess.run([sys.executable, "-c", child, str(root / "new")],
                                   capture_output=True).returncode == 0,
    "reads a log": opened(root / "log", os.O_RDONLY),
    "reads a pod's secret": opened(root / "var/lib/kubelet/pods/u/volumes/token", os.O_RDONLY),
    "lists the pods": can(lambda: os.listdir(root / "var/lib/kubelet/pods")),
    "asks for a volume's room": can(lambda: os.statvfs(root / "var/lib/kubelet/pods/u/volumes")),
    "asks the kubelet": opened(root / "var/lib/kubelet/pod-resources/socket", os.O_RDONLY),
    "reads the kernel log": opened(root / "dev/kmsg", os.O_RDONLY),
    "writes a log": opened(root / "log", os.O_WRONLY),
    "writes the kernel log": opened(root / "dev/kmsg", os.O_WRONLY),
    "makes a file": can((root / "new").touch),
    "removes a file": can((root / "log").unlink),
    "opens a terminal": opened("/dev/ptmx", os.O_RDWR),
    "uses null": opened(dev / "null", os.O_RDWR),
    "uses a GPU": opened(dev / "nvidia0", os.O_RDWR),
    "uses an Iluvatar GPU": opened(dev / "iluvatar0", os.O_RDWR),
    "uses MIG's devices": opened(dev / "nvidia-caps/nvidia-cap1", os.O_RDWR),
    "mounts": subprocess.run(["mount", "-t", "tmpfs", "none", str(root)],
                             capture_output=True).returncode == 0,
    "makes MIG's devices": can(lambda: (dev / "nvidia-caps").mkdir(exist_ok=True)) and
        can(lambda: os.mknod(dev / "nvidia-caps/nvidia-cap2", 0o444 | 0o020000, os.makedev(1, 3))),
    "makes a device": can(lambda: os.mknod(dev / "nvidia1", 0o666 | 0o020000, os.makedev(1, 3))),
}
print(json.dumps(answer))
"""


ALL = ("nvidiactl", "nvidia0", "nvidia-caps/nvidia-cap1")
CREATE_RULESET = 444
KUBELETS = ("../var/lib/kubelet/pods/u/volumes/token", "../var/lib/kubelet/pod-resources/socket")


def tried(
    tmp_path: Path, *, devices: tuple[str, ...] = ALL, driver: tuple[str, ...] = (), refused: int = 0
) -> dict[str, Any]:
    """Runs the trial. `driver` are folders that the driver shows in /proc; `refused` is a call that the
    container may not make."""
    dev = tmp_path / "dev"
    for name in (*devices, "null", "kmsg", "../log", *KUBELETS):
        (dev / name).parent.mkdir(parents=True, exist_ok=True)
        (dev / name).touch()
    for name in driver:
        (tmp_path / "proc/driver/nvidia" / name).mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, str(tmp_path), str(dev), str(refused)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rights(status: str, which: str) -> int:
    (line,) = [one for one in status.splitlines() if one.startswith(f"{which}:")]
    return int(line.split()[1], 16)


@pytest.mark.parametrize(
    ("devices", "refused", "kept"),
    [(ALL, 0, SYSLOG), (ALL, CREATE_RULESET, SYSLOG), ((), 0, SYSLOG | MKNOD | CHOWN)],
)
def test_capabilities_go_for_good_but_those_that_the_devices_need(
    tmp_path: Path, devices: tuple[str, ...], refused: int, kept: int
) -> None:
    found = tried(tmp_path, devices=devices, refused=refused)
    for status in (found["status"], found["child's"]):
        assert "NoNewPrivs:\t1" in status
        if IS_ROOT:
            assert rights(status, "CapEff") == rights(status, "CapPrm") == rights(status, "CapBnd") == kept
            assert rights(status, "CapInh") == rights(status, "CapAmb") == 0
    assert not found["mounts"]


def test_files_are_read_and_of_the_devices_only_nvidia_s_are_used(tmp_path: Path) -> None:
    driver = ("gpus/0000:81:00.0", "capabilities/mig", "capabilities/gpu0/mig/gi1")
    found = tried(tmp_path, driver=driver)
    assert found["told"][1] == "NVIDIA's"
    can = {act for act, is_so in found.items() if is_so is True}
    always = {"reads a log", "reads the kernel log", "uses null", "uses a GPU", "uses MIG's devices"}
    always |= {"asks the kubelet", "asks for a volume's room"}
    if found["landlock"]:
        assert can == always
    else:
        assert can >= always


def test_of_a_node_with_iluvatar_s_gpus_those_are_used_and_none_is_made(tmp_path: Path) -> None:
    found = tried(tmp_path, devices=("iluvatar0",))
    assert found["told"][1] == "Iluvatar's"
    assert found["uses an Iluvatar GPU"]
    assert not found["makes a device"]


@pytest.mark.skipif(not IS_ROOT, reason="nobody else makes devices")
@pytest.mark.parametrize(
    ("devices", "driver", "why"),
    [
        ((), (), "NVIDIA"),
        (("nvidiactl",), ("gpus/0000:81:00.0",), "0 of 1"),
        (("nvidiactl", "nvidia0"), ("gpus/0000:81:00.0", "gpus/0000:a1:00.0"), "1 of 2"),
        (("nvidiactl", "nvidia0"), ("capabilities/gpu0/mig/gi1",), "MIG"),
    ],
)
def test_where_a_device_of_nvidia_s_is_not_there_yet_nvml_can_make_it(
    tmp_path: Path, devices: tuple[str, ...], driver: tuple[str, ...], why: str
) -> None:
    found = tried(tmp_path, devices=devices, driver=driver)
    assert found["makes a device"]
    assert found["makes MIG's devices"]
    assert why in found["told"][1]
    assert not found["makes a file"] or not found["landlock"]
