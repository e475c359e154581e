"""A node's files, laid out as on a real machine: kernel log, boot id, GPU inventory, pod logs, cgroups.
Agents are started with `--host-root` on such a folder; tests and the demo write faults into its kernel
log."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from chaos.apiserver.kinds import Object

__all__ = ["Gpu", "Host"]

KERN_ERR = 3
"""Facility kern, severity error, with which the NVIDIA driver prints an Xid."""


class Gpu(msgspec.Struct, frozen=True):
    """One accelerator: its PCI address and the driver's UUID."""

    pci: str
    uuid: str

    @staticmethod
    def of(node: str, index: int) -> Gpu:
        """Returns the GPU, which is the same for the same node and index in every run."""
        name = uuid.uuid5(uuid.NAMESPACE_DNS, f"gpu-{index}.{node}.rekindle.dev")
        return Gpu(f"0000:{0x17 + 0x10 * index:02x}:00.0", f"GPU-{name}")


class Host:
    """The root folder of one node."""

    def __init__(self, root: Path, node: str, gpus: int, now: Callable[[], datetime]) -> None:
        self.root = root
        self.gpus = tuple(Gpu.of(node, index) for index in range(gpus))
        self._now = now
        self._booted_at = now()
        self._sequence = 0

    @property
    def kmsg(self) -> Path:
        return self.root / "dev" / "kmsg"

    def boot(self, boot_id: str) -> None:
        """Starts a new kernel: a new boot id, and an empty log that counts from zero. Files of the disk
        stay."""
        self._booted_at, self._sequence = self._now(), 0
        # The order matters: a running agent reads the boot id as soon as it sees that the log is another.
        _write(self.root / "proc/sys/kernel/random/boot_id", boot_id + "\n")
        _write(self.kmsg, "")
        for index, gpu in enumerate(self.gpus):
            path = self.root / "proc/driver/nvidia/gpus" / gpu.pci / "information"
            _write(path, _information(gpu, index))
        _write(self.root / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX 595.00 (simulated)\n")
        shutil.rmtree(self.root / "sys/fs/cgroup", ignore_errors=True)
        (self.root / "sys/fs/cgroup/kubepods/burstable").mkdir(parents=True)
        (self.root / "var/log/pods").mkdir(parents=True, exist_ok=True)

    def append_kmsg(self, text: str) -> int:
        """Writes one record as readers of /dev/kmsg get it from the kernel. Returns its sequence number."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        since_boot_us = int((self._now() - self._booted_at).total_seconds() * 1e6)
        escaped = "".join(c if c.isprintable() and c != "\\" else _escaped(c) for c in text)
        with self.kmsg.open("ab", buffering=0) as log:
            log.write(f"{KERN_ERR},{sequence},{since_boot_us},-;{escaped}\n".encode())
        return sequence

    def log_folder(self, pod: Object) -> Path:
        meta = pod["metadata"]
        return self.root / "var/log/pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"

    def pod_folder(self, pod_uid: str) -> Path:
        return self.root / "var/lib/kubelet/pods" / pod_uid

    def cgroup(self, pod_uid: str, container_id: str) -> Path:
        return self.root / "sys/fs/cgroup/kubepods/burstable" / f"pod{pod_uid}" / container_id

    def forget(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        for folder in (self.log_folder(pod), self.pod_folder(uid), self.cgroup(uid, "")):
            shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _information(gpu: Gpu, index: int) -> str:
    """Returns the lines of the real driver's file, tabs included."""
    return (
        "Model: \t\t NVIDIA H100 80GB HBM3\n"
        "IRQ:   \t\t 16\n"
        f"GPU UUID: \t {gpu.uuid}\n"
        "Video BIOS: \t 96.00.61.00.01\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 52 bits\n"
        "DMA Mask: \t 0xfffffffffffff\n"
        f"Bus Location: \t {gpu.pci}\n"
        f"Device Minor: \t {index}\n"
        "GPU Excluded:\t No\n"
    )
