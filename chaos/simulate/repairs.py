"""Repairs in virtual time: what the pods of their steps do to a machine, and the safety invariants of
repairs, a part of invariants.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta

from chaos.cluster.containers import ContainerRun, Exit
from chaos.cluster.kinds import Object
from chaos.cluster.store import MemoryCluster
from chaos.simulate.reading import OURS, QUARANTINED, TAINT, is_cordoned, lives, node_of, note, our_taint
from detectors.kubeapi import ApiError
from detectors.validation.report import Check, Outcome, ValidationReport, encode
from recover.resources import INCIDENTS, JOBS, NODES, PODS
from recover.settings import Repairs

__all__ = ["REPAIR_OF", "VISITOR", "RepairChecks", "StepPod", "Visitor", "is_repair_job", "stuck"]

REPAIR_OF = OURS + "repair"
VISITOR = "stays-for-seconds"
"""Label on a pod that is nobody's rank."""
WORKING = ("Resetting", "Rebooting", "Validating")
OVER = ("Returned", "HandedOver")
_GPU = "nvidia.com/gpu"
_VIEW_MAX = timedelta(seconds=90)
"""How old the controller's view of a pod or a node may be: a partition, slow answers, and watches that
lag."""

Reboots = Callable[[str], Awaitable[None]]


def is_repair_job(body: Object, namespace: str) -> bool:
    meta = body["metadata"]
    return REPAIR_OF in meta.get("labels", {}) and meta.get("namespace") == namespace


class StepPod:
    """The container of a step. One in four steps fails; every eighth reboot never comes."""

    def __init__(self, draw: random.Random, reboots: Reboots) -> None:
        self._draw = draw
        self._reboots = reboots

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        kind = run.pod["metadata"]["labels"]["job-name"].split("-")[-2]
        is_good = self._draw.random() < 0.75
        await asyncio.sleep(self._draw.uniform(1.0, 60.0))
        if kind == "reboot":
            if self._draw.random() > 0.125:
                await self._reboots(run.node)
            await asyncio.Event().wait()  # it is killed with its machine, or by its deadline
        if kind == "validate":
            return Exit(0 if is_good else 1, message=_report(is_good))
        return Exit(0 if is_good else 1)


def _report(is_good: bool) -> str:
    devices = Outcome.PASSED if is_good else Outcome.FAILED
    checks = (
        Check(name="devices", outcome=devices),
        Check(name="kernel-log", outcome=Outcome.PASSED),
        Check(name="nccl", outcome=Outcome.NOT_RUN, message="no GPU in a simulation"),
    )
    return encode(ValidationReport(checks=checks)).decode()


class Visitor:
    """A pod that is nobody's rank: it stays for a while."""

    def __init__(self, stays_s: float) -> None:
        self._stays_s = stays_s

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        await asyncio.sleep(self._stays_s)
        return Exit(0)


