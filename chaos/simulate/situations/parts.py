"""The parts from which situations are built: a cluster with the necessary room, the limits, the time of the
beginning, and the nodes and ranks to strike."""

from __future__ import annotations

import math
import random

import msgspec

from chaos.simulate.acts import AnyAct
from chaos.simulate.acts.base import seconds
from chaos.simulate.script import Script
from chaos.simulated.jobs import DEVICES_ISSUE
from recover.policy.settings import Budgets

__all__ = [
    "acting",
    "begins_s",
    "last_words",
    "limited",
    "long_grace",
    "rank_of",
    "scanned",
    "set_up",
    "sized",
    "used_node",
]

_TRAINS_S = 60.0
"""Seconds after the beginning at which every gang that has room trains."""
_WIDE = Budgets(quarantined_percent_max=100.0, pool_percent_max=100.0, domain_nodes_max=100)
"""Limits that a small cluster does not reach."""


def acting(script: Script, *acts: AnyAct) -> Script:
    rounded = [msgspec.structs.replace(act, at_s=round(act.at_s, 1)) for act in acts]
    return msgspec.structs.replace(script, acts=tuple(rounded))


def begins_s(draw: random.Random) -> float:
    """Returns the time at which a situation begins. The gangs train by then."""
    return _TRAINS_S + seconds(draw, 0, 60)


def rank_of(script: Script, draw: random.Random) -> int:
    """Returns a rank of the first job, which has opted in."""
    return draw.randrange(script.jobs[0].ranks)


def used_node(script: Script, draw: random.Random) -> str:
    """Returns a node on which a rank runs, unless much room is free: gangs fill the nodes in their order."""
    gpus = sum(job.ranks for job in script.jobs)
    return draw.choice(script.setup.names[: math.ceil(gpus / script.setup.gpus_per_node)])


def last_words(draw: random.Random) -> str:
    return draw.choice(["", "", DEVICES_ISSUE])


def set_up(script: Script, **changes: object) -> Script:
    return msgspec.structs.replace(script, setup=msgspec.structs.replace(script.setup, **changes))


def sized(script: Script, *, free: int) -> Script:
    """Gives the cluster room for all ranks and `free` more nodes. Peculiarities of nodes that no longer exist
    are dropped."""
    gpus = sum(job.ranks for job in script.jobs)
    nodes = math.ceil(gpus / script.setup.gpus_per_node) + free
    sized = set_up(script, nodes=nodes, joining=())
    names, setup = set(sized.setup.names), script.setup
    return msgspec.structs.replace(
        set_up(
            sized,
            without_agent=tuple(name for name in setup.without_agent if name in names),
            clock_leads_s={name: lead_s for name, lead_s in setup.clock_leads_s.items() if name in names},
        ),
        spares=(),
    )


def limited(script: Script, draw: random.Random, *, wide: float = 0.5) -> Script:
    """Returns the script. With the probability `wide` its limits allow a quarantine of all the situation's
    nodes; otherwise the limits stay as drawn."""
    if draw.random() >= wide:
        return script
    return set_up(script, settings=msgspec.structs.replace(script.setup.settings, budgets=_WIDE))


def scanned(script: Script) -> Script:
    first, *others = script.jobs
    return msgspec.structs.replace(script, jobs=(msgspec.structs.replace(first, scanned=True), *others))


def long_grace(script: Script) -> Script:
    settings = script.setup.settings
    timing = msgspec.structs.replace(settings.timing, checkpoint_grace_s=500.0)
    return set_up(script, settings=msgspec.structs.replace(settings, timing=timing))
