"""Reads the ConfigMaps of other vendors' device plugins, and turns them into signals of their nodes.
observe.py adds the signals to its Nodes; model/ascend.py and model/iluvatar.py decode the ConfigMaps, and
policy/device_levels.py defines the meaning of a level.

This is off unless a setting enables it. At its start the controller waits at most ten seconds for these
ConfigMaps. If the cluster has none, or a permission is missing, the controller loses their signals and
nothing else. A ConfigMap that cannot be read hides the signals of its nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog

from detectors.service.rate_limit import RateLimit
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
"""Longest wait for the ConfigMaps at the start of the controller."""

log = structlog.get_logger(__name__)


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] = {}


def places(settings: DeviceReports) -> Iterator[tuple[str, str]]:
    """Yields each namespace to read, with the label selector of its ConfigMaps. A namespace appears once; if
    it contains the plugins of two vendors, there is no common label."""
    found: dict[str, str] = {}
    if settings.ascend:
        found[settings.plugin_namespace] = settings.ascend_labels
        found[settings.cluster_namespace] = ""
    if settings.iluvatar:
        found[settings.plugin_namespace] = ""
    yield from found.items()


def bytes_max(settings: DeviceReports, namespace: str) -> int:
    """Returns the maximum size of one ConfigMap in that namespace. Each ConfigMap of ClusterD describes 1,000
    or 2,000 nodes."""
    has_many = settings.ascend and namespace == settings.cluster_namespace
    return MAP_BYTES_MAX if has_many else READ_BYTES_MAX


def read(raw: bytes, settings: DeviceReports) -> Reports | None:
    """Decodes a ConfigMap. Returns None for a ConfigMap of another purpose. Raises ValueError, which names
    the key."""
    wire = msgspec.json.decode(raw, type=_ConfigMap)
    name = wire.metadata.name
    found = ascend.read(name, wire.data) if settings.ascend else None
    return iluvatar.read(name, wire.data) if found is None and settings.iluvatar else found


def name_of(raw: bytes) -> str:
    """Returns the ConfigMap's name for people to read, or a question mark if it has none."""
    try:
        return msgspec.json.decode(raw, type=Identified).metadata.name
    except (msgspec.MsgspecError, RecursionError):
        return "?"


class DeviceMaps:
    """The signals from ConfigMaps, by node. `changed(node)` is called if something about a node changes.
    `now` dates the moment when a report was first seen."""

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
        """Node -> ConfigMap that reports about the node -> its reports."""
        self._seen: dict[str, dict[str, datetime]] = {}
        """Node -> place of the signal -> when the report was first seen. After a restart of the controller
        these times begin again: that can only delay a suspicion, and signals that cause an action carry their
        own time."""
        self._told = RateLimit()
        self.caches: dict[str, Cache[Reports]] = {}
        """Namespace -> its ConfigMaps."""
        self.reflectors = []
        for namespace, labels in places(settings):
            cache = Cache(CONFIGMAPS, self._keep, self._change, bytes_max=bytes_max(settings, namespace))
            self.caches[namespace] = cache
            self.reflectors.append(
                Reflector(cluster, CONFIGMAPS, cache, optional=True, namespace=namespace, labels=labels)
            )

    async def synced(self) -> None:
        """Waits until all ConfigMaps are read, so that a restarted controller does not conclude that a report
        is gone. Without the permission to read them the wait would never end, so it stops after
        `IN_STEP_S_MAX`."""
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
        """Returns the number of skipped ConfigMaps, plus the number of nodes whose entry in a ConfigMap of
        many nodes is skipped."""
        entries = {node for said in self._of_node.values() for one in said.values() for node in one.unread}
        return sum(len(cache.unreadable) for cache in self.caches.values()) + len(entries)

    def added(self, node: Node) -> Node:
        """Returns the node with the signals that the ConfigMaps report now, and remembers when each of them
        was first seen."""
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
        """Forgets a node that is gone."""
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
