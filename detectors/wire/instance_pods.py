"""Reads which pods have which MIG GPU instances of a device. Pure; agent and controller share it."""

from __future__ import annotations

from detectors.wire.contract import Device

__all__ = ["instances_of"]

_DIGITS_MAX = 4


def instances_of(device: Device) -> dict[str, frozenset[int]]:
    """Returns pod uid -> ids of the instances that the pod has. A pod that is missing here has the whole
    device, or its instances are not known. A pod with an entry that cannot be parsed is missing, too."""
    found: dict[str, set[int]] = {}
    unread = set()
    for entry in device.instance_pods:
        digits, _, uid = entry.partition("/")
        if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX:
            found.setdefault(uid, set()).add(int(digits))
        else:
            unread.add(uid)
    return {uid: frozenset(instances) for uid, instances in found.items() if uid not in unread}
