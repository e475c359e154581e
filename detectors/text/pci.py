"""Parses a device's place on the PCI bus, as drivers, NVML and lspci print it. Pure."""

from __future__ import annotations

import msgspec

__all__ = ["PciAddress", "parse_pci"]

_HEX = frozenset("0123456789abcdefABCDEF")


class PciAddress(msgspec.Struct, frozen=True):
    """A device's place on the bus. The function digit is dropped: the driver's Xid lines do not contain
    it."""

    domain: int
    bus: int
    device: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}"


def parse_pci(text: str) -> PciAddress | None:
    """Reads `0000:38:00`, `0000:38:00.0`, NVML's `00000000:38:00.0`, and lspci's `38:00.0` of domain 0.
    Returns None for any other text."""
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
