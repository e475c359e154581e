"""Assembles the simulation: cluster, agents, gangs, the production controller, and the faults.

Everything runs on one virtual clock and draws from one seed, so the same calls give the same run. Stories and
scripts act through the methods here. invariants/watch.py shows every write to the checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from chaos.apiserver.kinds import KINDS, Object
from chaos.cluster.containers import ContainerRun, Exit
from chaos.cluster.podworker import KubeletSettings
from chaos.cluster.virtual import Clock
from chaos.cluster.virtual_runtime import Behaviour
from chaos.cluster.world import LocalCluster, Shape, virtual_cluster
from chaos.invariants.watch import Invariants
from chaos.simulated.crashing import CrashPoints
from chaos.simulated.jobs import NAMESPACE, OTHER_NAMESPACE, OWNERS_ISSUE, Gang, Job, Kind, Scan, manifest
from chaos.simulated.machines import Machines
from chaos.simulated.people import PERSON, Person
from chaos.simulated.reading import REPAIR_OF, is_closed, is_suspended
from chaos.simulated.repairs import VISITOR, StepPod, Visitor
from chaos.simulated.setup import Setup
from chaos.simulated.truth import Truth
from detectors.client.kubeapi import ApiError
from detectors.rules.facts import PodRef
from detectors.wire.resource import Resource
from recover.api import Incident, Phase, Recovery, crds
from recover.api.marks import SCAN_OF
from recover.k8s.kinds import INCIDENTS, JOBS, JOBSETS, NAMESPACES, NODES, PODS, PYTORCHJOBS, RECOVERIES
from recover.model.modes import Mode
from recover.policy.settings import Settings
from recover.runtime.controller import Controller
from recover.runtime.telemetry import Metrics

__all__ = ["CONTROLLER", "Setup", "Simulation", "simulation"]

CONTROLLER = "rekindle-controller"
_RESOURCES = {Kind.PYTORCHJOB: PYTORCHJOBS, Kind.JOB: JOBS, Kind.JOBSET: JOBSETS}
_NAMED_BY = {
    "training.kubeflow.org/job-name": Kind.PYTORCHJOB,
    "jobset.sigs.k8s.io/jobset-name": Kind.JOBSET,
    "batch.kubernetes.io/job-name": Kind.JOB,
}
"""Labels by which a pod names its job. The first label that the pod has counts."""
_Place = tuple[Kind, str, str]
"""Kind, namespace and name of a job."""


class Simulation(Machines):
    """`gangs` has all gangs by Job.key. A parameter `job` is that key too, because two jobs may have one
    name."""

    def __init__(self, setup: Setup, clock: Clock, truth: Truth) -> None:
        super().__init__(setup, clock, truth)
        self.settings = setup.settings
        self.gangs: dict[str, Gang] = {}
        self.metrics = Metrics()
        self.person = Person(self)
        self._at: dict[_Place, Gang] = {}
        self._controller: asyncio.Task[None] | None = None
        self._is_promoted = False
        self.controller_began = clock.now()

    def on(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.client = cluster.client(CONTROLLER)
        self.crashes = CrashPoints(self.client, self._die_and_restart)
        self.invariants = Invariants(cluster.store, self.truth, self.setup.settings, controller=CONTROLLER)
        cluster.store.before_reply = self.invariants.saw

    # --- the controller -----------------------------------------------------------------------------------

    @property
    def controller_lives(self) -> bool:
        return self._controller is not None and not self._controller.done()

    async def start_controller(self) -> None:
        """Starts a new controller, which knows only what the API server stores."""
        assert not self.controller_lives
        if self._is_promoted:
            self._is_promoted, self.truth.acting_since = False, self.clock.now()
        self.controller_began = self.clock.now()
        leading = asyncio.Event()
        leading.set()  # the controller is alone here, and a lease would be thousands of writes
        controller = Controller(
            self.crashes,
            self.settings,
            self.metrics,
            self.clock,
            leading,
            decided=self.invariants.decided,
        )
        self._controller = asyncio.create_task(controller.run(), name="controller")

    def kill_controller(self) -> None:
        """Kills the controller at once. What it has sent is applied, and what it has not sent is lost."""
        if self._controller is not None:
            self._controller.cancel()
        self._controller = None
        gc.enable()  # a controller that starts has switched the collector off

    def _die_and_restart(self) -> None:
        """Kills the controller, and starts the next one as a Deployment would. The crash points call this
        method."""
        self.kill_controller()
        if self.crashes.down_s is not None:
            self._restart = asyncio.create_task(self.restart_controller(self.crashes.down_s))

    async def restart_controller(self, down_s: float = 0.0) -> None:
        self.kill_controller()
        await asyncio.sleep(down_s)
        if not self.controller_lives:
            await self.start_controller()

    def change_settings(self, settings: Settings) -> None:
        """Changes the settings with which the next controller starts."""
        if self.settings.mode is Mode.OBSERVE and settings.mode is not Mode.OBSERVE:
            self._is_promoted = True
        self.settings = self.invariants.facts.settings = settings

    # --- jobs and pods ------------------------------------------------------------------------------------

    async def submit(self, job: Job) -> Gang:
        gang = self.gangs[job.key] = self._at[job.kind, job.namespace, job.name] = Gang(job)
        await self.cluster.apply(manifest(job), job.namespace)
        return gang

    def behaviour(self, pod: Object) -> Behaviour:
        labels = pod["metadata"].get("labels", {})
        if REPAIR_OF in labels:
            return StepPod(self.step_ends, self._reboots)
        if VISITOR in labels:
            return Visitor(float(labels[VISITOR]))
        if SCAN_OF in labels:
            namespace = pod["metadata"]["namespace"]
            about = self.cluster.store.read(RECOVERIES, labels[SCAN_OF], namespace).body["spec"]["gang"]
            return Scan(self._at[Kind(about["kind"].lower()), namespace, about["name"]])
        return _Observed(self, self._at[_place_of(pod)])

    def pods(self, job: str = "llm") -> list[Object]:
        """Returns the job's pods in the order of their names."""
        gang = self.gangs[job]
        found = self.cluster.store.objects(PODS, gang.job.namespace)
        return [pod for pod in found if _names_job(pod) and self._at.get(_place_of(pod)) is gang]

    def crash_rank(self, rank: int, ended: Exit, job: str = "llm", *, says: str = "") -> None:
        """Ends the container of one rank with this exit. `rank` counts the running pods of the job in the
        order of their names. Does nothing if fewer pods run."""
        running = [pod for pod in self.pods(job) if pod["metadata"]["uid"] in self._running()]
        if rank < len(running):
            self.gangs[job].record_failure()
            self.gangs[job].blames_program |= says == OWNERS_ISSUE
            if says:
                self.says(running[rank], says)
            self.cluster.runtime.kill(running[rank]["metadata"]["uid"], ended)

    def hang_rank(self, rank: int, job: str = "llm") -> None:
        pods = self.pods(job)
        if rank < len(pods):
            self.gangs[job].record_failure()
            self.gangs[job].training.hanging.add(pods[rank]["metadata"]["uid"])

    def says(self, pod: Object, text: str) -> None:
        """Makes a container of that pod print a line that its tenant chose."""
        machine = self.machines[pod["spec"]["nodeName"]]
        for ref in machine.logs:
            if ref.uid == pod["metadata"]["uid"] and ref not in machine.ended:
                self.logged(ref, machine.name, text)

    def ranks_running(self, job: str) -> int:
        running = self._running()
        return sum(1 for pod in self.pods(job) if pod["metadata"]["uid"] in running)

    def _running(self) -> set[str]:
        return {uid for life in self.truth.lives.values() for uid in life.running}

    # --- questions ----------------------------------------------------------------------------------------

    def resource(self, job: str = "llm") -> Resource:
        return _RESOURCES[self.gangs[job].job.kind]

    def is_suspended(self, job: str = "llm") -> bool:
        about = self.gangs[job].job
        try:
            return is_suspended(self.cluster.store.read(self.resource(job), about.name, about.namespace).body)
        except ApiError:
            return False

    def cordoned(self) -> list[str]:
        nodes = self.cluster.store.objects(NODES)
        return [n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable")]

    def tainted(self) -> list[str]:
        """Returns the nodes that only Rekindle's taint closes, for example if a person cordoned and later
        uncordoned them."""
        nodes = self.cluster.store.objects(NODES)
        return [n["metadata"]["name"] for n in nodes if is_closed(n) and not n["spec"].get("unschedulable")]

    def recoveries(self, job: str = "llm") -> list[Recovery]:
        """Returns the job's recoveries, oldest first."""
        wanted = self.gangs[job].job
        found = [
            msgspec.convert(body, Recovery)
            for body in self.cluster.store.objects(RECOVERIES, wanted.namespace)
            if body["spec"]["gang"]["name"] == wanted.name
        ]
        of_kind = (r for r in found if r.spec.gang.kind.lower() == wanted.kind.value)
        return sorted(of_kind, key=lambda r: r.spec.number)

    def recovery(self, job: str = "llm") -> Recovery:
        """Returns the job's only recovery."""
        (only,) = self.recoveries(job)
        return only

    def recovery_is(self, phase: Phase, job: str = "llm") -> bool:
        """Whether that job's last recovery is in that phase."""
        found = self.recoveries(job)
        return bool(found) and found[-1].status.phase is phase

    def incidents(self) -> list[Incident]:
        return [msgspec.convert(o, Incident) for o in self.cluster.store.objects(INCIDENTS)]

    def log(self) -> bytes:
        """Returns every request that writes, and every version of every object. The result is equal for equal
        runs."""
        versions = [
            c.last.raw for h in map(self.cluster.store.history, KINDS) for c in h.since(h.dropped_until)
        ]
        return b"\n".join([msgspec.json.encode(self.cluster.store.audit), *versions])

    def writes(self) -> list[str]:
        """Returns the controller's writes so far, without Events, for example `patch pods/llm-0`."""
        return [
            f"{a.verb} {a.resource.plural}/{a.name}"
            for a in self.cluster.store.audit
            if a.user == CONTROLLER and a.changed and a.resource.plural != "events"
        ]

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the run."""
        return asyncio.get_running_loop().time()

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
        self.cluster.check()

    async def until(self, condition: Callable[[], bool], within_s: float, *, every_s: float = 0.5) -> None:
        """Waits for the condition. Raises AssertionError if the condition is not met in time."""
        ends_at = asyncio.get_running_loop().time() + within_s
        while not condition():
            self.cluster.check()
            assert asyncio.get_running_loop().time() < ends_at, f"not within {within_s:g} s: {self.tell()}"
            await asyncio.sleep(every_s)

    def tell(self) -> str:
        """Returns the state of the simulation, for the message of a failed test."""
        recoveries = [
            f"{r.metadata.name} {r.status.phase} attempt {r.status.attempt} {r.status.reason}: "
            f"{r.status.message}"
            for name in self.gangs
            for r in self.recoveries(name)
        ]
        steps = [f"{name} at step {gang.step}" for name, gang in self.gangs.items()]
        return "\n".join([str(self.clock.now()), *steps, *recoveries, *self.writes()[-20:]])


class _Observed:
    """A rank whose machine records its life and its log."""

    def __init__(self, sim: Simulation, gang: Gang) -> None:
        self._sim = sim
        self._gang = gang

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        meta = run.pod["metadata"]
        ref = PodRef(meta["namespace"], meta["name"], run.uid, run.name, run.restart)
        self._sim.truth.started(run, self._gang)

        def printed(text: str) -> None:
            self._sim.truth.said(run, text)
            self._sim.logged(ref, run.node, text)

        try:
            return await self._gang.run(run, printed)
        finally:
            self._sim.truth.ended(run)
            self._sim.log_ended(ref, run.node)


def _labels(pod: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = pod["metadata"].get("labels", {})
    return found


def _names_job(pod: Object) -> bool:
    return any(label in _labels(pod) for label in _NAMED_BY)


def _place_of(pod: Object) -> _Place:
    label = next(label for label in _NAMED_BY if label in _labels(pod))
    return _NAMED_BY[label], pod["metadata"]["namespace"], _labels(pod)[label]


@functools.cache
def _crds() -> list[dict[str, Any]]:
    """Returns the CRDs, computed once for a thousand seeds: they cost a tenth of one seed."""
    return crds.manifests()


@contextlib.asynccontextmanager
async def simulation(setup: Setup, clock: Clock) -> AsyncIterator[Simulation]:
    """Yields a simulation in which the nodes are ready, the agents read, and the controller has started."""
    shape = Shape(
        nodes=setup.nodes,
        gpus_per_node=setup.gpus_per_node,
        crds=_crds(),
        seed=setup.seed,
        kubelet=KubeletSettings(heartbeat_s=setup.heartbeat_s),
        labels=setup.labels(),
        clock_leads_s=setup.clock_leads_s,
        joining=frozenset(setup.joining),
    )
    before = random.getstate()
    random.seed(setup.seed)  # random draws of the production code (jitter) belong to the run
    truth = Truth(clock.now)
    truth.clock_leads_s = setup.clock_leads_s
    sim = Simulation(setup, clock, truth)
    try:
        async with virtual_cluster(clock.now, sim.behaviour, shape) as cluster:
            sim.on(cluster)
            for namespace in (NAMESPACE, OTHER_NAMESPACE, setup.settings.namespace):
                await cluster.client(PERSON).create(NAMESPACES, {"metadata": {"name": namespace}})
            for node in cluster.store.objects(NODES):
                sim._switched_on(node["metadata"]["name"])
            await sim.start_controller()
            try:
                yield sim
            finally:
                sim.kill_controller()
                for name in tuple(sim.agents):
                    sim.kill_agent(name)
                await asyncio.sleep(0)
    finally:
        random.setstate(before)
        gc.unfreeze()
