"""What the device plugins of other vendors report of a node's devices in ConfigMaps. Pure.

ascend.py and iluvatar.py of this room decode them; policy/device_levels.py says what each level means.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from detectors.wire.sane import sane

__all__ = ["LISTED", "NETWORK_LISTED", "Part", "ReportedFault", "Reports", "told_time"]

LISTED, NETWORK_LISTED = "Unhealthy", "NetworkUnhealthy"
"""Levels of devices that a list of the plugin names, and for which the plugin gives no fault."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS_FROM = 100_000_000_000
"""The same fields hold seconds in some versions: as seconds this number is the year 5138."""


class Part(StrEnum):
    """What the level is about: the same word may mean something else of another part."""

    CHIP = "chip"
    SWITCH = "switch"
    """UnifiedBus, between the node's chips."""
    NODE = "node"


class ReportedFault(msgspec.Struct, frozen=True):
    """One device with the most serious level that its plugin gives to it."""

    part: Part
    device: str
    """A chip by its physical number, as `Ascend910-3`; a part of the server, as `CPU-1`; empty for the
    node."""
    level: str
    codes: tuple[str, ...] = ()
    """Fault codes of that level, in upper case."""
    since: datetime | None = None
    """When the latest of these codes came up, by the node's clock; None where the plugin does not say."""
    is_listed: bool = False
    """The plugin lists the chip as unhealthy, so the kubelet offers it to nobody."""
    is_resetting: bool = False
    """The plugin resets the chip now."""
    is_public: bool = False
    """Another program than the driver reported it (MindCluster's public faults)."""


class Reports(msgspec.Struct, frozen=True):
    """One ConfigMap."""

    faults: Mapping[str, tuple[ReportedFault, ...]]
    """By node. A node without faults has an empty tuple."""
    free: Mapping[str, int] = {}
    """How many healthy devices no pod holds, where the ConfigMap lists those."""
    unread: Mapping[str, str] = {}
    """Nodes of a ConfigMap about many nodes whose entry cannot be read, and why."""


def told_time(number: int) -> datetime | None:
    """A time in seconds or milliseconds since 1970; None for zero and for what is no time."""
    if number <= 0:
        return None
    seconds = number / 1000 if number >= _MILLISECONDS_FROM else float(number)
    try:
        return sane(_EPOCH + timedelta(seconds=seconds))
    except OverflowError:
        return None
