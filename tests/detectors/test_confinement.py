"""What an agent that was taken over can still do. Each trial is a process of its own: it does not end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SYSLOG, MKNOD = 1 << 34, 1 << 27
IS_ROOT = os.geteuid() == 0

TRIAL = """
import json, os, subprocess, sys
from pathlib import Path
from detectors.confinement import confine

held = confine(Path(sys.argv[1]), Path(sys.argv[2]))

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
    "reads the kernel log": opened(root / "dev/kmsg", os.O_RDONLY),
    "writes a log": opened(root / "log", os.O_WRONLY),
    "writes the kernel log": opened(root / "dev/kmsg", os.O_WRONLY),
    "makes a file": can((root / "new").touch),
    "removes a file": can((root / "log").unlink),
    "opens a terminal": opened("/dev/ptmx", os.O_RDWR),
    "uses null": opened(dev / "null", os.O_RDWR),
    "uses a GPU": opened(dev / "nvidia0", os.O_RDWR),
    "uses MIG's devices": opened(dev / "nvidia-caps/nvidia-cap1", os.O_RDWR),
    "mounts": subprocess.run(["mount", "-t", "tmpfs", "none", str(root)],
                             capture_output=True).returncode == 0,
    "makes a device": can(lambda: os.mknod(dev / "nvidia1", 0o666 | 0o020000, os.makedev(1, 3))),
}
print(json.dumps(answer))
"""


def tried(tmp_path: Path, *, nvidia: bool) -> dict[str, Any]:
    dev = tmp_path / "dev"
    (dev / "nvidia-caps").mkdir(parents=True)
    (dev / "null").touch()
    (dev / "kmsg").touch()
    (tmp_path / "log").touch()
    if nvidia:
        for name in ("nvidiactl", "nvidia0", "nvidia-caps/nvidia-cap1"):
            (dev / name).touch()
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, str(tmp_path), str(dev)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rights(status: str, which: str) -> int:
    (line,) = [one for one in status.splitlines() if one.startswith(f"{which}:")]
    return int(line.split()[1], 16)


@pytest.mark.parametrize(("nvidia", "kept"), [(True, SYSLOG), (False, SYSLOG | MKNOD)])
def test_capabilities_go_for_good_but_those_that_the_devices_need(
    tmp_path: Path, nvidia: bool, kept: int
) -> None:
    found = tried(tmp_path, nvidia=nvidia)
    for status in (found["status"], found["child's"]):
        assert "NoNewPrivs:\t1" in status
        if IS_ROOT:
            assert rights(status, "CapEff") == rights(status, "CapPrm") == rights(status, "CapBnd") == kept
            assert rights(status, "CapInh") == rights(status, "CapAmb") == 0
    assert not found["mounts"]


def test_files_are_read_and_of_the_devices_only_nvidia_s_are_used(tmp_path: Path) -> None:
    found = tried(tmp_path, nvidia=True)
    assert found["told"][1] == "NVIDIA's"
    can = {act for act, is_so in found.items() if is_so is True}
    always = {"reads a log", "reads the kernel log", "uses null", "uses a GPU", "uses MIG's devices"}
    if found["landlock"]:
        assert can == always
    else:
        assert can >= always


@pytest.mark.skipif(not IS_ROOT, reason="nobody else makes devices")
def test_where_nvidia_s_devices_are_not_there_yet_nvml_can_make_them(tmp_path: Path) -> None:
    found = tried(tmp_path, nvidia=False)
    assert found["makes a device"]
    assert found["told"][1] == "all, since none of NVIDIA's is there yet"
    assert not found["makes a file"] or not found["landlock"]
