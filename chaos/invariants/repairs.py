"""Checks repairs: each step is recorded before its Job is created, disturbs no work, and ends with a
validation before the node returns to service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.reading import (
    OURS,
    QUARANTINED,
    REPAIR_OF,
    TAINT,
    VIEW_MAX,
    is_closed,
    is_cordoned,
    lives,
    node_of,
    note,
    our_taint,
    released_at,
    repair_phase,
)
from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import INCIDENTS, JOBS, NODES, PODS

__all__ = ["FewAtOnce", "GivenBackValidated", "StepsAreWrittenFirst", "StepsHarmNobody"]

_WORKING = ("Resetting", "Rebooting", "Validating")
_GPU = "nvidia.com/gpu"


class StepsAreWrittenFirst(Check):
    """The Job of a step is created once, after the step was written to its Incident, while no other step of
    the repair runs on the node.

    Harm if missed: a controller that restarts resets a device a second time, during the validation.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._made: set[str] = set()

    def violations(self, write: Write) -> Iterator[str]:
        if not _makes_step(write):
            return
        job = write.body
        name, label = job["metadata"]["name"], job["metadata"]["labels"][REPAIR_OF]
        if name in self._made:
            yield f"{name} was made twice"
        self._made.add(name)
        incident = _incident(self.facts, label)
        if incident is None:
            yield f"{name} was made for no Incident"
            return
        steps = incident["status"].get("repair", {}).get("steps", [])
        if not any(step["job"] == name and "outcome" not in step for step in steps):
            yield f"{name} was created before its step was written, or after the end of the step"
        others = [
            other["metadata"]["name"]
            for other in self.facts.store.objects(JOBS, self.facts.settings.namespace)
            if other["metadata"]["name"] != name and other["metadata"]["labels"].get(REPAIR_OF) == label
            if _runs(other) and "deletionTimestamp" not in other["metadata"]
        ]
        if others and not _validates(name):
            yield f"{name} was created while {', '.join(others)} was running on the node"


class StepsHarmNobody(Check):
    """A reset or a reboot runs only on a node that is quarantined for this Incident, and on which no pod runs
    that would lose its work.

    Harm if missed: a healthy node reboots, or a job loses its GPU.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not _makes_step(write):
            return
        name = write.body["metadata"]["name"]
        incident = _incident(self.facts, write.body["metadata"]["labels"][REPAIR_OF])
        node = self.facts.node(incident["spec"]["node"]) if incident is not None else None
        if incident is None or node is None or _validates(name):
            return
        is_taken_out = is_closed(node) and note(node).get("incident") == incident["metadata"]["name"]
        if not is_taken_out and not _lately_released(node, write.at):
            yield f"{name} was created for a node that was not quarantined"
        there = [
            pod["metadata"]["name"]
            for pod in self.facts.store.objects(PODS)
            if node_of(pod) == node["metadata"]["name"] and _is_in_the_way(pod, _kind(name), write.at)
        ]
        if there:
            yield f"{name} was created while {', '.join(there)} was running on its node"


class FewAtOnce(Check):
    """Harm if missed: a bad firmware takes down all nodes that are under repair."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.by_controller or write.resource != INCIDENTS:
            return
        rules, nodes = self.facts.settings.repair, len(self.facts.nodes())
        working = [i for i in self.facts.incidents() if repair_phase(i) in _WORKING]
        limit = min(rules.nodes_at_once_max, max(1, int(nodes * rules.percent_at_once_max / 100)))
        if len(working) > limit:
            yield f"{len(working)} nodes are under repair; the limit is {limit}"


class GivenBackValidated(Check):
    """A quarantine ends with a validation that passed, or by a person; then the node is as it was before.

    Harm if missed: a dead GPU is back in service.
    """

    def violations(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if not write.by_controller or write.resource != NODES or old is None or new is None:
            return
        if QUARANTINED not in old["metadata"].get("annotations", {}):
            return
        if QUARANTINED in new["metadata"].get("annotations", {}):
            return
        left = [t["key"] for t in new["spec"].get("taints", []) if t["key"] == TAINT]
        left += [key for key in new["metadata"].get("labels", {}) if key == OURS + "health"]
        if left or (note(old)["cordoned"] and is_cordoned(new)):
            yield f"{new['metadata']['name']} was returned to service, but not as it was before"
        by_person = our_taint(old) is None or (note(old)["cordoned"] and not is_cordoned(old))
        if by_person:
            return
        incident = _incident(self.facts, note(old)["incident"])
        repair = (incident or {}).get("status", {}).get("repair", {})
        done = [(step["kind"], step.get("outcome")) for step in repair.get("steps", [])]
        if repair.get("phase") != "Returned" or done[-1:] != [("validate", "done")]:
            yield (
                f"the controller ended the quarantine of {new['metadata']['name']}, but no validation had "
                "passed, and no person had ended the quarantine"
            )


def _makes_step(write: Write) -> bool:
    return write.by_controller and write.of_repair and write.old is None


def _incident(facts: Facts, name: str) -> Object | None:
    """Returns the Incident of that name. In a simulation the label contains the whole name."""
    try:
        return facts.store.read(INCIDENTS, name).body
    except ApiError:
        return None


def _kind(job: str) -> str:
    """Returns reset, reboot or validate, from the name of the step's Job."""
    return job.split("-")[-2]


def _validates(job: str) -> bool:
    return "-validate-" in job


def _is_in_the_way(pod: Object, kind: str, at: datetime) -> bool:
    if not lives(pod) or REPAIR_OF in pod["metadata"].get("labels", {}):
        return False
    started = pod["status"].get("startTime")
    if started is None or at - datetime.fromisoformat(started) < VIEW_MAX:
        return False
    return kind == "reboot" or any(
        _GPU in container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]
    )


def _runs(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return not any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)


def _lately_released(node: Object, at: datetime) -> bool:
    released = released_at(node)
    return released is not None and at - released < VIEW_MAX
