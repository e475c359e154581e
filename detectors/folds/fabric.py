"""The ports of a node over time: which of them show a fault now, and which no longer do. Pure.

core.py keeps one, and makes findings of what it shows. A state is shown in each look as long as it lasts, and
ends only where a look proves that it is over: what is not seen is not over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

import msgspec

from detectors.folds.chain import Chain, Change
from detectors.rules.fabric_ports import (
    Link,
    Port,
    PortSample,
    Ranks,
    Track,
    is_dead,
    is_down,
    link,
    looked_at,
    told,
)
from detectors.rules.fabric_rows import (
    ADAPTER_GONE,
    PORT_DEAD,
    PORT_DOWN,
    PORT_ERRORS,
    PORT_FLAPS,
    PORT_SLOW,
    draft,
    fabric_rows,
    subject_of,
)
from detectors.rules.facts import Seen
from detectors.service.settings import Fabric as Settings
from detectors.wire.contract import Severity, Source

__all__ = ["FabricFold"]

_AROUND = timedelta(seconds=60)
_PEERS_MIN = 2
_FAMILY = "port-"
"""With this the codes begin of what may follow another state of the same adapter."""
_PORTS_MAX = 256
"""More than any node has. What comes after is not followed."""


class Shown(msgspec.Struct, frozen=True):
    """By code and PCI function: what holds, in words, and what is over, and why."""

    holds: dict[tuple[str, str], str]
    over: dict[tuple[str, str], str]


class FabricFold:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rows = fabric_rows()
        self._tracks: dict[tuple[str, int], Track] = {}
        self._gone_since: dict[str, datetime] = {}
        self._pods_changed_at: datetime | None = None
        self._has_looked = False
        self._told: set[tuple[str, str]] = set()
        """What the last look has shown: told once, be the finding dropped for want of room or not."""

    def pods_changed(self, at: datetime) -> None:
        """A pod of the node came or went: what its network did to the links is no fault."""
        self._pods_changed_at = at
        self._tracks = {key: track.without(at) for key, track in self._tracks.items()}

    def look(self, chain: Chain, sample: PortSample, at: datetime, ranks: Ranks) -> Change:
        """Begins and ends findings. Notes are no edges: they may come often."""
        known = [
            (finding.code, finding.subject)
            for finding in chain.findings
            if finding.cleared_at is None and finding.code in self._rows
        ]
        shown = self._look(sample, at, ranks, {subject.pci for _, subject in known})
        change = Change.NOTHING
        for code, subject in known:
            why = shown.over.get((code, subject.pci))
            if why is not None and chain.end(code, subject, at, why, with_family=_FAMILY):
                change = _graver(change, self._rows[code].severity)
        for (code, pci), why in shown.holds.items():
            row = self._rows[code]
            if not chain.is_open(code, subject_of(pci)) and (code, pci) not in self._told:
                chain.add(draft(row, pci), Seen(sequence=0, at=at, text=why, source=Source.FABRIC))
                change = _graver(change, row.severity)
        self._told = set(shown.holds)
        return change

    def _look(self, sample: PortSample, at: datetime, ranks: Ranks, known: Collection[str]) -> Shown:
        """`known` are the PCI functions of which something is open: an earlier run of the agent has seen
        their ports active."""
        if sample.ports and not self._has_looked:
            self._begin(sample, at)
        self._follow(sample, at, ranks, known)
        holds: dict[tuple[str, str], str] = {}
        over: dict[tuple[str, str], str] = {}
        by_pci: dict[str, list[Port]] = {}
        for port in sample.ports:
            by_pci.setdefault(port.pci, []).append(port)
        for pci, ports in by_pci.items():
            for port in ports:
                holds |= {(code, pci): why for code, why in self._shown(port, sample, at, ranks)}
            over |= {(code, pci): why for code, why in self._over(ports, sample, at)}
        for pci in self._missing(sample, at):
            holds[ADAPTER_GONE, pci] = f"{pci} had RDMA ports in this boot and is no longer on the PCI bus"
        return Shown(holds, {key: why for key, why in over.items() if key not in holds})

    def _begin(self, sample: PortSample, at: datetime) -> None:
        """What the first look shows is as old as the boot, as far as anybody knows."""
        self._has_looked = True
        since = at - timedelta(seconds=sample.up_s)
        for port in sample.ports[:_PORTS_MAX]:
            if link(port) is not Link.UNSEEN:
                is_active = link(port) is Link.ACTIVE
                self._tracks[port.key] = Track(since=since, active_since=since if is_active else None)

    def _follow(self, sample: PortSample, at: datetime, ranks: Ranks, known: Collection[str]) -> None:
        changed_at = self._pods_changed_at
        pods_changed = changed_at is not None and abs(at - changed_at) <= _AROUND
        seen = {port.key: port for port in sample.ports}
        for key, track in self._tracks.items():
            if key not in seen:
                hidden = Port(device="", number=key[1], pci=key[0])
                self._tracks[key] = looked_at(
                    track, hidden, at, self._settings, ranks=ranks.pods, pods_changed=pods_changed
                )
        for port in seen.values():
            if port.key not in self._tracks and len(self._tracks) >= _PORTS_MAX:
                continue
            track = self._tracks.get(port.key, Track())
            if port.pci in known and not track.was_active:
                track = msgspec.structs.replace(track, was_active=True)
            self._tracks[port.key] = looked_at(
                track, port, at, self._settings, ranks=ranks.pods, pods_changed=pods_changed
            )

    def _shown(self, port: Port, sample: PortSample, at: datetime, ranks: Ranks) -> Iterator[tuple[str, str]]:
        track = self._tracks.get(port.key)
        if track is None:
            return
        limits = self._settings
        if is_down(track):
            yield PORT_DOWN, f"{told(port)}; it was Active in this boot"
        if is_dead(track, at, limits, ranks):
            yield PORT_DEAD, f"{told(port)}; training on the node has not gone on since the link was lost"
        if track.flaps(at, limits):
            yield PORT_FLAPS, f"{told(port)}; its link went down twice within {limits.flap_window_s:g} s"
        if track.has_errors(limits):
            yield PORT_ERRORS, f"{told(port)}; more than {limits.errors_per_hour} link errors within an hour"
        if (faster := self._faster(port, track, sample)) and track.is_up_again(at, limits):
            yield PORT_SLOW, f"{told(port)} at {port.rate_gbps:g} Gb/s; {faster}"

    def _faster(self, port: Port, track: Track, sample: PortSample) -> str:
        """What shows that the port should be faster; empty where nothing does."""
        rate = port.rate_gbps
        if rate is None or link(port) is not Link.ACTIVE:
            return ""
        others = [
            other
            for other in sample.ports
            if other.key != port.key
            and other.link_layer == port.link_layer
            and link(other) is Link.ACTIVE
            and other.rate_gbps is not None
        ]
        if rate < track.best_gbps and any((other.rate_gbps or 0.0) > rate for other in others):
            return f"it had {track.best_gbps:g} Gb/s in this boot"
        alike = [other.rate_gbps or 0.0 for other in others if port.model and other.model == port.model]
        if len(alike) >= _PEERS_MIN and rate < min(alike):
            return f"the other {len(alike)} ports of its kind have {min(alike):g} Gb/s or more"
        return ""

    def _over(self, ports: list[Port], sample: PortSample, at: datetime) -> Iterator[tuple[str, str]]:
        """What is over for a function all of whose ports prove it."""
        yield ADAPTER_GONE, "the adapter is on the bus"
        tracks = [track for port in ports if (track := self._tracks.get(port.key)) is not None]
        limits = self._settings
        if len(tracks) < len(ports) or any(link(port) is not Link.ACTIVE for port in ports):
            return
        if all(track.is_up_again(at, limits) for track in tracks):
            yield PORT_DOWN, "the port is Active"
            yield PORT_DEAD, "the port is Active"
        if all(track.is_steady(at) for track in tracks):
            yield PORT_FLAPS, "the link stays up"
        if all(track.last_hour_errors is not None and not track.has_errors(limits) for track in tracks):
            yield PORT_ERRORS, "the link has no more errors than a sound one"
        if not any(self._faster(port, track, sample) for port, track in zip(ports, tracks, strict=True)):
            yield PORT_SLOW, "the port is as fast as the others"

    def _missing(self, sample: PortSample, at: datetime) -> Iterator[str]:
        self._gone_since = {pci: self._gone_since.get(pci, at) for pci in sample.gone}
        for pci, since in self._gone_since.items():
            if at - since >= timedelta(seconds=self._settings.dead_s):
                yield pci


def _graver(change: Change, severity: Severity) -> Change:
    if change is Change.EDGE or severity is not Severity.INFO:
        return Change.EDGE
    return Change.COUNT
