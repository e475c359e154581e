"""The simulation put together: cluster, agents, gangs, the production controller, and the faults.

Everything runs on one virtual clock and draws from one seed, so the same calls give the same run. Stories
and scripts act by the methods here; invariants.py looks at every write.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncIterator, Callable

import msgspec

from chaos.cluster.containers import ContainerRun, Exit
from chaos.cluster.kinds import KINDS, Object
from chaos.cluster.podworker import KubeletSettings
from chaos.cluster.virtual import Clock
from chaos.cluster.virtual_runtime import Behaviour
from chaos.cluster.world import LocalCluster, Shape, virtual_cluster
from chaos.simulate.agents import Agent, Machine
from chaos.simulate.crashing import CrashPoints
from chaos.simulate.invariants import Invariants
from chaos.simulate.jobs import NAMESPACE, Gang, Job, Kind, Scan, manifest
from chaos.simulate.lines import KernelText, gpu_address
from chaos.simulate.people import PERSON, Person
from chaos.simulate.reading import is_closed
from chaos.simulate.repairs import REPAIR_OF, VISITOR, StepPod, Visitor
from chaos.simulate.truth import HardwareFault, Truth
from detectors.facts import PodRef
from detectors.kubeapi import Resource
from recover import crds
from recover.api import Incident, Phase, Recovery
from recover.app import Controller
from recover.decode import SCAN_OF
from recover.modes import Mode
from recover.resources import INCIDENTS, JOBS, NAMESPACES, NODES, PODS, PYTORCHJOBS, RECOVERIES
from recover.settings import Settings
from recover.telemetry import Metrics

__all__ = ["CONTROLLER", "Setup", "Simulation", "simulation"]

CONTROLLER = "rekindle-controller"
_RESOURCES = {Kind.PYTORCHJOB: PYTORCHJOBS, Kind.JOB: JOBS}
_JOB_NAMES = ("training.kubeflow.org/job-name", "batch.kubernetes.io/job-name")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int = 6
    gpus_per_node: int = 1
    settings: Settings = Settings(mode=Mode.RECOVER)
    seed: int = 0
    heartbeat_s: float = 20.0
    tick_s: float = 10.0
    """How often an agent looks for stalls."""


class Simulation:
    def __init__(self, setup: Setup, clock: Clock, truth: Truth) -> None:
        self.setup = setup
        self.settings = setup.settings
        self.clock = clock
        self.truth = truth
        self.gangs: dict[str, Gang] = {}
        self.machines: dict[str, Machine] = {}
        self.agents: dict[str, tuple[Agent, asyncio.Task[None]]] = {}
        self.metrics = Metrics()
        self.person = Person(self)
        self.step_ends = random.Random(f"{setup.seed} steps of repairs")
        self._booting: set[asyncio.Task[None]] = set()
        self._controller: asyncio.Task[None] | None = None

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
        """A new process: it knows only what the API holds."""
        assert not self.controller_lives
        leading = asyncio.Event()
        leading.set()  # it is alone here, and a lease would be thousands of writes
        controller = Controller(self.crashes, self.settings, self.metrics, self.clock, leading)
        self._controller = asyncio.create_task(controller.run(), name="controller")

    def kill_controller(self) -> None:
        """At once and without a farewell. What it has sent is applied, what it has not is lost."""
        if self._controller is not None:
            self._controller.cancel()
        self._controller = None
        gc.enable()

    def _die_and_restart(self) -> None:
        """Called by the crash points. A Deployment starts the next one."""
        self.kill_controller()
        if self.crashes.down_s is not None:
            self._restart = asyncio.create_task(self.restart_controller(self.crashes.down_s))

    async def restart_controller(self, down_s: float = 0.0) -> None:
        self.kill_controller()
        await asyncio.sleep(down_s)
        if not self.controller_lives:
            await self.start_controller()

    def change_settings(self, settings: Settings) -> None:
        """What the next controller is started with."""
        self.settings = self.invariants.settings = settings

    # --- machines and agents ------------------------------------------------------------------------------

    def start_agent(self, node: str) -> None:
        agent = Agent(
            self.machines[node],
            self.cluster.client(f"agent:{node}"),
            self.clock.now,
            tick_s=self.setup.tick_s,
        )
        self.agents[node] = agent, asyncio.create_task(agent.run(), name=f"agent {node}")

    def kill_agent(self, node: str) -> None:
        if node in self.agents:
            self.agents.pop(node)[1].cancel()

    def kernel(self, node: str, line: KernelText, *, gpu: int = 0) -> None:
        """The kernel of that node prints a line. A machine that is off prints none."""
        machine = self.machines.get(node)
        if machine is None:
            return
        if line.hardware:
            self.truth.broke(node, HardwareFault(self.clock.now(), machine.boot_id, line.cordons))
        written = machine.append_kernel(line.text.format(pci=gpu_address(gpu)), self.clock.now())
        if node in self.agents:
            self.agents[node][0].kernel_line(written)

    async def crash_node(self, node: str) -> None:
        """Power off."""
        self.kill_agent(node)
        self.machines.pop(node, None)
        await self.cluster.crash_node(node)

    async def boot_node(self, node: str) -> None:
        """Also takes in the first boot of all."""
        await self.cluster.boot_node(node)
        self._switched_on(node)

    async def _reboots(self, node: str) -> None:
        """Asked for by a container of that very node, which ends with it."""
        task = asyncio.create_task(self._boot_again(node), name=f"reboot {node}")
        self._booting.add(task)
        task.add_done_callback(self._booting.discard)

    async def _boot_again(self, node: str) -> None:
        await asyncio.sleep(2.0)
        if node in self.machines:
            await self.crash_node(node)
        await asyncio.sleep(self.step_ends.uniform(30.0, 300.0))
        if node in self.dead_nodes():
            await self.boot_node(node)

    def _switched_on(self, node: str) -> None:
        boot_id = self.node(node)["status"]["nodeInfo"]["bootID"]
        self.machines[node] = Machine(node, boot_id)
        self.start_agent(node)

    # --- jobs and pods ------------------------------------------------------------------------------------

    async def submit(self, job: Job) -> Gang:
        gang = self.gangs[job.name] = Gang(job)
        await self.cluster.apply(manifest(job), NAMESPACE)
        return gang

    def behaviour(self, pod: Object) -> Behaviour:
        labels = pod["metadata"].get("labels", {})
        if REPAIR_OF in labels:
            return StepPod(self.step_ends, self._reboots)
        if VISITOR in labels:
            return Visitor(float(labels[VISITOR]))
        if SCAN_OF in labels:
            recovery = self.cluster.store.read(RECOVERIES, labels[SCAN_OF], NAMESPACE).body
            return Scan(self.gangs[recovery["spec"]["gang"]["name"]])
        name = next(labels[key] for key in _JOB_NAMES if key in labels)
        return _Observed(self, self.gangs[name])

    def pods(self, job: str = "llm") -> list[Object]:
        """The job's pods, by name."""
        found = self.cluster.store.objects(PODS, NAMESPACE)
        return [p for p in found if job in (p["metadata"].get("labels", {}).get(key) for key in _JOB_NAMES)]

    def crash_rank(self, rank: int, ended: Exit, job: str = "llm", *, says: str = "") -> None:
        """That rank's container ends so. Nothing happens where it does not run."""
        running = [pod for pod in self.pods(job) if pod["metadata"]["uid"] in self._running()]
        if rank < len(running):
            if says:
                self.says(running[rank], says)
            self.cluster.runtime.kill(running[rank]["metadata"]["uid"], ended)

    def hang_rank(self, rank: int, job: str = "llm") -> None:
        pods = self.pods(job)
        if rank < len(pods):
            self.gangs[job].training.hang(pods[rank]["metadata"]["uid"])

    def says(self, pod: Object, text: str) -> None:
        """A container of that pod prints a line of the tenant's choosing."""
        machine = self.machines[pod["spec"]["nodeName"]]
        for ref in machine.logs:
            if ref.uid == pod["metadata"]["uid"] and ref not in machine.ended:
                self.logged(ref, machine.name, text)

    def _running(self) -> set[str]:
        return {uid for uids in self.truth.running.values() for uid in uids}

    def logged(self, ref: PodRef, node: str, text: str) -> None:
        now = self.clock.now()
        self.machines[node].logs.setdefault(ref, []).append((text, now))
        if node in self.agents:
            self.agents[node][0].log_line(ref, text, now)

    def log_ended(self, ref: PodRef, node: str) -> None:
        now = self.clock.now()
        machine = self.machines.get(node)
        if machine is None:
            return
        machine.ended[ref] = now
        if node in self.agents:
            self.agents[node][0].container_ended(ref, now)

    # --- questions ----------------------------------------------------------------------------------------

    def resource(self, job: str = "llm") -> Resource:
        return _RESOURCES[self.gangs[job].job.kind]

    def node(self, name: str) -> Object:
        return self.cluster.store.read(NODES, name).body

    def dead_nodes(self) -> set[str]:
        names = {node["metadata"]["name"] for node in self.cluster.store.objects(NODES)}
        return names - set(self.machines)

    def cordoned(self) -> list[str]:
        nodes = self.cluster.store.objects(NODES)
        return [n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable")]

    def tainted(self) -> list[str]:
        """Those that only our taint closes, as where a person had cordoned them before and let them go."""
        nodes = self.cluster.store.objects(NODES)
        return [n["metadata"]["name"] for n in nodes if is_closed(n) and not n["spec"].get("unschedulable")]

    def recoveries(self, job: str = "llm") -> list[Recovery]:
        """Oldest first."""
        found = [msgspec.convert(o, Recovery) for o in self.cluster.store.objects(RECOVERIES, NAMESPACE)]
        return sorted((r for r in found if r.spec.gang.name == job), key=lambda r: r.spec.number)

    def recovery(self, job: str = "llm") -> Recovery:
        """The only one."""
        (only,) = self.recoveries(job)
        return only

    def recovery_is(self, phase: Phase, job: str = "llm") -> bool:
        """Whether that job's last recovery is in that phase."""
        found = self.recoveries(job)
        return bool(found) and found[-1].status.phase is phase

    def incidents(self) -> list[Incident]:
        return [msgspec.convert(o, Incident) for o in self.cluster.store.objects(INCIDENTS)]

    def log(self) -> bytes:
        """Every request that writes, and every version of every object: equal for equal runs."""
        versions = [c.last.raw for h in map(self.cluster.store.history, KINDS) for c in h.since(h.oldest)]
        return b"\n".join([msgspec.json.encode(self.cluster.store.audit), *versions])

    def writes(self) -> list[str]:
        """What the controller has changed so far: `patch pods/llm-0`, Events aside."""
        return [
            f"{a.verb} {a.resource.plural}/{a.name}"
            for a in self.cluster.store.audit
            if a.user == CONTROLLER and a.changed and a.resource.plural != "events"
        ]

    @property
    def elapsed_s(self) -> float:
        """Since the start of the run."""
        return asyncio.get_running_loop().time()

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
        self.cluster.check()

    async def until(self, condition: Callable[[], bool], within_s: float, *, every_s: float = 0.5) -> None:
        """Waits for the condition. AssertionError if it does not come to hold in time."""
        ends_at = asyncio.get_running_loop().time() + within_s
        while not condition():
            self.cluster.check()
            assert asyncio.get_running_loop().time() < ends_at, f"not within {within_s:g} s: {self.tell()}"
            await asyncio.sleep(every_s)

    def tell(self) -> str:
        """Where everything stands, for a failed test."""
        recoveries = [
            f"{r.metadata.name} {r.status.phase} attempt {r.status.attempt} {r.status.reason}: "
            f"{r.status.message}"
            for name in self.gangs
            for r in self.recoveries(name)
        ]
        steps = [f"{name} at step {gang.step}" for name, gang in self.gangs.items()]
        return "\n".join([str(self.clock.now()), *steps, *recoveries, *self.writes()[-20:]])


class _Observed:
    """A rank whose life and log its machine sees."""

    def __init__(self, sim: Simulation, gang: Gang) -> None:
        self._sim = sim
        self._gang = gang

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        meta = run.pod["metadata"]
        ref = PodRef(meta["namespace"], meta["name"], run.uid, run.name, run.restart)
        self._sim.truth.started(run)
        try:
            return await self._gang.run(run, lambda text: self._sim.logged(ref, run.node, text))
        finally:
            self._sim.truth.ended(run)
            self._sim.log_ended(ref, run.node)


@contextlib.asynccontextmanager
async def simulation(setup: Setup, clock: Clock) -> AsyncIterator[Simulation]:
    """Everything is up: nodes ready, agents reading, the controller started."""
    shape = Shape(
        nodes=setup.nodes,
        gpus_per_node=setup.gpus_per_node,
        crds=crds.manifests(),
        seed=setup.seed,
        kubelet=KubeletSettings(heartbeat_s=setup.heartbeat_s),
    )
    before = random.getstate()
    random.seed(setup.seed)  # what the production code draws (jitter) belongs to the run
    sim = Simulation(setup, clock, Truth())
    try:
        async with virtual_cluster(clock.now, sim.behaviour, shape) as cluster:
            sim.on(cluster)
            for namespace in (NAMESPACE, setup.settings.namespace):
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
