"""Judges the ports of network adapters: from one sample of a port and its history to the states that it
shows. Pure.

The samples come from sources/fabric.py; folds/fabric.py keeps the tracks, and the chain makes findings from
the states.

A port is judged only if it was active in this boot, and if each sample of the last `settle_s` seconds has
shown it. So a port that nobody uses shows no state. The same is true for a port that trains its link after a
boot or a reload of its driver, and for a port that a pod has taken into its own network namespace.
Sources: Linux, Documentation/ABI/stable/sysfs-class-infiniband and testing/sysfs-class-net;
drivers/infiniband/core/sysfs.c (names of the states); drivers/infiniband/hw/mlx5/main.c (the state of a RoCE
port is the carrier of its network device); InfiniBand Architecture, PortCounters (8 bits of LinkDowned).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import pairwise

import msgspec

from detectors.service.settings import Fabric as Settings

__all__ = [
    "ETHERNET",
    "Link",
    "Port",
    "PortSample",
    "Ranks",
    "Track",
    "clock_set",
    "described",
    "is_dead",
    "is_down",
    "link",
    "with_sample",
]

ETHERNET = "Ethernet"
_ACTIVE = (4, 5)
"""The states ACTIVE and ACTIVE_DEFER."""
_STATES = {0: "no state", 1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "Active (deferred)"}
_PHYSICAL = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}
_WITHOUT_LINK = (1, 2, 6)
"""Physical states without a link. Disabled is missing on purpose: people use it to switch an InfiniBand port
off, and nothing shows who did it."""
_BURST = timedelta(seconds=60)
"""Time in which several losses of a link have one cause: a new MTU, ring size and number of queues take the
link of an Ethernet port down three times within seconds."""
_LATE = timedelta(seconds=30)
"""Time after which a loss of the link counts: the pod that caused it may be noticed a moment later."""
_STILL = timedelta(seconds=1800)
"""Time for which a port must stay up until it has stopped flapping."""
_HOUR = timedelta(hours=1)
_TRAINED = timedelta(seconds=60)
"""Time for which a link must be up to count as trained. A link that is lost sooner was still in training."""
_DIES_WITHIN = timedelta(hours=1)
"""Time within which a rank ends if it needs the lost port: NCCL's own limit, and the limits that PyTorch,
Megatron, DeepSpeed and Hugging Face set, are 30 minutes or less. A later end has another cause."""
_DOWNS_MAX = 8
_MOMENT = timedelta(seconds=3)
_DATED = ("since", "active_since", "down_since", "dead_since", "errors_since")
"""Fields of a track that are times."""
_PAUSES_WAITED_FOR = 3
_WAIT_S_MAX = 900.0


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """One port of an RDMA device in one sample. Values that could not be read are None or empty."""

    device: str
    """The kernel's name: `mlx5_0`."""
    number: int
    pci: str
    """The PCI function, `0000:0d:00.0`."""
    state: int | None = None
    phys_state: int | None = None
    link_layer: str = ""
    rate_gbps: float | None = None
    downs: int | None = None
    """Number of times that the link went down: by the port's counter for InfiniBand, by the counter of the
    network device for Ethernet."""
    errors: int | None = None
    """For InfiniBand the symbol errors and errors of the link's integrity, for EFA the broken connections."""
    is_up: bool | None = None
    """Whether the network device of an Ethernet port is switched on; None if the device is not seen here."""
    has_carrier: bool | None = None
    model: str = ""
    registration: int = 0
    """Inode of the device's folder in sysfs, which differs after its driver was loaded again."""

    @property
    def key(self) -> tuple[str, int]:
        return self.pci, self.number


