"""Random scripts in mode repair: what acts.py lets go wrong, and beside it visitors, holds, modes, and what
people delete or switch off in the midst of a repair. A seed decides all of it; the run must come to rest with
every repair over, or saying what it waits for.
"""

from __future__ import annotations

import random

import msgspec

from chaos.simulate.acts import ACTS
from chaos.simulate.jobs import NAMESPACE
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.repairs import VISITOR, stuck
from chaos.simulate.script import TIMING, gang_job, mend, spread
from chaos.simulate.world import Setup, Simulation
from recover.api import Incident
from recover.modes import Mode
from recover.resources import INCIDENTS
from recover.settings import Budgets, Repairs, Settings

__all__ = ["run_repair_seed"]

_RULES = Repairs(
    percent_at_once_max=20.0,
    resets_per_hour_max=20,
    reboots_per_hour_max=20,
    cool_down_s=30.0,
    wait_for_others_s=900.0,
    not_ready_s=120.0,
    hands_off_s=20.0,
    reset_deadline_s=120.0,
    reboot_deadline_s=400.0,
    validate_deadline_s=300.0,
)
"""Shorter than shipped, so that a run of an hour sees every deadline pass."""
_NOT_HERE = (
    "person deletes a recovery",
    "person takes a spare",
    "person keeps a spare",
    "person labels",
)
"""Of the acts: these are about other things."""
_FAULTS = ("hardware line", "hardware line", "controller dies", "replies are lost")


def run_repair_seed(seed: int) -> Simulation:
    """AssertionError with the seed where anything is not as it must be."""
    draw = random.Random(f"{seed} repair")
    rules = msgspec.structs.replace(_RULES, nodes_at_once_max=draw.choice([1, 2]))
    settings = Settings(
        mode=Mode.REPAIR, timing=TIMING, budgets=Budgets(quarantined_percent_max=40.0), repair=rules
    )
    setup = Setup(nodes=10, settings=settings, seed=seed, heartbeat_s=20.0, tick_s=20.0)
    names = [name for name in ACTS if name not in _NOT_HERE]
    weights = [ACTS[name][0] for name in names]
    acts = [*draw.choices(_FAULTS, k=3), *draw.choices([*names, *_OWN], [*weights, *[2.0] * len(_OWN)], k=8)]
    draw.shuffle(acts)
    moments = list(spread(acts, draw))

    async def story(sim: Simulation) -> None:
        sim.client.disturbance.delay_s = 0.005
        await sim.submit(gang_job("llm", draw, opted_in=True))
        await sim.submit(gang_job("vision", draw, opted_in=draw.random() < 0.5))
        for moment in moments:
            await sim.passes(moment.at_s - sim.elapsed_s)
            act = _OWN.get(moment.act) or ACTS[moment.act][1]
            await act(sim, draw)
        await sim.passes(120.0)
        await mend(sim)
        await comes_to_rest(sim)
        left = stuck(sim.cluster.store.objects(INCIDENTS))
        assert not left, "\n".join(left)

    try:
        return play(story, setup)
    except AssertionError as error:
        told = ", ".join(f"{m.at_s:.1f} s {m.act}" for m in moments)
        raise AssertionError(f"repair seed {seed}: {told}\n{error}") from error


async def _visitor_comes(sim: Simulation, draw: random.Random) -> None:
    """With a GPU or without one, on a node of its own choice, for a while that may outlast a repair's
    patience."""
    gpus = draw.randint(0, 1)
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    stays_s = draw.choice([60, 600, 3600])
    name = f"visitor-{draw.randrange(10**9)}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {VISITOR: str(stays_s)}},
        "spec": {
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", **limits}],
        },
    }
    await sim.cluster.apply(pod, NAMESPACE)


async def _person_freezes_a_node(sim: Simulation, draw: random.Random) -> None:
    for node in sim.cordoned()[:1]:
        await sim.person.edit_node(node, {"metadata": {"annotations": {"rekindle.dev/hold": "true"}}})
        await sim.passes(draw.uniform(1.0, 200.0))
        await sim.person.edit_node(node, {"metadata": {"annotations": {"rekindle.dev/hold": None}}})


async def _mode_is_lowered(sim: Simulation, draw: random.Random) -> None:
    """By an upgrade of the release, and raised again by another one."""
    for mode in (Mode.RECOVER, Mode.REPAIR):
        sim.change_settings(msgspec.structs.replace(sim.settings, mode=mode))
        await sim.restart_controller(draw.uniform(0.0, 10.0))
        await sim.passes(draw.uniform(1.0, 120.0))


async def _person_deletes_a_job(sim: Simulation, draw: random.Random) -> None:
    """Of a step under way, once that is noted: before it would look as if it had never been made."""
    incident = await _repaired_one(sim, draw)
    repair = incident.status.repair if incident is not None else None
    if repair is not None and repair.step is not None and repair.step.asked_at is not None:
        await sim.person.delete_repair(repair.step.job, sim.settings.namespace)


async def _person_deletes_an_incident(sim: Simulation, draw: random.Random) -> None:
    incident = await _repaired_one(sim, draw)
    if incident is not None:
        await sim.person.delete_incident(incident.metadata.name)


async def _machine_boots_anew(sim: Simulation, draw: random.Random) -> None:
    """By itself, or by a person, whatever its repair is doing."""
    incident = await _repaired_one(sim, draw)
    node = incident.spec.node if incident is not None else ""
    if node in sim.machines:
        await sim.crash_node(node)
        await sim.passes(draw.uniform(1.0, 200.0))
        if node in sim.dead_nodes():
            await sim.boot_node(node)


async def _repaired_one(sim: Simulation, draw: random.Random) -> Incident | None:
    """One of the Incidents whose node is under repair, as soon as there is one; None where none comes."""
    for _ in range(40):
        found = [i for i in sim.incidents() if i.status.repair is not None and i.status.repair.active]
        if found:
            return draw.choice(found)
        await sim.passes(10.0)
    return None


_OWN = {
    "visitor comes": _visitor_comes,
    "person freezes a node": _person_freezes_a_node,
    "mode is lowered": _mode_is_lowered,
    "person deletes a job": _person_deletes_a_job,
    "person deletes an incident": _person_deletes_an_incident,
    "machine boots anew": _machine_boots_anew,
}
