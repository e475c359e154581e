"""The kubelet's folder of pods with volumes, a table of their mounts, and answers of their file systems.

The production child reads the table and calls statvfs of statvfs_standin.c, which is loaded before the C
library. Only the real file systems know what they answer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

__all__ = ["VolumeTree", "volume_children"]

_SOURCE = Path(__file__).with_name("statvfs_standin.c")
GIB = 2**30


def volume_children() -> set[int]:
    """Returns the pids of this process's children that read volumes."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"volumes_child" in words and parent == os.getpid():
            found.add(int(folder.name))
    return found


class VolumeTree:
    def __init__(self, host_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pods = host_root / "var/lib/kubelet/pods"
        self.pods.mkdir(parents=True)
        self.mountinfo = str(host_root / "mountinfo")
        self._mounts: dict[str, str] = {}
        self.propagation("shared:1")
        monkeypatch.setenv("LD_PRELOAD", str(_library()))

    def propagation(self, field: str) -> None:
        self._mounts[""] = f"21 1 0:20 / {self.pods} rw,relatime {field} - ext4 /dev/root rw"
        self._write()

    def mount(
        self,
        pod: str,
        name: str,
        *,
        plugin: str = "kubernetes.io~nfs",
        type_: str = "nfs4",
        source: str = "nas:/ckpt",
        device: str = "0:53",
        options: str = "rw",
        below: str = "",
        volumes: str = "volumes",
    ) -> Path:
        path = self.pods / pod / volumes / plugin / name / below
        path.mkdir(parents=True, exist_ok=True)
        line = f"99 21 {device} / {path} rw,relatime shared:9 - {type_} {source} {options},vers=4.2"
        self._mounts[str(path)] = line
        self._write()
        return path

    def unmount(self, path: Path) -> None:
        del self._mounts[str(path)]
        self._write()

    def answers(self, path: Path, answer: str) -> None:
        """Sets the answer: `hang`, the number of an error, or `BYTES FREE INODES INODES_FREE`."""
        path.with_name(f"{path.name}.answer").write_text(answer)

    def _write(self) -> None:
        Path(self.mountinfo).write_text("".join(f"{line}\n" for line in self._mounts.values()))


def _library() -> Path:
    """Returns the built library. It is kept outside the tree, under a name that depends on its source."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install build-essential")
    made_of = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "rekindle"
    made = cache / f"statvfs-{made_of}.so"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-shared", "-fPIC"]
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            new = Path(folder) / made.name
            subprocess.run([compiler, *flags, "-o", str(new), str(_SOURCE), "-ldl"], check=True)
            new.replace(made)
    return made