class PortSample(msgspec.Struct, frozen=True):
    """One sample of the node's ports."""

    ports: tuple[Port, ...] = ()
    gone: frozenset[str] = frozenset()
    """PCI functions that had a port in an earlier sample, and are no longer on the bus."""
    up_s: float = 0.0
    """Time since the boot, in seconds."""


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts about the training on the node."""

    pods: frozenset[str] = frozenset()
    """Uids of the pods that have accelerators now and have not ended."""
    ended: Mapping[str, datetime] = {}
    """Time at which a container of such a pod ended last."""
    steps: Mapping[str, datetime] = {}
    """Time of the last step that the log of such a pod has shown."""
    stepped_at: datetime | None = None
    """Time of the last step that the log of any of these pods has shown; None if no log shows steps."""
    pause_s: float = 0.0
    """The usual time in seconds between two lines with a step, of the slowest of them."""

    def end_of(self, uid: str, since: datetime, at: datetime) -> datetime | None:
        """Returns the time at which this pod, or a container of it, ended after `since`; None if the pod
        still runs."""
        ended = self.ended.get(uid, since)
        return ended if ended > since else at if uid not in self.pods else None

    @property
    def wait_s(self) -> float:
        """Time in seconds to wait for a step that proves that the training continues."""
        return min(_PAUSES_WAITED_FOR * self.pause_s, _WAIT_S_MAX)


class Link(Enum):
    ACTIVE = auto()
    DOWN = auto()
    """Not active, for any reason: the manager of the subnet may still have to configure the port."""
    DEAD = auto()
    """Not active, and without a link to the other side."""
    UNSEEN = auto()
    """The port cannot be judged."""


def clock_set(at: datetime, by: timedelta, now: datetime) -> datetime:
    """Converts a time to the node's new clock. A time within the last moment may already be by that clock."""
    return at if abs(now - at) <= _MOMENT else at + by


def link(port: Port) -> Link:
    if port.state is None:
        return Link.UNSEEN
    if port.state in _ACTIVE:
        return Link.ACTIVE
    if port.link_layer == ETHERNET:
        return Link.DEAD if port.is_up and port.has_carrier is False else Link.UNSEEN
    return Link.DEAD if port.phys_state in _WITHOUT_LINK else Link.DOWN


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one port in this boot."""

    was_active: bool = False
    """Whether the port was active for so long that its link counts as trained."""
    registration: int = 0
    since: datetime | None = None
    """Start of the time in which each sample has shown the port with its present registration."""
    active_since: datetime | None = None
    down_samples: int = 0
    """Number of samples in succession, up to the last one, in which the port was not active."""
    down_since: datetime | None = None
    """Time of the first of these samples. A rank that dies because of the lost port may die before the second
    one."""
    dead_since: datetime | None = None
    ranks: frozenset[str] = frozenset()
    """Uids of the pods with accelerators that were on the node when the port was last up."""
    best_gbps: float = 0.0
    counted_downs: int | None = None
    downs: tuple[datetime, ...] = ()
    counted_errors: int | None = None
    errors: int = 0
    errors_since: datetime | None = None
    last_hour_errors: int | None = None
    """Number of errors in the last complete hour."""

    def settled(self, at: datetime, limits: Settings) -> bool:
        """Whether the link had its time to come up after a boot, or after its driver was loaded."""
        return self.since is not None and at - self.since >= timedelta(seconds=limits.settle_s)

    def flaps(self, at: datetime, limits: Settings) -> bool:
        told = [down for down in self.downs if _LATE <= at - down < _STILL]
        window = timedelta(seconds=limits.flap_window_s)
        return any(later - earlier <= window for earlier, later in pairwise(told))

    def has_errors(self, limits: Settings) -> bool:
        return max(self.errors, self.last_hour_errors or 0) > limits.errors_per_hour

    def is_steady(self, at: datetime) -> bool:
        """Whether the port is up, and has been up for so long that flaps are over."""
        quiet_since = max([*self.downs[-1:], self.active_since or at])
        return at - quiet_since >= _STILL

    def is_up_again(self, at: datetime, limits: Settings) -> bool:
        return self.active_since is not None and at - self.active_since >= timedelta(seconds=limits.settle_s)

    def spared(self, ranks: Ranks, limits: Settings) -> Track:
        """Returns the track without the pods that have shown a step `dead_s` or later after the port died:
        these pods do not need the port."""
        if self.dead_since is None or not self.ranks:
            return self
        proven = self.dead_since + timedelta(seconds=limits.dead_s)
        needing = frozenset(uid for uid in self.ranks if ranks.steps.get(uid, self.dead_since) < proven)
        return msgspec.structs.replace(self, ranks=needing)

    def clock_set(self, by: timedelta, now: datetime) -> Track:
        """Returns the track with all times by the node's new clock."""
        dated = {name: value for name in _DATED if (value := getattr(self, name)) is not None}
        new = {name: clock_set(value, by, now) for name, value in dated.items()}
        return msgspec.structs.replace(self, downs=tuple(clock_set(at, by, now) for at in self.downs), **new)

    def without(self, around: datetime) -> Track:
        """Returns the track without the losses of the link at about this time, when a pod came or went."""
        kept = tuple(down for down in self.downs if abs(down - around) > _BURST)
        return msgspec.structs.replace(self, downs=kept)


