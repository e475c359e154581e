"""Reads which pods hold which MIG GPU instances of a device. Pure; agent and controller share it."""

from __future__ import annotations

from detectors.wire.contract import Device

__all__ = ["instances_of"]

_DIGITS_MAX = 4


def instances_of(device: Device) -> dict[str, frozenset[int]]:
    """Pod uid -> ids of the instances that it holds. A pod that is not here holds the whole device, or nobody
    knows; so does one of which an entry cannot be read."""
    found: dict[str, set[int]] = {}
    unread = set()
    for entry in device.instance_pods:
        digits, _, uid = entry.partition("/")
        if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX:
            found.setdefault(uid, set()).add(int(digits))
        else:
            unread.add(uid)
    return {uid: frozenset(instances) for uid, instances in found.items() if uid not in unread}
