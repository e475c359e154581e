"""Folds samples of a node's network ports: which ports show a fault now, and which no longer do. Pure.

states.py makes findings from the observations. A state is observed again in each sample that shows the state.
A sample that does not show the state does not end it: the state ends only when a sample proves the opposite,
for example that the port is active.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from detectors.folds.chain import Chain
from detectors.folds.states import Folded, States
from detectors.rules.fabric_ports import (
    Link,
    Port,
    PortSample,
    Ranks,
    Track,
    clock_set,
    described,
    is_dead,
    is_down,
    link,
    with_sample,
)
from detectors.rules.fabric_rows import (
    ADAPTER_GONE,
    PORT_DEAD,
    PORT_DOWN,
    PORT_ERRORS,
    PORT_FLAPS,
    PORT_SLOW,
    FabricRow,
    draft,
)
from detectors.rules.facts import Observation
from detectors.service.settings import Fabric as Settings
from detectors.wire.contract import Source

__all__ = ["FabricFold"]

_AROUND = timedelta(seconds=60)
_PEERS_MIN = 2
_CODE_PREFIX = "port-"
"""Prefix of the codes that may follow another state of the same adapter."""
_PORTS_MAX = 256
"""Number of ports that are followed, more than any node has. Further ports are not followed."""


class FabricFold:
    def __init__(self, settings: Settings, rows: Mapping[str, FabricRow]) -> None:
        """Takes the rows by code."""
        self._settings = settings
        self._rows = rows
        # The kernel log may report that a link was lost, and never reports that it is back. So no known
        # finding hides a state of a port.
        self._states = States(Source.FABRIC, _CODE_PREFIX, samples_to_end=1, unless_known=False)
        self._tracks: dict[tuple[str, int], Track] = {}
        self._gone_since: dict[str, datetime] = {}
        self._pods_changed_at: datetime | None = None
        self._has_sample = False

    def pods_changed(self, at: datetime) -> None:
        """Records that a pod of the node came or went: what the pod's network did to the links is no
        fault."""
        self._pods_changed_at = at
        self._tracks = {key: track.without(at) for key, track in self._tracks.items()}

    def clock_set(self, by: timedelta, now: datetime) -> None:
        """Shifts all remembered times with the clock, so that the time that has passed stays the same.
        Otherwise no port would be judged until a clock that was set back by hours has caught up. `now` is by
        the new time."""
        self._tracks = {key: track.clock_set(by, now) for key, track in self._tracks.items()}
        self._gone_since = {pci: clock_set(since, by, now) for pci, since in self._gone_since.items()}
        if self._pods_changed_at is not None:
            self._pods_changed_at = clock_set(self._pods_changed_at, by, now)

    def fold(self, chain: Chain, sample: PortSample, at: datetime, ranks: Ranks) -> Folded:
        """Begins and ends findings from one sample."""
        known = {
            finding.subject.pci
            for finding in chain.findings
            if finding.cleared_at is None and finding.code in self._rows
        }
        return self._states.fold(chain, self._observations(sample, at, ranks, known), at)

    def _observations(
        self, sample: PortSample, at: datetime, ranks: Ranks, known: Collection[str]
    ) -> list[Observation]:
        """Returns what the sample shows. States that are over come first: a state that begins now must not
        join a finding that ends now. `known` are the PCI functions with an open finding: an earlier run of
        the agent has seen their ports active."""
        if sample.ports and not self._has_sample:
            self._begin(sample, at)
        self._follow(sample, at, ranks, known)
        shown: dict[tuple[str, str], Observation] = {}
        over: dict[tuple[str, str], Observation] = {}
        by_pci: dict[str, list[Port]] = {}
        for port in sample.ports:
            by_pci.setdefault(port.pci, []).append(port)
        for pci, ports in by_pci.items():
            for port in ports:
                shown |= {(one.draft.code, pci): one for one in self._shown(port, sample, at, ranks)}
            for code, why in self._over(ports, sample, at):
                over[code, pci] = Observation(draft=draft(self._rows[code], pci), ended_by=why)
        for pci in self._missing(sample, at):
            text = f"{pci} had RDMA ports in this boot and is no longer on the PCI bus"
            shown[ADAPTER_GONE, pci] = self._in_state(ADAPTER_GONE, pci, text)
        return [*(one for key, one in over.items() if key not in shown), *shown.values()]

    def _in_state(self, code: str, pci: str, text: str, since: datetime | None = None) -> Observation:
        return Observation(draft=draft(self._rows[code], pci), text=text, since=since)

    def _begin(self, sample: PortSample, at: datetime) -> None:
        """Begins the tracks. The states in the first sample are assumed to be as old as the boot."""
        self._has_sample = True
        since = at - timedelta(seconds=sample.up_s)
        for port in sample.ports[:_PORTS_MAX]:
            if link(port) is not Link.UNSEEN:
                is_active = link(port) is Link.ACTIVE
                self._tracks[port.key] = Track(
                    registration=port.registration, since=since, active_since=since if is_active else None
                )

    def _follow(self, sample: PortSample, at: datetime, ranks: Ranks, known: Collection[str]) -> None:
        changed_at = self._pods_changed_at
        pods_changed = changed_at is not None and abs(at - changed_at) <= _AROUND
        seen = {port.key: port for port in sample.ports}
        for key, track in self._tracks.items():
            if key not in seen:
                hidden = Port(device="", number=key[1], pci=key[0])
                self._tracks[key] = with_sample(
                    track, hidden, at, self._settings, ranks=ranks.pods, pods_changed=pods_changed
                )
        for port in seen.values():
            if port.key not in self._tracks and len(self._tracks) >= _PORTS_MAX:
                continue
            track = self._tracks.get(port.key, Track())
            if port.pci in known and not track.was_active:
                track = msgspec.structs.replace(track, was_active=True)
            track = with_sample(track, port, at, self._settings, ranks=ranks.pods, pods_changed=pods_changed)
            self._tracks[port.key] = track.spared(ranks, self._settings)

    def _shown(self, port: Port, sample: PortSample, at: datetime, ranks: Ranks) -> Iterator[Observation]:
        track = self._tracks.get(port.key)
        if track is None:
            return
        limits, pci, now = self._settings, port.pci, described(port)
        if is_down(track):
            yield self._in_state(PORT_DOWN, pci, f"{now}; it was Active in this boot", track.down_since)
        if is_dead(track, at, limits, ranks):
            text = f"{now}; no training on the node has continued since the link was lost"
            yield self._in_state(PORT_DEAD, pci, text)
        if track.flaps(at, limits):
            text = f"{now}; its link went down twice within {limits.flap_window_s:g} s"
            yield self._in_state(PORT_FLAPS, pci, text)
        if track.has_errors(limits):
            text = f"{now}; more than {limits.errors_per_hour} errors within an hour"
            yield self._in_state(PORT_ERRORS, pci, text)
        if (faster := self._faster(port, track, sample)) and track.is_up_again(at, limits):
            yield self._in_state(PORT_SLOW, pci, f"{now} at {port.rate_gbps:g} Gb/s; {faster}")

    def _faster(self, port: Port, track: Track, sample: PortSample) -> str:
        """Returns the reason why the port should be faster; empty if nothing shows that."""
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
        """Yields the states that are over for a function, because all its ports prove it."""
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
            yield PORT_ERRORS, "the link has no more errors than a healthy link"
        if not any(self._faster(port, track, sample) for port, track in zip(ports, tracks, strict=True)):
            yield PORT_SLOW, "the port is as fast as the others"

    def _missing(self, sample: PortSample, at: datetime) -> Iterator[str]:
        self._gone_since = {pci: self._gone_since.get(pci, at) for pci in sample.gone}
        for pci, since in self._gone_since.items():
            if at - since >= timedelta(seconds=self._settings.dead_s):
                yield pci
