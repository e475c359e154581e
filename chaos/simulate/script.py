"""Random scripts of faults: a seed decides the cluster, the jobs, what goes wrong and when. Then everything
that can be mended is mended, and the run must come to rest.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from chaos.simulate.acts import ACTS
from chaos.simulate.jobs import Job, Kind, Storage
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.spares import not_given_back
from chaos.simulate.world import Setup, Simulation
from recover.modes import Mode
from recover.resources import NODES
from recover.settings import Budgets, Settings, Timing

__all__ = ["TIMING", "Moment", "gang_job", "mend", "run_seed", "script", "spread"]

TIMING = Timing(
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
    spares: tuple[str, ...] = ()
    """Nodes that people label so before the jobs begin. Such a run ends with all nodes back in service."""

    def __str__(self) -> str:
        jobs = ", ".join(
            f"{j.name} ({j.kind.value}, {j.ranks} ranks, {j.storage.value}, opted in: {j.opted_in})"
            for j in self.jobs
        )
        acts = ", ".join(f"{m.at_s:.1f} s {m.act}" for m in self.moments)
        spares = f", spares {' '.join(self.spares)}" if self.spares else ""
        return f"seed {self.seed}, {self.setup.settings.mode}{spares}: {jobs}; {acts}"


def script(seed: int) -> Script:
    draw = random.Random(seed)
    settings = Settings(
        mode=Mode.OBSERVE if draw.random() < 0.1 else Mode.RECOVER,
        timing=TIMING,
        budgets=Budgets(quarantined_percent_max=draw.choice([5.0, 20.0, 40.0])),
    )
    setup = Setup(nodes=8, settings=settings, seed=seed, heartbeat_s=20.0, tick_s=20.0)
    jobs = [gang_job("llm", draw, opted_in=True)]
    if draw.random() < 0.5:
        jobs.append(gang_job("vision", draw, opted_in=draw.random() < 0.5))
    names, weights = list(ACTS), [weight for weight, _ in ACTS.values()]
    acts = draw.choices(names, weights, k=draw.randint(2, 12))
    moments = list(spread(acts, draw))
    later = random.Random(f"{seed} again")  # what came later must not change what older seeds draw
    jobs = [_made_anew(job, later) if later.random() < 0.5 else job for job in jobs]
    if later.random() < 0.2:
        at_s = later.choice(moments).at_s + later.uniform(1.0, 30.0)
        moments = sorted(
            [*moments, Moment(round(at_s, 3), "person deletes a recovery")], key=lambda m: m.at_s
        )
    return _told_late(_with_spares(Script(setup, tuple(jobs), tuple(moments), seed)))


def _with_spares(played: Script) -> Script:
    """Half of the runs have one or two, and half of those people who change their mind about them."""
    draw = random.Random(f"{played.seed} spares")
    if draw.random() < 0.5:
        return played
    moments = list(played.moments)
    if draw.random() < 0.5:
        acts = draw.choices(["person takes a spare", "person keeps a spare", "person labels"], k=3)
        moments += [Moment(round(draw.uniform(60.0, moments[-1].at_s + 60.0), 3), act) for act in acts]
        moments.sort(key=lambda moment: moment.at_s)
    names = tuple(f"n{number}" for number in range(9 - draw.randint(1, 2), 9))
    return msgspec.structs.replace(played, spares=names, moments=tuple(moments))


def _told_late(played: Script) -> Script:
    """In a third of the runs the evidence on a culprit comes when its gang is stopped, or runs again."""
    draw = random.Random(f"{played.seed} told late")
    if draw.random() < 0.67:
        return played
    ends_s = played.moments[-1].at_s + 60.0
    times_s = (round(draw.uniform(60.0, ends_s), 3) for _ in range(draw.randint(1, 2)))
    moments = [*played.moments, *(Moment(at_s, "culprit is told of late") for at_s in times_s)]
    return msgspec.structs.replace(played, moments=tuple(sorted(moments, key=lambda m: m.at_s)))


def _made_anew(job: Job, draw: random.Random) -> Job:
    """One whose people consent to that, and that its framework may fail for good at its first failed rank."""
    return msgspec.structs.replace(
        job,
        annotations={**job.annotations, "rekindle.dev/on-terminal": "recreate"},
        policy=draw.choice(["OnFailure", "Never"]),
        backoff_limit=draw.choice([0, 6]),
    )


def spread(acts: list[str], draw: random.Random) -> Iterator[Moment]:
    """Every other fault comes while the last one is still being dealt with."""
    at_s = 60.0
    for act in acts:
        yield Moment(round(at_s, 3), act)
        at_s += draw.uniform(0.0, 3.0) if draw.random() < 0.5 else draw.uniform(3.0, 200.0)


def gang_job(name: str, draw: random.Random, *, opted_in: bool) -> Job:
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
        for node in played.spares:
            await sim.person.label_spare(node, is_spare=True)
        for job in played.jobs:
            await sim.submit(job)
        draw = random.Random(seed)
        for moment in played.moments:
            await sim.passes(moment.at_s - sim.elapsed_s)
            await ACTS[moment.act][1](sim, draw)
        await sim.passes(120.0)
        await mend(sim)
        await comes_to_rest(sim)
        if played.spares and played.setup.settings.mode is not Mode.OBSERVE:
            await _all_return(sim)

    try:
        return play(story, played.setup)
    except AssertionError as error:
        raise AssertionError(f"{played}\n{error}") from error


async def mend(sim: Simulation) -> None:
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


async def _all_return(sim: Simulation) -> None:
    """Every node is back in service, and so every spare is one again."""
    for node in sorted(sim.dead_nodes()):
        await sim.boot_node(node)
    await sim.passes(60.0)
    while (
        sim.cordoned() or sim.tainted()
    ):  # what shows again on a node that was let go takes it out once more
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
