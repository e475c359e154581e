"""Defines the reports of other vendors' device plugins in ConfigMaps about a node's devices. Pure.

ascend.py and iluvatar.py of this room decode them; policy/device_levels.py defines the meaning of each level.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from detectors.wire.sane import sane

__all__ = ["LISTED", "NETWORK_LISTED", "Part", "ReportedFault", "Reports", "told_time"]

LISTED, NETWORK_LISTED = "Unhealthy", "NetworkUnhealthy"
"""Levels of devices that only a list of the plugin names, without a fault."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS_FROM = 100_000_000_000
"""Smallest number that counts as milliseconds. The same fields contain seconds in some versions; as seconds
this number is the year 5138."""


class Part(StrEnum):
    """The part that the level is about: the same level may mean something else for another part."""

    CHIP = "chip"
    SWITCH = "switch"
    """UnifiedBus, between the node's chips."""
    NODE = "node"


class ReportedFault(msgspec.Struct, frozen=True):
    """One device with one level that its plugin reports for the device. A device may have several levels."""

    part: Part
    device: str
    """A chip by its physical number, for example `Ascend910-3`; a part of the server, for example `CPU-1`;
    empty for the node."""
    level: str
    codes: tuple[str, ...] = ()
    """Fault codes of that level, in upper case."""
    since: datetime | None = None
    """Time at which the latest of these codes appeared, by the node's clock. None if the plugin does not
    report it."""
    is_listed: bool = False
    """Whether the plugin lists the chip as unhealthy. The kubelet then gives the chip to no pod."""
    is_resetting: bool = False
    """Whether the plugin is resetting the chip now or, for a switch, reports the node as healthy, as during a
    reset of chips."""
    is_public: bool = False
    """Whether another program than the driver reported the fault (MindCluster's public faults)."""


class Reports(msgspec.Struct, frozen=True):
    """The content of one ConfigMap."""

    faults: Mapping[str, tuple[ReportedFault, ...]]
    """Node -> its faults. A node without faults has an empty tuple."""
    free: Mapping[str, int] = {}
    """Node -> number of healthy devices that no pod uses, if the ConfigMap lists them."""
    unread: Mapping[str, str] = {}
    """Node -> why its entry cannot be read, for a ConfigMap about many nodes."""


def told_time(number: int) -> datetime | None:
    """Converts seconds or milliseconds since 1970. Returns None for zero and for a number that is no time."""
    if number <= 0:
        return None
    seconds = number / 1000 if number >= _MILLISECONDS_FROM else float(number)
    try:
        return sane(_EPOCH + timedelta(seconds=seconds))
    except OverflowError:
        return None