def with_sample(
    track: Track, port: Port, at: datetime, limits: Settings, *, ranks: frozenset[str], pods_changed: bool
) -> Track:
    """Returns the track with one more sample. `ranks` are the pods with accelerators that are on the node
    now; `pods_changed`: a pod came or went about now."""
    now = link(port)
    if now is Link.UNSEEN:
        return _begun_again(track)
    if (
        port.registration != track.registration
    ):  # a reload may take less time than there is between two samples
        track = msgspec.structs.replace(_begun_again(track), registration=port.registration)
    track = msgspec.structs.replace(track, since=track.since or at)
    track = _counted(track, port, at, limits, pods_changed=pods_changed)
    if now is Link.ACTIVE:
        active_since = track.active_since or at
        return msgspec.structs.replace(
            track,
            was_active=track.was_active or at - active_since >= _TRAINED,
            active_since=active_since,
            down_samples=0,
            down_since=None,
            dead_since=None,
            ranks=ranks,
            best_gbps=max(track.best_gbps, port.rate_gbps or 0.0),
        )
    if not track.was_active or not track.settled(at, limits):
        return msgspec.structs.replace(track, active_since=None)
    return msgspec.structs.replace(
        track,
        active_since=None,
        down_samples=track.down_samples + 1,
        down_since=track.down_since or at,
        dead_since=(track.dead_since or at) if now is Link.DEAD else None,
    )


def _begun_again(track: Track) -> Track:
    """Returns the track as if the port had not been seen yet, but keeps what earlier samples of this boot
    have shown: whether the port was active, its best rate, its losses of the link and its errors."""
    return msgspec.structs.replace(
        track,
        since=None,
        active_since=None,
        down_samples=0,
        down_since=None,
        dead_since=None,
        counted_downs=None,
        counted_errors=None,
    )


def _counted(track: Track, port: Port, at: datetime, limits: Settings, *, pods_changed: bool) -> Track:
    """Returns the track with the counters of the sample. A counter that is lower than before was reset, and a
    counter that was not read counts from the next sample."""
    downs, before = track.downs, track.counted_downs
    has_risen = port.downs is not None and before is not None and port.downs > before
    is_news = not downs or at - downs[-1] >= _BURST
    if has_risen and is_news and not pods_changed and track.was_active and track.settled(at, limits):
        downs = (*downs, at)[-_DOWNS_MAX:]
    errors, since, last_hour = track.errors, track.errors_since or at, track.last_hour_errors
    if at - since >= _HOUR:
        errors, since, last_hour = 0, at, errors
    if port.errors is not None and track.counted_errors is not None:
        errors += max(0, port.errors - track.counted_errors)
    return msgspec.structs.replace(
        track,
        downs=downs,
        counted_downs=port.downs,
        counted_errors=port.errors,
        errors=errors,
        errors_since=since,
        last_hour_errors=last_hour,
    )


def is_down(track: Track) -> bool:
    """Whether the port was active in this boot, and was not in the last two samples or more."""
    return track.down_samples >= 2


def is_dead(track: Track, at: datetime, limits: Settings, ranks: Ranks) -> bool:
    """Whether the port has had no link for long, and a rank that was on the node when the link was lost does
    not continue without it: the rank has ended soon after, or its steps have stopped. A rank whose steps
    nobody can read counts as continuing as long as it runs: a rank that loses a port which it needs ends by
    an error within minutes, or is found to hang."""
    since = track.dead_since
    if since is None or not track.ranks or at - since < timedelta(seconds=limits.dead_s):
        return False
    dies_by = since + timedelta(seconds=limits.dead_s) + _DIES_WITHIN
    ends = (ranks.end_of(uid, since, at) for uid in track.ranks)
    if any(end is not None and end <= dies_by for end in ends):
        return True
    if ranks.stepped_at is None:
        return False
    due = max(since, ranks.stepped_at) + timedelta(seconds=limits.dead_s + ranks.wait_s)
    proven = since + timedelta(seconds=limits.dead_s)
    return at >= due and ranks.stepped_at < proven


def described(port: Port) -> str:
    """Returns the port and its state as text."""
    physical = _PHYSICAL.get(port.phys_state or 0, "")
    state = ", ".join(filter(None, (_STATES.get(port.state if port.state is not None else -1, ""), physical)))
    layer = f" ({port.link_layer})" if port.link_layer else ""
    return f"{port.device} port {port.number}{layer} is {state or 'in an unknown state'}"
