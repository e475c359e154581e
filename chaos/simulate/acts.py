"""What may go wrong in a random script, each act by its name: faults, troubles of the network, people."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from chaos.cluster.containers import Exit
from chaos.simulate import lines
from chaos.simulate.world import Simulation

__all__ = ["ACTS"]

Act = Callable[[Simulation, random.Random], Awaitable[None]]


def _any_node(sim: Simulation, draw: random.Random) -> str:
    return f"n{draw.randint(1, sim.setup.nodes)}"


def _any_job(sim: Simulation, draw: random.Random) -> str:
    return draw.choice(sorted(sim.gangs))


_FATAL = (lines.FALLEN_OFF_THE_BUS, lines.DOUBLE_BIT_ERROR, lines.GSP_TIMEOUT, lines.NVLINK_ERROR)


async def _hardware_line(sim: Simulation, draw: random.Random) -> None:
    sim.kernel(_any_node(sim, draw), draw.choice([*_FATAL, lines.ROW_REMAPPED, lines.CONTAINED]))


async def _culprit_is_told_of_late(sim: Simulation, draw: random.Random) -> None:
    """A node breaks while its agent is away, and the gang fails by the rank on another node."""
    job = _any_job(sim, draw)
    nodes = [pod["spec"].get("nodeName", "") for pod in sim.pods(job)]
    if len(nodes) < 2 or nodes[0] not in sim.machines:
        return
    sim.kill_agent(nodes[0])
    sim.kernel(nodes[0], draw.choice(_FATAL))
    sim.crash_rank(1, draw.choice([Exit(1), Exit.by_signal(6)]), job)
    await asyncio.sleep(draw.choice([1.0, 10.0, 40.0]))
    if nodes[0] in sim.machines and nodes[0] not in sim.agents:
        sim.start_agent(nodes[0])


_LAST_WORDS = (
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
    "CUDA error: device kernel image is invalid",
)
"""Of the ranks of a job: no known issue, one that another node may mend, one that only its owner can."""


async def _tenant_lines(sim: Simulation, draw: random.Random) -> None:
    """A crash as CUDA programs have it: one rank dies, every node of the cluster logs something."""
    for node in tuple(sim.machines):
        sim.kernel(node, draw.choice([lines.MMU_FAULT, lines.PREEMPTIVE_REMOVAL]))
    rank = draw.randint(0, 2)
    sim.crash_rank(rank, Exit(1), _any_job(sim, draw), says=_LAST_WORDS[rank])


async def _crash(sim: Simulation, draw: random.Random) -> None:
    ended = draw.choice([Exit(1), Exit.out_of_memory(), Exit.by_signal(11)])
    sim.crash_rank(draw.randint(0, 2), ended, _any_job(sim, draw))


async def _hang(sim: Simulation, draw: random.Random) -> None:
    sim.hang_rank(draw.randint(0, 2), _any_job(sim, draw))


async def _node_dies(sim: Simulation, draw: random.Random) -> None:
    node = _any_node(sim, draw)
    if node in sim.machines:
        await sim.crash_node(node)


async def _nodes_boot(sim: Simulation, draw: random.Random) -> None:
    for node in sorted(sim.dead_nodes()):
        await sim.boot_node(node)


async def _agent_restarts(sim: Simulation, draw: random.Random) -> None:
    node = _any_node(sim, draw)
    sim.kill_agent(node)
    await asyncio.sleep(draw.uniform(0.0, 30.0))
    if node in sim.machines and node not in sim.agents:
        sim.start_agent(node)


async def _controller_dies(sim: Simulation, draw: random.Random) -> None:
    """At one of the next writes, before it is sent or after it was applied."""
    sim.crashes.crash_in = draw.randint(1, 8)
    sim.crashes.down_s = draw.uniform(0.0, 60.0)


async def _replies_are_lost(sim: Simulation, draw: random.Random) -> None:
    sim.client.disturbance.lose_replies = draw.randint(1, 4)


async def _watches_drop(sim: Simulation, draw: random.Random) -> None:
    sim.client.disturbance.drop_watches()


async def _server_refuses(sim: Simulation, draw: random.Random) -> None:
    sim.client.disturbance.refuse_with.extend(draw.choices([409, 429, 500, 503], k=draw.randint(1, 8)))


async def _views_are_old(sim: Simulation, draw: random.Random) -> None:
    sim.client.disturbance.watch_lag_s = draw.choice([0.0, 0.5, 3.0])


async def _server_is_slow(sim: Simulation, draw: random.Random) -> None:
    sim.client.disturbance.delay_s = draw.choice([0.005, 0.5, 3.0])


async def _agents_are_cut_off(sim: Simulation, draw: random.Random) -> None:
    for node in draw.sample(sorted(sim.machines), k=min(3, len(sim.machines))):
        troubles = sim.cluster.client(f"agent:{node}").disturbance
        troubles.lose_replies = draw.randint(1, 3)
        troubles.refuse_with.extend(draw.choices([429, 500], k=draw.randint(0, 3)))


async def _partition(sim: Simulation, draw: random.Random) -> None:
    sim.client.disturbance.partition()
    await asyncio.sleep(draw.uniform(1.0, 60.0))
    sim.client.disturbance.heal()


async def _person_uncordons(sim: Simulation, draw: random.Random) -> None:
    for node in sim.cordoned():
        await sim.person.uncordon(node)


async def _person_cordons(sim: Simulation, draw: random.Random) -> None:
    await sim.person.cordon(_any_node(sim, draw))


async def _person_suspends(sim: Simulation, draw: random.Random) -> None:
    job = _any_job(sim, draw)
    await sim.person.suspend(job, True)
    await asyncio.sleep(draw.uniform(1.0, 60.0))
    await sim.person.suspend(job, False)


async def _person_holds(sim: Simulation, draw: random.Random) -> None:
    job = _any_job(sim, draw)
    await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/hold": "true"}}}, job)
    await asyncio.sleep(draw.uniform(1.0, 60.0))
    await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/hold": None}}}, job)


async def _person_deletes(sim: Simulation, draw: random.Random) -> None:
    await sim.person.delete_job(_any_job(sim, draw))


async def _person_disagrees(sim: Simulation, draw: random.Random) -> None:
    """And lets the job run again, if it was stopped."""
    job = _any_job(sim, draw)
    await sim.person.delete_recoveries(job)
    await asyncio.sleep(draw.uniform(0.0, 30.0))
    await sim.person.suspend(job, False)


async def _person_fences(sim: Simulation, draw: random.Random) -> None:
    for node in sorted(sim.dead_nodes()):
        await sim.person.out_of_service(node)


async def _person_removes(sim: Simulation, draw: random.Random) -> None:
    """The Node objects of machines that are off."""
    for node in sorted(sim.dead_nodes()):
        await sim.person.remove_node(node)


async def _program_breaks(sim: Simulation, draw: random.Random) -> None:
    """From its next start on the gang crashes, or prints no step."""
    gang = sim.gangs[_any_job(sim, draw)]
    gang.silent, gang.crashes_at_start = draw.choice([(True, False), (False, True)])


async def _person_takes_a_spare(sim: Simulation, draw: random.Random) -> None:
    await sim.person.taint_spare(_any_node(sim, draw), is_spare=False)


async def _person_keeps_a_spare(sim: Simulation, draw: random.Random) -> None:
    await sim.person.taint_spare(_any_node(sim, draw), is_spare=True)


async def _person_labels(sim: Simulation, draw: random.Random) -> None:
    """Or takes the label off."""
    await sim.person.label_spare(_any_node(sim, draw), is_spare=draw.random() < 0.5)


ACTS: dict[str, tuple[float, Act]] = {
    "hardware line": (4, _hardware_line),
    "tenant's lines": (2, _tenant_lines),
    "rank crashes": (3, _crash),
    "rank hangs": (1, _hang),
    "node dies": (2, _node_dies),
    "nodes boot": (1, _nodes_boot),
    "agent restarts": (1, _agent_restarts),
    "controller dies": (4, _controller_dies),
    "replies are lost": (2, _replies_are_lost),
    "watches drop": (1, _watches_drop),
    "server refuses": (1, _server_refuses),
    "views are old": (1, _views_are_old),
    "server is slow": (1, _server_is_slow),
    "agents are cut off": (1, _agents_are_cut_off),
    "partition": (1, _partition),
    "person uncordons": (1, _person_uncordons),
    "person cordons": (0.5, _person_cordons),
    "person suspends": (0.5, _person_suspends),
    "person holds": (0.5, _person_holds),
    "person deletes": (0.3, _person_deletes),
    "person fences": (1, _person_fences),
    "person removes": (0.5, _person_removes),
    "program breaks": (0.5, _program_breaks),
    "person deletes a recovery": (0, _person_disagrees),
    "person takes a spare": (0, _person_takes_a_spare),
    "person keeps a spare": (0, _person_keeps_a_spare),
    "person labels": (0, _person_labels),
    "culprit is told of late": (0, _culprit_is_told_of_late),
}
"""Name -> (weight, act). A new one comes last and weighs nothing, or older seeds would draw other scripts:
script.py draws it apart."""