class RepairChecks:
    def __init__(self, store: MemoryCluster, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._made: set[str] = set()

    def job(self, old: Object | None, new: Object | None, at: datetime) -> Iterator[str]:
        """What is wrong with the controller's write of a repair's Job."""
        if old is not None or new is None:
            return
        name = new["metadata"]["name"]
        if name in self._made:
            yield f"{name} was made twice"
        self._made.add(name)
        incident = self._incident(new["metadata"]["labels"][REPAIR_OF])
        if incident is None:
            yield f"{name} was made for no Incident"
            return
        steps = incident["status"].get("repair", {}).get("steps", [])
        if not any(step["job"] == name and "outcome" not in step for step in steps):
            yield f"{name} was made before its step was written, or after its end"
        label = new["metadata"]["labels"][REPAIR_OF]
        others = [
            job["metadata"]["name"]
            for job in self._store.objects(JOBS, self._namespace)
            if job["metadata"]["name"] != name and job["metadata"]["labels"].get(REPAIR_OF) == label
            if _runs(job) and "deletionTimestamp" not in job["metadata"]
        ]
        if others and "-validate-" not in name:
            yield f"{name} was made while {', '.join(others)} runs on the node"
        yield from self._on_its_node(incident, name, at)

    def _on_its_node(self, incident: Object, name: str, at: datetime) -> Iterator[str]:
        node = next(
            (n for n in self._store.objects(NODES) if n["metadata"]["name"] == incident["spec"]["node"]), None
        )
        if node is None or "-validate-" in name:
            return
        taint = our_taint(node)
        is_ours = note(node).get("incident") == incident["metadata"]["name"]
        if not _lately_changed(node, at) and (
            not is_ours or taint is None or taint["effect"] != "NoSchedule"
        ):
            yield f"{name} was made for a node that was not taken out"
        kind = name.split("-")[-2]
        there = [
            pod["metadata"]["name"]
            for pod in self._store.objects(PODS)
            if node_of(pod) == node["metadata"]["name"] and self._is_in_the_way(pod, kind, at)
        ]
        if there:
            yield f"{name} was made while {', '.join(there)} ran on its node"

    def _is_in_the_way(self, pod: Object, kind: str, at: datetime) -> bool:
        if not lives(pod) or REPAIR_OF in pod["metadata"].get("labels", {}):
            return False
        started = pod["status"].get("startTime")
        if started is None or at - datetime.fromisoformat(started) < _VIEW_MAX:
            return False
        return kind == "reboot" or any(
            _GPU in c.get("resources", {}).get("limits", {}) for c in pod["spec"]["containers"]
        )

    def incident(self, rules: Repairs) -> Iterator[str]:
        """After a write of an Incident: how many nodes are worked on."""
        working = [i for i in self._store.objects(INCIDENTS) if _phase(i) in WORKING]
        nodes = len(self._store.objects(NODES))
        limit = min(rules.nodes_at_once_max, max(1, int(nodes * rules.percent_at_once_max / 100)))
        if len(working) > limit:
            yield f"{len(working)} nodes are under repair, the limit is {limit}"

    def given_back(self, old: Object, new: Object) -> Iterator[str]:
        """What is wrong with the controller's write on this node, if it ends a quarantine."""
        if QUARANTINED not in old["metadata"].get("annotations", {}):
            return
        if QUARANTINED in new["metadata"].get("annotations", {}):
            return
        left = [t["key"] for t in new["spec"].get("taints", []) if t["key"] == TAINT]
        left += [key for key in new["metadata"].get("labels", {}) if key == OURS + "health"]
        if left or (note(old)["cordoned"] and is_cordoned(new)):
            yield f"{new['metadata']['name']} was not given back as it was"
        by_person = our_taint(old) is None or (note(old)["cordoned"] and not is_cordoned(old))
        if by_person:
            return
        incident = self._incident(note(old)["incident"])
        repair = (incident or {}).get("status", {}).get("repair", {})
        done = [(s["kind"], s.get("outcome")) for s in repair.get("steps", [])]
        if repair.get("phase") != "Returned" or done[-1:] != [("validate", "done")]:
            yield f"{new['metadata']['name']} was given back without a validation, and by no person"

    def _incident(self, name: str) -> Object | None:
        """By its name, which a label holds whole in a simulation."""
        try:
            return self._store.read(INCIDENTS, name).body
        except ApiError:
            return None


def stuck(incidents: list[Object]) -> list[str]:
    """Repairs that are not over and do not say what they wait for, once all is at rest."""
    return [
        f"the repair of {i['spec']['node']} is {_phase(i)} and says nothing"
        for i in incidents
        if i["status"].get("repair") and _phase(i) not in OVER and not i["status"]["repair"].get("reason")
    ]


def _phase(incident: Object) -> str:
    repair = incident.get("status", {}).get("repair")
    return str(repair.get("phase", "Waiting")) if repair else ""


def _runs(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return not any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)


def _lately_changed(node: Object, at: datetime) -> bool:
    """A person released it a moment ago."""
    released = node["metadata"].get("annotations", {}).get(OURS + "released-at")
    return bool(released) and at - datetime.fromisoformat(released) < _VIEW_MAX
