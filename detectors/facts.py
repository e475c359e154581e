"""The plain values that sources hand to rules and the core: kernel lines, host facts, pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from detectors.contract import Device, Fault, Origin, Remedy, Severity, Subject, SubjectKind

__all__ = ["Draft", "HostFacts", "KernelLine", "PciAddress", "PodRef", "addresses_of", "cut", "parse_pci"]

_HEX = frozenset("0123456789abcdefABCDEF")


class KernelLine(msgspec.Struct, frozen=True):
    """One record of the kernel's log, of facility kern."""

    sequence: int
    at: datetime
    text: str


class PciAddress(msgspec.Struct, frozen=True):
    """A device's place on the bus. The function digit is dropped: the driver's Xid lines do not carry it."""

    domain: int
    bus: int
    device: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}"


def parse_pci(text: str) -> PciAddress | None:
    """Reads `0000:38:00`, `0000:38:00.0`, NVML's `00000000:38:00.0`, and lspci's `38:00.0` of domain 0."""
    address, dot, function = text.partition(".")
    parts = address.split(":")
    if len(parts) == 2:
        parts = ["0", *parts]
    if len(parts) != 3 or (dot and not _is_hex(function, 1)):
        return None
    if not (_is_hex(parts[0], 8) and _is_hex(parts[1], 2) and _is_hex(parts[2], 2)):
        return None
    return PciAddress(domain=int(parts[0], 16), bus=int(parts[1], 16), device=int(parts[2], 16))


def _is_hex(text: str, digits_max: int) -> bool:
    return 0 < len(text) <= digits_max and _HEX.issuperset(text)


def addresses_of(devices: Iterable[Device]) -> frozenset[PciAddress]:
    """Where they sit. What has no readable address is left out."""
    return frozenset(pci for device in devices if (pci := parse_pci(device.pci)) is not None)


class HostFacts(msgspec.Struct, frozen=True):
    """What rules may know about the node."""

    boot_id: str = ""
    devices: tuple[Device, ...] = ()
    driver_version: str = ""
    """Of the GPU driver; empty where it is not known."""
    addresses: frozenset[PciAddress] = frozenset()
    """All places on the bus that anybody has shown: also that of a GPU which was lost since, or which the
    driver never came to know. Empty where nobody has shown any."""

    def subject(self, pci_text: str, *, gpu_instance: int | None = None) -> Subject | None:
        """The device at an address as the kernel wrote it. None where the node has none there; as long as
        nobody has shown what the node has, the address counts by itself."""
        pci = parse_pci(pci_text)
        if pci is None or (self.addresses and pci not in self.addresses):
            return None
        for device in self.devices:
            if parse_pci(device.pci) == pci:
                return Subject(
                    kind=SubjectKind.DEVICE, device=device.uuid, pci=str(pci), gpu_instance=gpu_instance
                )
        return Subject(kind=SubjectKind.DEVICE, pci=str(pci), gpu_instance=gpu_instance)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule read from one line. chain.py decides whether it is a finding of its own."""

    code: str
    fault: Fault
    origin: Origin
    severity: Severity
    subject: Subject
    remedy: Remedy = Remedy.NONE
    final: bool = False
    caused_by: str = ""
    """Code that the line itself names as its cause."""
    verdict: bool = False
    """The vendor's own judgement of the device: raises what is known of it."""
    clears: bool = False
    """The vendor says that the device needs nothing any more."""


class PodRef(msgspec.Struct, frozen=True):
    """One container instance, as its log file's path names it."""

    namespace: str
    name: str
    uid: str
    container: str = ""
    instance: int = 0


def cut(text: str, bytes_max: int) -> str:
    """The longest head of `text` that fits into so many bytes of UTF-8. Replaces what cannot be encoded."""
    if text.isascii():
        return text[:bytes_max]
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode("utf-8")
    return data[:bytes_max].decode("utf-8", "ignore")
