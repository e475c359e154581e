"""Writes in the controller's name that the checks of a simulation judge: each test of a check makes one such
write, and asserts which checks find it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import Audit, MemoryCluster
from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulate.play import START, play
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from chaos.simulated.truth import Truth
from detectors.wire.resource import Resource
from recover.api import Phase
from recover.k8s.kinds import INCIDENTS, JOBS, NODES, PYTORCHJOBS, RECOVERIES
from recover.model.modes import Mode
from recover.policy.settings import Budgets, Settings

Misdeed = Callable[[Simulation], Awaitable[Any]]
WIDE = Settings(mode=Mode.RECOVER, budgets=Budgets(quarantined_percent_max=100.0, pool_percent_max=100.0))
"""Settings with limits that a small cluster does not reach."""


# --- what the checks find ---------------------------------------------------------------------------------


class Found(NamedTuple):
    """`rules` are the checks that were broken, in the order of the violations. `said` has their sentences."""

    rules: list[type[Check]]
    said: list[str]


class _Heard(Check):
    """Passes on what a check reports, and records which check has reported it."""

    def __init__(self, check: Check, found: Found) -> None:
        super().__init__(check.facts)
        self._check, self._found = check, found

    def violations(self, write: Write) -> Iterator[str]:
        for said in self._check.violations(write):
            self._found.rules.append(type(self._check))
            self._found.said.append(said)
            yield said


def judged(story: Misdeed, setup: Setup | None = None) -> Found:
    """Returns what the checks find in a run. The violations are removed, so that the run is judged by the
    test alone."""
    found = Found([], [])

    async def heard(sim: Simulation) -> None:
        sim.invariants._checks = [_Heard(check, found) for check in sim.invariants._checks]
        await story(sim)
        sim.invariants.violations.clear()

    play(heard, setup)
    return found


def found_of(act: Misdeed, setup: Setup | None = None, job: Job | None = None) -> Found:
    """Returns what the checks find in writes in the name of the controller, which is off, about a job that
    trains."""

    async def story(sim: Simulation) -> None:
        await sim.submit(job or Job(ranks=2))
        await sim.passes(65)
        sim.kill_controller()
        await act(sim)

    return judged(story, setup)


def found_after_recovery(act: Misdeed, setup: Setup | None = None, **job: Any) -> Found:
    """Returns what the checks find in writes in the name of the controller, which is off, about a job that
    was stopped and resumed once."""

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(**job))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=60)
        sim.kill_controller()
        assert sim.invariants.violations == []
        await act(sim)

    return judged(story, setup)


# --- writes in the controller's name ----------------------------------------------------------------------


async def on_node(sim: Simulation, node: str, patch: Object) -> None:
    await sim.cluster.client(CONTROLLER).patch(NODES, node, as_seen(sim, NODES, node, patch))


async def on_job(sim: Simulation, patch: Object) -> None:
    seen = as_seen(sim, PYTORCHJOBS, "llm", patch, "ml")
    await sim.cluster.client(CONTROLLER).patch(PYTORCHJOBS, "llm", seen, namespace="ml")


async def on_recovery(sim: Simulation, status: Object) -> None:
    """Patches the status of the only Recovery."""
    name = sim.recovery().metadata.name
    seen = as_seen(sim, RECOVERIES, name, {"status": status}, "ml")
    await sim.cluster.client(CONTROLLER).patch(RECOVERIES, name, seen, namespace="ml", subresource="status")


def as_seen(sim: Simulation, resource: Resource, name: str, patch: Object, namespace: str = "") -> Object:
    """Returns the patch with the resourceVersion of the present object."""
    version = sim.cluster.store.read(resource, name, namespace).body["metadata"]["resourceVersion"]
    return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}


async def stopped(sim: Simulation) -> None:
    """Stops the gang as the controller does, in a Recovery that was written before."""
    await _in_recovery(sim, {"phase": "Stopping"})
    await on_job(sim, act_of("r", 1, "stopped"))


async def started(sim: Simulation, **status: Any) -> None:
    """Starts the gang as the controller does, in a Recovery with this status that was written before."""
    await _in_recovery(sim, {"phase": "Resuming", **status})
    await on_job(sim, act_of("r", 1, "resumed"))


async def _in_recovery(sim: Simulation, status: Object) -> None:
    if not sim.recoveries():
        job = sim.cluster.store.read(PYTORCHJOBS, "llm", "ml").body
        gang = {field: job[field] for field in ("apiVersion", "kind")} | {"namespace": "ml", "name": "llm"}
        spec = {"gang": gang | {"uid": job["metadata"]["uid"]}, "number": 1, "incident": "i"}
        spec |= {"fault": "unknown", "detectedAt": "2026-11-21T09:00:00Z", "summary": "a test"}
        await sim.cluster.client(CONTROLLER).create(RECOVERIES, made(RECOVERIES, "r", spec), "ml")
    await on_recovery(sim, {"attempt": 1, **status})


def act_of(recovery: str, attempt: int, did: str) -> Object:
    """Returns the patch by which an attempt of that Recovery stops or starts the job."""
    mark = msgspec.json.encode({"recovery": recovery, "attempt": attempt, "did": did}).decode()
    return {
        "metadata": {"annotations": {"rekindle.dev/recovery": mark}},
        "spec": {"runPolicy": {"suspend": did == "stopped"}},
    }


async def taken_out(
    sim: Simulation,
    node: str,
    effect: str = "NoSchedule",
    incident: str = "",
    shows: lines.KernelText | None = lines.FALLEN_OFF_THE_BUS,
) -> None:
    """Quarantines a broken node as the controller does."""
    if shows is not None:
        sim.kernel(node, shows)
    await on_node(sim, node, quarantine(effect, incident=incident or f"{node}-nvlink-1"))


def quarantine(effect: str = "NoSchedule", *, incident: str = "i") -> Object:
    """Returns the patch by which the controller taints a node."""
    cordons = effect == "NoSchedule"
    note = {"incident": incident, "fault": "nvlink", "at": "2026-11-21T09:00:00Z", "cordoned": cordons}
    annotations = {"rekindle.dev/quarantined-by": msgspec.json.encode(note).decode()}
    taint = {"key": "rekindle.dev/unhealthy", "value": "nvlink", "effect": effect}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"taints": [taint], "unschedulable": True if cordons else None},
    }


def made(resource: Resource, name: str, spec: Object) -> Object:
    """Returns a complete object to create."""
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**kind, "metadata": {"name": name}, "spec": spec}


async def incident(sim: Simulation, name: str, spec: Object, status: Object | None = None) -> None:
    spec = {"detectedAt": sim.clock.now().isoformat(), **spec}
    api = sim.cluster.client(CONTROLLER)
    await api.create(INCIDENTS, made(INCIDENTS, name, spec))
    if status is not None:
        await api.patch(INCIDENTS, name, {"status": status}, subresource="status")


# --- one check on one write ------------------------------------------------------------------------------


def facts() -> Facts:
    """Returns the facts of an empty cluster."""
    return Facts(MemoryCluster(lambda: START), Truth(lambda: START), WIDE)


def written(
    resource: Resource,
    new: Object,
    *,
    old: Object | None = None,
    after_s: float = 0,
    subresource: str = "",
    of_repair: bool = False,
) -> Write:
    """Returns a write of the controller on an object, the given number of seconds after the start."""
    at = START + timedelta(seconds=after_s)
    audit = Audit(at, CONTROLLER, "patch", resource, "", "any", subresource, 200, changed=True)
    return Write(audit=audit, old=old, new=new, by_controller=True, of_repair=of_repair)


def start_of(uid: str, **annotations: str) -> Write:
    """Returns the write by which the controller starts that job."""
    meta = {"uid": uid, "name": "llm", "namespace": "ml", "annotations": annotations}
    old, new = ({"metadata": meta, "spec": {"suspend": suspend}} for suspend in (True, False))
    return written(JOBS, new, old=old)


def found_by(check: Check, write: Write) -> list[str]:
    return list(check.violations(write))
