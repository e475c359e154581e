"""Knows which broken hardware the controller must know: fatal faults that agents reported so long ago that
the controller's view must contain them, and the faults in open Incidents, because the controller itself wrote
these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from chaos.apiserver.kinds import Object
from chaos.simulated.reading import VIEW_MAX, released_at

__all__ = ["Reports"]

_WRITES_MAX = timedelta(seconds=15)
"""Maximum time that the writes of one decision take. An Incident that was written less than this time ago may
be newer than the decision."""
_NOT_THE_HARDWARE = ("application", "hang", "host", "straggler", "unknown")


class _Report(msgspec.Struct, frozen=True):
    """A fatal fault that an agent's NodeHealth shows. The fault is open and from the node's present boot."""

    code: str
    boot_id: str
    written_at: datetime


class Reports:
    """The faults that the NodeHealths show at present, and since when."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, _Report]] = {}
        """Reports by node and id of the finding."""

    def saw(self, health: Object, at: datetime) -> None:
        """Records a write of a NodeHealth. A fault that the NodeHealth no longer shows is no longer known."""
        name, boot_id = health["metadata"]["name"], health.get("status", {}).get("bootId", "")
        before, now = self._by_node.get(name, {}), {}
        for finding in health.get("status", {}).get("findings", []):
            is_fatal = finding["severity"] == "fatal" and "clearedAt" not in finding
            is_hardware = finding["origin"] != "tenant" and finding["fault"] not in _NOT_THE_HARDWARE
            if is_fatal and is_hardware and finding["bootId"] == boot_id:
                now[finding["id"]] = before.get(
                    finding["id"], _Report(finding["code"], boot_id, written_at=at)
                )
        self._by_node[name] = now

    def is_broken(self, node: str) -> bool:
        """Whether the node's NodeHealth shows a fatal fault. The controller may not know of it yet."""
        return bool(self._by_node.get(node))

    def known(self, node: Object, incidents: list[Object], at: datetime) -> Iterator[str]:
        """Yields the codes of the fatal faults that the controller must know this node to have."""
        name = node["metadata"]["name"]
        said = [i for i in incidents if _tells_of_hardware(i, at - _WRITES_MAX) and i["spec"]["node"] == name]
        for report in self._by_node.get(name, {}).values():
            if _is_known(report, node, said[-1] if said else None, at):
                yield report.code


def _is_known(report: _Report, node: Object, incident: Object | None, at: datetime) -> bool:
    released = released_at(node)
    if report.boot_id != node["status"]["nodeInfo"]["bootID"]:
        return False
    if released is not None and report.written_at <= released:
        return False
    if incident is not None:
        return any(evidence["code"] == report.code for evidence in incident["status"].get("evidence", []))
    return report.written_at <= at - VIEW_MAX


def _tells_of_hardware(incident: Object, before: datetime) -> bool:
    status: Mapping[str, object] = incident.get("status", {})
    made_at = datetime.fromisoformat(incident["metadata"]["creationTimestamp"])
    is_node = bool(incident["spec"].get("node")) and incident["spec"]["fault"] not in _NOT_THE_HARDWARE
    return is_node and status.get("phase", "Open") == "Open" and made_at <= before
