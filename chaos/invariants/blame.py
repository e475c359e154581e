"""Checks that no culprit is named without proof. An Incident may name an application as the culprit only if
an agent watched the node, and not if the log says that a device failed under the program. A Recovery may name
a broken node as its cause only if a rank has run there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.jobs import DEVICES_ISSUE
from chaos.simulated.reading import gang_uid, node_of, owner
from recover.k8s.kinds import INCIDENTS, PODS, RECOVERIES

__all__ = ["ApplicationsAreBlamedIfSeen", "CausesAreItsOwn"]

_DEVICES_CODE = "log-cuda-ecc"
"""Code by which an agent reports the line DEVICES_ISSUE. The evidence of an Incident contains the code."""


class ApplicationsAreBlamedIfSeen(Check):
    """Harm if missed: the owner of a job looks for a mistake in a program that has none, and the gang goes
    back to the broken node."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.by_controller or write.resource != INCIDENTS or write.new is None:
            return
        status = write.new.get("status", {})
        was = (write.old or {}).get("status", {}).get("blame")
        if not write.new["spec"].get("gang") or status.get("blame") != "application" or was == "application":
            return
        first: Object = next(iter(status.get("evidence", [])), {})
        node = first.get("node", "")
        if node and not self.facts.has_agent_written(node):
            yield f"the application was named as the culprit, although no agent watches {node}"
        if _DEVICES_CODE in first.get("text", ""):
            yield f"the application was named as the culprit, although its log says: {DEVICES_ISSUE}"


class CausesAreItsOwn(Check):
    """Harm if missed: a report says that a job was stopped for a node on which it has never run, and the gang
    is stopped once more for it."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._hosts: dict[str, set[str]] = defaultdict(set)
        """Nodes of all pods that a job has ever had, by the uid of the job."""

    def violations(self, write: Write) -> Iterator[str]:
        if write.resource == PODS and node_of(write.body):
            self._hosts[owner(write.body)].add(node_of(write.body))
        elif write.by_controller and write.resource == RECOVERIES and write.new is not None:
            uids = {gang_uid(write.new), write.new["spec"]["gang"]["uid"]}
            hosts = set().union(*(self._hosts.get(uid, set()) for uid in uids))
            before = _blamed(write.old) if write.old is not None else set()
            for node in sorted(_blamed(write.new) - before - hosts):
                yield f"a recovery names {node} as its cause, although no rank of its gang ran there"


def _blamed(recovery: Object) -> set[str]:
    causes = [*recovery["spec"].get("causes", []), *recovery.get("status", {}).get("causes", [])]
    return {cause["node"] for cause in causes if cause.get("node") and cause.get("blame") == "node"}
