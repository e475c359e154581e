"""ConfigMaps of device plugins of other vendors -> signals of their nodes. Beside observe.py, which puts
them into its Nodes; model/ascend.py and model/iluvatar.py decode, policy/device_levels.py says what a level
means.

Off unless a setting asks for it. At its start the controller waits ten seconds for them at most: a cluster
without them, or a missing right, costs what they would have said and nothing else. A ConfigMap that cannot
be read hides what was said of its node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog

from detectors.service.seldom import Seldom
from detectors.wire.contract import ObjectMeta
from recover.k8s.identities import Identified
from recover.k8s.kinds import CONFIGMAPS
from recover.kube.cluster import Cluster
from recover.kube.reflector import Reflector
from recover.model import Node, SignalKind, ascend, iluvatar
from recover.model.device_reports import Reports
from recover.policy.device_levels import LevelCatalogue, dated
from recover.policy.settings import DeviceReports
from recover.runtime.bounds import MAP_BYTES_MAX, READ_BYTES_MAX
from recover.runtime.cache import Cache

__all__ = ["DeviceMaps", "bytes_max", "name_of", "places", "read"]

IN_STEP_S_MAX = 10.0
"""At the start."""

log = structlog.get_logger(__name__)


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] = {}


def places(settings: DeviceReports) -> Iterator[tuple[str, str]]:
    """Namespaces to read, each with the labels of the ConfigMaps. A namespace comes once: with two vendors'
    plugins in it there is no common label."""
    found: dict[str, str] = {}
    if settings.ascend:
        found[settings.plugin_namespace] = settings.ascend_labels
        found[settings.cluster_namespace] = ""
    if settings.iluvatar:
        found[settings.plugin_namespace] = ""
    yield from found.items()


def bytes_max(settings: DeviceReports, namespace: str) -> int:
    """Of one ConfigMap there. ClusterD's are about 1,000 or 2,000 nodes each."""
    has_many = settings.ascend and namespace == settings.cluster_namespace
    return MAP_BYTES_MAX if has_many else READ_BYTES_MAX


def read(raw: bytes, settings: DeviceReports) -> Reports | None:
    """None for a ConfigMap of another purpose. Raises ValueError, naming the key."""
    wire = msgspec.json.decode(raw, type=_ConfigMap)
    name = wire.metadata.name
    found = ascend.read(name, wire.data) if settings.ascend else None
    return iluvatar.read(name, wire.data) if found is None and settings.iluvatar else found


def name_of(raw: bytes) -> str:
    """For people; a question mark where it has none."""
    try:
        return msgspec.json.decode(raw, type=Identified).metadata.name
    except (msgspec.MsgspecError, RecursionError):
        return "?"


class DeviceMaps:
    """`changed(node)` is called where something new is said of a node. `now` tells when a report was first
    seen."""

    def __init__(
        self,
        cluster: Cluster,
        settings: DeviceReports,
        changed: Callable[[str], None],
        now: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._levels = LevelCatalogue(settings)
        self._changed = changed
        self._now = now
        self._of_node: dict[str, dict[str, Reports]] = {}
        """By node, and by the ConfigMap that speaks of it."""
        self._seen: dict[str, dict[str, datetime]] = {}
        """By node, and by the signal's place. After a restart of the controller a report begins again: that
        can only delay a suspicion, and what acts has a time of its own."""
        self._told = Seldom()
        self.caches: dict[str, Cache[Reports]] = {}
        """By namespace."""
        self.reflectors = []
        for namespace, labels in places(settings):
            cache = Cache(CONFIGMAPS, self._keep, self._change, bytes_max=bytes_max(settings, namespace))
            self.caches[namespace] = cache
            self.reflectors.append(
                Reflector(cluster, CONFIGMAPS, cache, optional=True, namespace=namespace, labels=labels)
            )

    async def synced(self) -> None:
        """Until all are read, so that a restart takes no report for gone. Whoever lacks the right to read
        them would wait for ever, and goes on."""
        if not self.is_on:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(IN_STEP_S_MAX):
                for reflector in self.reflectors:
                    await reflector.synced.wait()

    @property
    def is_on(self) -> bool:
        return bool(self.caches)

    def unreadable(self) -> int:
        """ConfigMaps that are skipped, and nodes whose entry in one of many nodes is."""
        entries = {node for said in self._of_node.values() for one in said.values() for node in one.unread}
        return sum(len(cache.unreadable) for cache in self.caches.values()) + len(entries)

    def added(self, node: Node) -> Node:
        """The node with what is said of it now."""
        if not self.is_on:
            return node
        told = self._levels.read(node, self._of_node.get(node.name, {}).values())
        before = self._seen.pop(node.name, {})
        now = self._now()
        seen = {one.place: before.get(one.place, now) for one in told}
        if seen:
            self._seen[node.name] = seen
        own = (one for one in node.signals if one.kind is not SignalKind.REPORT)
        return msgspec.structs.replace(
            node, signals=(*own, *(dated(one, seen[one.place], now) for one in told))
        )

    def forget(self, node: str) -> None:
        """Of a node that is gone."""
        self._seen.pop(node, None)

    def _keep(self, raw: bytes) -> Reports | None:
        return read(raw, self._settings)

    def _change(self, key: str, old: Reports | None, new: Reports | None) -> None:
        for node in sorted(_nodes(old) | _nodes(new)):
            said = self._of_node.setdefault(node, {})
            said.pop(key, None)
            if new is not None and (node in new.faults or node in new.unread):
                said[key] = new
            if not said:
                del self._of_node[node]
            if new is not None and node in new.unread and self._told.may_tell(self._now().timestamp()):
                log.warning("entry skipped: cannot be read", object=key, node=node, error=new.unread[node])
            self._changed(node)


def _nodes(reports: Reports | None) -> set[str]:
    return set() if reports is None else {*reports.faults, *reports.unread}
