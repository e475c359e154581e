"""The safety invariant of a gang's start, a part of invariants.py: on no node that is known to be broken.

Known is what an agent has reported so long ago that the controller's view must hold it, and what an open
Incident says, since the controller itself has written that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from chaos.cluster.kinds import Object
from chaos.simulate.reading import (
    MARK,
    OURS,
    hosts_avoided,
    is_cordoned,
    note,
    takes_pods,
    tolerates_all,
)
from chaos.simulate.truth import Truth

__all__ = ["StartChecks"]

_VIEW_MAX = timedelta(seconds=90)
"""How old the controller's view of a node may be: a partition, slow answers, and watches that lag."""
_WRITES_MAX = timedelta(seconds=15)
"""How long the writes of one decision may take, which was made before that Incident was written."""
_FRESH = timedelta(seconds=60)
_NOT_THE_HARDWARE = ("application", "hang", "host", "straggler", "unknown")


class _Report(msgspec.Struct, frozen=True):
    """A fatal fault that an agent's NodeHealth shows, open and of its node's present boot."""

    code: str
    boot_id: str
    written_at: datetime


class StartChecks:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._reports: dict[str, dict[str, _Report]] = {}
        """By node and finding."""

    def saw(self, health: Object, at: datetime) -> bool:
        """A write on a NodeHealth; whether it shows a fault. What it no longer shows is no longer known."""
        name, boot_id = health["metadata"]["name"], health.get("status", {}).get("bootId", "")
        before, now = self._reports.get(name, {}), {}
        for finding in health.get("status", {}).get("findings", []):
            is_fatal = finding["severity"] == "fatal" and "clearedAt" not in finding
            is_hardware = finding["origin"] != "tenant" and finding["fault"] not in _NOT_THE_HARDWARE
            if is_fatal and is_hardware and finding["bootId"] == boot_id:
                now[finding["id"]] = before.get(
                    finding["id"], _Report(finding["code"], boot_id, written_at=at)
                )
        self._reports[name] = now
        return bool(now)

    def started(
        self, parts: list[Object], nodes: list[Object], incidents: list[Object], at: datetime
    ) -> Iterator[str]:
        """What is wrong with the controller's start of a gang: a job, or the Jobs of a JobSet."""
        for node in nodes:
            name = node["metadata"]["name"]
            is_closed = is_cordoned(node) and not any(map(tolerates_all, parts))
            avoided = set.intersection(*map(hosts_avoided, parts))
            if is_closed or name in avoided or _is_let_go(node):
                continue
            for code in self.shown(node, incidents, at):
                yield f"started where {name} takes its pods, which has shown {code}"

    def prefers(self, job: Object, recovery: Object, nodes: list[Object], at: datetime) -> Iterator[str]:
        """What is wrong with what the first start of a recovery prefers: a cause of a moment ago suspects a
        node. A job that is made anew prefers no nodes."""
        status = recovery["status"]
        if status.get("attempt", 1) != 1 or status.get("recreation"):
            return
        mark = msgspec.json.decode(job["metadata"]["annotations"][MARK])
        left = {*mark.get("suspected", ()), *mark.get("avoided", ())}
        open_ones = {n["metadata"]["name"]: n for n in nodes if takes_pods(n) and not _has_released(n)}
        for cause in status.get("causes", []):
            node, told_at = cause.get("node", ""), datetime.fromisoformat(cause["at"])
            if node not in open_ones or node in left or told_at <= at - _FRESH:
                continue
            # By a clock that is ahead the steps before the loss come after it.
            if not self._truth.is_ahead(node) and not self._truth.has_trained(node, told_at):
                yield f"started without a word of {node}, which its cause suspects"

    def shown(self, node: Object, incidents: list[Object], at: datetime) -> Iterator[str]:
        """Codes of the fatal faults that the controller knows this node to have."""
        name = node["metadata"]["name"]
        told = [i for i in incidents if _tells_of_hardware(i, at - _WRITES_MAX) and i["spec"]["node"] == name]
        for report in self._reports.get(name, {}).values():
            if _is_known(report, node, told[-1] if told else None, at):
                yield report.code


def _is_known(report: _Report, node: Object, incident: Object | None, at: datetime) -> bool:
    released = node["metadata"].get("annotations", {}).get(OURS + "released-at")
    if report.boot_id != node["status"]["nodeInfo"]["bootID"]:
        return False
    if released and report.written_at <= datetime.fromisoformat(released):
        return False
    if incident is not None:
        return any(evidence["code"] == report.code for evidence in incident["status"].get("evidence", []))
    return report.written_at <= at - _VIEW_MAX


def _tells_of_hardware(incident: Object, before: datetime) -> bool:
    status: Mapping[str, object] = incident.get("status", {})
    made_at = datetime.fromisoformat(incident["metadata"]["creationTimestamp"])
    is_node = bool(incident["spec"].get("node")) and incident["spec"]["fault"] not in _NOT_THE_HARDWARE
    return is_node and status.get("phase", "Open") == "Open" and made_at <= before


def _has_released(node: Object) -> bool:
    return bool(node["metadata"].get("annotations", {}).get(OURS + "released-at"))


def _is_let_go(node: Object) -> bool:
    """A person has just uncordoned it, and the controller has not completed that yet."""
    return bool(note(node).get("cordoned")) and not is_cordoned(node)
