"""Reads what device plugins of other vendors report about the nodes, for commands that read once. I/O only.

The ConfigMaps are the same that the controller reads. A reader who may not list these ConfigMaps gets a note
and the rest of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.service.settings import SettingsError
from recover.k8s.kinds import CONFIGMAPS
from recover.kube.cluster import Cluster, every
from recover.model import Node
from recover.model.device_reports import Reports
from recover.policy.device_levels import LevelCatalogue
from recover.policy.settings import DeviceReports
from recover.runtime.bounds import too_large
from recover.runtime.device_maps import bytes_max, name_of, places, read

__all__ = ["with_reports"]


async def with_reports(
    cluster: Cluster, nodes: Iterable[Node], settings: DeviceReports, notes: list[str]
) -> list[Node]:
    """Returns the nodes with the signals of these reports added. `notes` gets what could not be read."""
    said: list[Reports] = []
    for namespace, labels in places(settings):
        try:
            raws = await every(cluster, CONFIGMAPS, namespace=namespace, labels=labels)
        except (ApiError, ReplyLost) as error:
            notes.append(f"reports of device plugins in {namespace} left out: {error}")
            continue
        for raw in raws:
            try:
                if why := too_large(raw, bytes_max(settings, namespace)):
                    raise ValueError(why)
                if (found := read(raw, settings)) is not None:
                    said.append(found)
            except (ValueError, RecursionError) as error:
                notes.append(f"a report of a device plugin in {namespace} left out: {name_of(raw)}: {error}")
    try:
        levels = LevelCatalogue(settings)
    except SettingsError:  # the controller does not start with such rows either
        levels = LevelCatalogue(msgspec.structs.replace(settings, chip={}, switch={}, node={}))
    by_node: dict[str, list[Reports]] = {}
    for one in said:
        for node in {*one.faults, *one.free}:
            by_node.setdefault(node, []).append(one)
    return [
        msgspec.structs.replace(node, signals=(*node.signals, *levels.read(node, by_node.get(node.name, ()))))
        for node in nodes
    ]
