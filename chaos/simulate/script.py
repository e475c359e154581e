"""A script of faults that can be written down: a cluster with its jobs, and acts at their times. Playing the
script checks the run. drawing.py makes a script from a seed, and shrinking.py makes a smaller script that
still fails."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from chaos.invariants.spares import not_given_back
from chaos.simulate.acts import AnyAct
from chaos.simulate.play import Story, comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import NODES
from recover.model.modes import Mode

__all__ = ["Script", "mend", "play_script", "story_of"]


class Script(msgspec.Struct, frozen=True):
    setup: Setup
    jobs: tuple[Job, ...]
    acts: tuple[AnyAct, ...]
    spares: tuple[str, ...] = ()
    """Nodes that people label as spares before the jobs begin. A run with spares ends with all nodes back in
    service."""

    def __str__(self) -> str:
        return "\n".join([*_of_setup(self.setup), *map(_of_job, self.jobs), *_of(self), *map(str, self.acts)])

    @property
    def kinds(self) -> Counter[str]:
        """The number of acts of each kind."""
        return Counter(type(act).__name__ for act in self.acts)


def play_script(script: Script) -> Simulation:
    """Plays the script. Raises AssertionError if any check fails."""
    return play(story_of(script), script.setup)


def story_of(script: Script) -> Story:
    """Returns the story of the script, for a simulation of its setup."""

    async def story(sim: Simulation) -> None:
        sim.client.disturbance.delay_s = 0.005
        for node in script.spares:
            await sim.person.label_spare(node, is_spare=True)
        for job in script.jobs:
            await sim.submit(job)
        async with asyncio.TaskGroup() as group:
            for act in script.acts:
                group.create_task(_at_its_time(sim, act))
        sim.cluster.check()
        await sim.passes(120.0)
        await mend(sim)
        await comes_to_rest(sim)
        if script.spares and sim.settings.mode is not Mode.OBSERVE:
            await _all_return(sim)

    return story


async def _at_its_time(sim: Simulation, act: AnyAct) -> None:
    """Plays the act at its time. The object that it acts on may be gone by then."""
    await asyncio.sleep(max(0.0, act.at_s - sim.elapsed_s))
    try:
        await act.play(sim)
    except ApiError as error:
        if not error.not_found:
            raise


async def mend(sim: Simulation) -> None:
    """Ends all troubles that people and machines end by themselves. Permanent damage stays."""
    troubles = sim.client.disturbance
    troubles.refuse_with.clear()
    troubles.standing.clear()
    troubles.lag_of_s.clear()
    troubles.lose_replies, troubles.watch_lag_s, troubles.delay_s = 0, 0.0, 0.005
    troubles.heal()
    sim.crashes.crash_in = None
    if not sim.controller_lives:
        await sim.start_controller()
    for node in sim.machines:
        if node not in sim.agents:
            sim.start_agent(node)
    for gang in sim.gangs.values():
        gang.silent = gang.crashes_at_start = False


async def _all_return(sim: Simulation) -> None:
    """Returns every node to service, and checks that every spare is free again."""
    for node in sorted(sim.dead_nodes()):
        await sim.boot_node(node)
    await sim.passes(60.0)
    await comes_to_rest(sim)
    # A fault that shows again on a released node puts the node into quarantine once more, and so may a limit
    # that ends.
    while sim.cordoned() or sim.tainted():
        for node in sim.tainted():
            await sim.person.untaint(node)
        for node in sim.cordoned():
            await sim.person.uncordon(node)
        await sim.passes(60.0)
        await comes_to_rest(sim)
    running = [r for name in sim.gangs for r in sim.recoveries(name) if r.active]
    avoided = {name for r in running for name in (r.spec.avoid_node, *r.status.avoid_nodes)}
    kept = not_given_back(sim.cluster.store.objects(NODES), avoided)
    assert not kept, f"nothing is out, and {', '.join(kept)} stand in for something: {sim.tell()}"


def _of_setup(setup: Setup) -> list[str]:
    settings, said = setup.settings, []
    said.append(f"{setup.nodes} nodes of {setup.gpus_per_node} GPU(s), mode {settings.mode}")
    if setup.per_rack or setup.per_pool:
        said.append(f"racks of {setup.per_rack or 'no'} nodes, pools of {setup.per_pool or 'no'} nodes")
    if setup.without_agent:
        said.append(f"without an agent: {' '.join(setup.without_agent)}")
    if setup.clock_leads_s:
        leads = (f"{name} {lead_s:+g} s" for name, lead_s in setup.clock_leads_s.items())
        said.append(f"clocks ahead: {', '.join(leads)}")
    if setup.joining:
        said.append(f"not there yet: {' '.join(setup.joining)}")
    return said


def _of_job(job: Job) -> str:
    odd = {
        name: value
        for name, value in msgspec.structs.asdict(job).items()
        if name not in ("name", "kind", "ranks", "storage") and value != getattr(_USUAL, name)
    }
    words = ", ".join(f"{name}={value}" for name, value in odd.items())
    return f"{job.kind.value} {job.name}: {job.ranks} ranks, {job.storage.value}" + (
        f", {words}" if words else ""
    )


_USUAL = Job()


def _of(script: Script) -> list[str]:
    return [f"spares: {' '.join(script.spares)}"] if script.spares else []
