"""Random scripts of faults: a seed decides the cluster, the jobs, what goes wrong and when. Then everything
that can be mended is mended, and the run must come to rest.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from chaos.cluster.containers import Exit
from chaos.simulate import lines
from chaos.simulate.jobs import Job, Kind, Storage
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Setup, Simulation
from recover.model import Mode
from recover.settings import Budgets, Settings, Timing

__all__ = ["Moment", "Script", "run_seed", "script"]

Act = Callable[[Simulation, random.Random], Awaitable[None]]

_TIMING = Timing(
    fence_wait_s=120.0, resume_deadline_s=120.0, verify_deadline_s=240.0, checkpoint_grace_s=120.0
)
"""Shorter than shipped, so that a run of an hour sees every deadline pass."""


class Moment(msgspec.Struct, frozen=True):
    at_s: float
    act: str


class Script(msgspec.Struct, frozen=True):
    setup: Setup
    jobs: tuple[Job, ...]
    moments: tuple[Moment, ...]
    seed: int

    def __str__(self) -> str:
        jobs = ", ".join(
            f"{j.name} ({j.kind.value}, {j.ranks} ranks, {j.storage.value}, opted in: {j.opted_in})"
            for j in self.jobs
        )
        acts = ", ".join(f"{m.at_s:.1f} s {m.act}" for m in self.moments)
        return f"seed {self.seed}, {self.setup.settings.mode}: {jobs}; {acts}"


def script(seed: int) -> Script:
    draw = random.Random(seed)
    settings = Settings(
        mode=Mode.OBSERVE if draw.random() < 0.1 else Mode.RECOVER,
        timing=_TIMING,
        budgets=Budgets(quarantined_percent_max=draw.choice([5.0, 20.0, 40.0])),
    )
    setup = Setup(nodes=8, settings=settings, seed=seed, heartbeat_s=20.0, tick_s=20.0)
    jobs = [_job("llm", draw, opted_in=True)]
    if draw.random() < 0.5:
        jobs.append(_job("vision", draw, opted_in=draw.random() < 0.5))
    names, weights = list(_ACTS), [weight for weight, _ in _ACTS.values()]
    acts = draw.choices(names, weights, k=draw.randint(2, 12))
    moments = list(_spread(acts, draw))
    later = random.Random(f"{seed} again")  # what came later must not change what older seeds draw
    jobs = [_made_anew(job, later) if later.random() < 0.5 else job for job in jobs]
    if later.random() < 0.2:
        at_s = later.choice(moments).at_s + later.uniform(1.0, 30.0)
        moments = sorted(
            [*moments, Moment(round(at_s, 3), "person deletes a recovery")], key=lambda m: m.at_s
        )
    return Script(setup, tuple(jobs), tuple(moments), seed)


def _made_anew(job: Job, draw: random.Random) -> Job:
    """One whose people consent to that, and that its framework may fail for good at its first failed rank."""
    return msgspec.structs.replace(
        job,
        annotations={**job.annotations, "rekindle.dev/on-terminal": "recreate"},
        policy=draw.choice(["OnFailure", "Never"]),
        backoff_limit=draw.choice([0, 6]),
    )


def _spread(acts: list[str], draw: random.Random) -> Iterator[Moment]:
    """Every other fault comes while the last one is still being dealt with."""
    at_s = 60.0
    for act in acts:
        yield Moment(round(at_s, 3), act)
        at_s += draw.uniform(0.0, 3.0) if draw.random() < 0.5 else draw.uniform(3.0, 200.0)


def _job(name: str, draw: random.Random, *, opted_in: bool) -> Job:
    return Job(
        name=name,
        kind=draw.choice(list(Kind)),
        ranks=draw.randint(2, 3),
        opted_in=opted_in,
        storage=draw.choice(list(Storage)),
        scanned=draw.random() < 0.5,
        step_s=10.0,
        annotations={"rekindle.dev/hang-timeout": "90s"},
    )


def run_seed(seed: int) -> Simulation:
    """Plays the seed's script. AssertionError with the script where anything is not as it must be."""
    played = script(seed)

    async def story(sim: Simulation) -> None:
        sim.client.disturbance.delay_s = 0.005
        for job in played.jobs:
            await sim.submit(job)
        draw = random.Random(seed)
        for moment in played.moments:
            await sim.passes(moment.at_s - sim.elapsed_s)
            await _ACTS[moment.act][1](sim, draw)
        await sim.passes(120.0)
        await _mend(sim)
        await comes_to_rest(sim)

    try:
        return play(story, played.setup)
    except AssertionError as error:
        raise AssertionError(f"{played}\n{error}") from error


async def _mend(sim: Simulation) -> None:
    """What people and machines put right by themselves. What broke for good stays broken."""
    troubles = sim.client.disturbance
    troubles.refuse_with.clear()
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


# --- what may go wrong ------------------------------------------------------------------------------------


def _any_node(sim: Simulation, draw: random.Random) -> str:
    return f"n{draw.randint(1, sim.setup.nodes)}"


def _any_job(sim: Simulation, draw: random.Random) -> str:
    return draw.choice(sorted(sim.gangs))


async def _hardware_line(sim: Simulation, draw: random.Random) -> None:
    fatal = [lines.FALLEN_OFF_THE_BUS, lines.DOUBLE_BIT_ERROR, lines.GSP_TIMEOUT, lines.NVLINK_ERROR]
    sim.kernel(_any_node(sim, draw), draw.choice([*fatal, lines.ROW_REMAPPED, lines.CONTAINED]))


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


_ACTS: dict[str, tuple[float, Act]] = {
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
}
"""Name -> (weight, act)."""
