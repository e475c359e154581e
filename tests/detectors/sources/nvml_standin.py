"""NVIDIA's or Iluvatar's library as the child loads it: built from nvml_standin.c, with the answers that a
test sets.

The production child loads it by the real pynvml. It replaces a driver and GPUs that do not exist here; only
NVIDIA knows what real ones answer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

__all__ = ["Answers", "Gpus", "library", "nvml_children", "pci_of", "uuid_of"]

_SOURCE = Path(__file__).with_name("nvml_standin.c")
_NVML, _IXML = "libnvidia-ml.so.1", "libixml.so"


def pci_of(index: int) -> str:
    """Returns the PCI address of the stand-in's GPU."""
    return f"0000:{0x10 * (index + 1):02x}:00"


def uuid_of(index: int) -> str:
    return f"GPU-{index}"


def nvml_children() -> set[int]:
    """Returns the pids of this process's children that read NVML."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"detectors.sources.nvml_child" in words and parent == os.getpid():
            found.add(int(folder.name))
    return found


class Answers:
    """The file of the answers, which is complete at any time."""

    def __init__(self, file: Path, count: int) -> None:
        self._file = file
        self._lines = {("*", "count"): str(count)}
        self._write()

    def answer(self, gpu: int, **answers: object) -> None:
        """Sets answers of the GPU with number `gpu` from now on. The names are those of nvml_standin.c."""
        self._lines |= {(str(gpu), name): str(value) for name, value in answers.items()}
        self._write()

    def node(self, **answers: object) -> None:
        self._lines |= {("*", name): str(value) for name, value in answers.items()}
        self._write()

    def _write(self) -> None:
        text = "".join(f"{who} {name} {value}\n" for (who, name), value in self._lines.items())
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(text)
        new.replace(self._file)


class Gpus(Answers):
    """The GPUs of this machine, for each child that is started from now on."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int = 8, *, is_iluvatar: bool = False
    ) -> None:
        super().__init__(folder / "nvml-answers", count)
        self._calls = folder / "nvml-calls"
        monkeypatch.setenv("LD_LIBRARY_PATH", str(library(is_iluvatar=is_iluvatar).parent))
        monkeypatch.setenv("NVML_STANDIN", str(folder / "nvml-answers"))
        monkeypatch.setenv("NVML_STANDIN_CALLS", str(self._calls))

    @property
    def times_begun(self) -> int:
        """Number of calls that initialised NVML."""
        return self._count("nvmlInit")

    @property
    def times_ended(self) -> int:
        """Number of calls that closed the devices."""
        return self._count("nvmlShutdown")

    def _count(self, call: str) -> int:
        return self._calls.read_text().split().count(call) if self._calls.exists() else 0


def library(answers: str = "", *, is_iluvatar: bool = False) -> Path:
    """Returns the built library. It is kept outside the tree, under a name that depends on its inputs.
    `answers` is the file in which it looks for answers by default."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install build-essential")
    name = _IXML if is_iluvatar else _NVML
    made_of = hashlib.sha256(_SOURCE.read_bytes() + name.encode() + answers.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "rekindle"
    made = cache / f"nvml-{made_of}" / name
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        flags = [
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-std=gnu11",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{name}",
        ]
        flags += [f'-DANSWERS="{answers}"'] * bool(answers) + ["-DIXML"] * is_iluvatar
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            new = Path(folder) / name
            subprocess.run([compiler, *flags, "-o", str(new), str(_SOURCE)], check=True)
            new.replace(made)
    return made
