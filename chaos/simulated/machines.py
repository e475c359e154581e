"""The machines of a simulation and what runs on them beside pods: kernels that print lines, and agents that
read these lines. Each machine has its own clock, and may have no agent."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta

import msgspec

from chaos.apiserver.kinds import Object
from chaos.cluster.virtual import Clock
from chaos.cluster.world import LocalCluster
from chaos.simulated.agents import Agent, Machine
from chaos.simulated.lines import Harm, KernelText, gpu_address
from chaos.simulated.setup import Setup
from chaos.simulated.truth import HardwareFault, Truth
from detectors.rules.fabric_ports import Port
from detectors.rules.facts import PodRef
from recover.k8s.kinds import NODES

__all__ = ["Machines"]

_ACTIVE = Port(
    device="mlx5_0",
    number=1,
    pci="0000:0d:00.0",
    state=4,
    phys_state=5,
    link_layer="InfiniBand",
    rate_gbps=400.0,
)
_WITHOUT_LINK = msgspec.structs.replace(_ACTIVE, state=1, phys_state=2)


class Machines:
    """A part of Simulation. `machines` contains the machines that are on; `agents` those whose agent runs."""

    cluster: LocalCluster

    def __init__(self, setup: Setup, clock: Clock, truth: Truth) -> None:
        self.setup = setup
        self.clock = clock
        self.truth = truth
        self.machines: dict[str, Machine] = {}
        self.agents: dict[str, tuple[Agent, asyncio.Task[None]]] = {}
        self.without_agent = set(setup.without_agent)
        """Nodes on which no agent is ever started, whichever boot it is."""
        self.step_ends = random.Random(f"{setup.seed} steps of repairs")
        self._booting: set[asyncio.Task[None]] = set()
        self._have_printed: set[str] = set()
        """Ids of the boots whose kernels have printed a line."""
        self._coming_up: set[str] = set()

    def now_on(self, node: str) -> datetime:
        """Returns the time by that machine's clock."""
        return self.clock.now() + timedelta(seconds=self.setup.clock_leads_s.get(node, 0.0))

    def start_agent(self, node: str) -> None:
        """Starts the agent of the node, unless the node is one without an agent."""
        if node in self.without_agent:
            return
        agent = Agent(
            self.machines[node],
            self.cluster.client(f"agent:{node}"),
            lambda: self.now_on(node),
            tick_s=self.setup.tick_s,
        )
        self.agents[node] = agent, asyncio.create_task(agent.run(), name=f"agent {node}")

    def kill_agent(self, node: str) -> None:
        if node in self.agents:
            self.agents.pop(node)[1].cancel()

    def kernel(self, node: str, line: KernelText, *, gpu: int = 0) -> None:
        """Makes the kernel of that node print a line. A machine that is off prints none."""
        machine = self.machines.get(node)
        if machine is None:
            return
        now, clock = self.clock.now(), self.now_on(node)
        if line.harm is not Harm.NONE:
            settles = not (line.is_final or machine.boot_id in self._have_printed or clock < now)
            fault = HardwareFault(now, machine.boot_id, line.harm, line.text, max(now, clock), settles)
            self.truth.broke(node, fault)
        self._have_printed.add(machine.boot_id)
        written = machine.append_kernel(line.text.format(pci=gpu_address(gpu)), self.now_on(node))
        if node in self.agents:
            self.agents[node][0].kernel_line(written)

    def plug_in(self) -> None:
        """Gives each machine that is on one InfiniBand port with a link."""
        for machine in self.machines.values():
            machine.ports = (_ACTIVE,)

    def lose_link(self, node: str) -> None:
        """Breaks the cable of that node's port. The kernel prints nothing."""
        machine, now = self.machines[node], self.clock.now()
        machine.ports = (_WITHOUT_LINK,)
        self.truth.broke(node, HardwareFault(now, machine.boot_id, Harm.FATAL, "a lost link", now))

    async def crash_node(self, node: str) -> None:
        """Switches the machine off without a shutdown."""
        self.kill_agent(node)
        self.machines.pop(node, None)
        await self.cluster.crash_node(node)

    async def boot_node(self, node: str) -> None:
        """Boots the machine. This may be its first boot."""
        self._coming_up.add(node)
        await self.cluster.boot_node(node)
        self._coming_up.discard(node)
        self._switched_on(node)

    async def _reboots(self, node: str) -> None:
        """Reboots the node in a task: a container of that same node requests the reboot, and ends with the
        node."""
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

    # --- what their containers print ----------------------------------------------------------------------

    def logged(self, ref: PodRef, node: str, text: str) -> None:
        now = self.now_on(node)
        self.machines[node].logs.setdefault(ref, []).append((text, now))
        if node in self.agents:
            self.agents[node][0].log_line(ref, text, now)

    def log_ended(self, ref: PodRef, node: str) -> None:
        now = self.now_on(node)
        machine = self.machines.get(node)
        if machine is None:
            return
        machine.ended[ref] = now
        if node in self.agents:
            self.agents[node][0].container_ended(ref, now)

    # --- questions ----------------------------------------------------------------------------------------

    def node(self, name: str) -> Object:
        return self.cluster.store.read(NODES, name).body

    def dead_nodes(self) -> set[str]:
        """Returns the Nodes of the API whose machines are off, and not coming up."""
        names = {node["metadata"]["name"] for node in self.cluster.store.objects(NODES)}
        return names - set(self.machines) - self._coming_up
