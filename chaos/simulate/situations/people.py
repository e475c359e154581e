"""Situations in which people hold or release nodes and jobs that break, or start a job again, and in which a
webhook denies the stop of a job."""

from __future__ import annotations

import random

from chaos.simulate.acts import AnyAct
from chaos.simulate.acts.base import seconds
from chaos.simulate.acts.faults import (
    KernelLine,
    LineOfRank,
    RankCrash,
)
from chaos.simulate.acts.network import JobWebhook
from chaos.simulate.acts.people import Hold, NodeHold, StartAgain, Suspension, Uncordon
from chaos.simulate.script import Script
from chaos.simulate.situations.parts import (
    acting,
    begins_s,
    limited,
    rank_of,
    set_up,
    sized,
    used_node,
)
from chaos.simulated.lines import FATAL

__all__ = [
    "fault_on_held_node",
    "fault_while_held",
    "person_starts_again",
    "released_then_breaks_again",
    "stop_is_refused",
]


def fault_while_held(script: Script, draw: random.Random) -> Script:
    """A job that people hold breaks, or people hold the job during its recovery."""
    key, at_s = script.jobs[0].key, 200.0 + begins_s(draw)
    before_s = draw.choice(
        [seconds(draw, 100, 180), seconds(draw, 5, 30), -seconds(draw, 0.1, 2), -seconds(draw, 2, 40)]
    )
    acts: list[AnyAct] = [
        Hold(at_s - before_s, key, seconds(draw, 200, 400)),
        LineOfRank(at_s, key, rank_of(script, draw), draw.choice(FATAL)),
    ]
    if draw.random() < 0.3:
        acts[1] = RankCrash(at_s, key, rank_of(script, draw), "exit-1", "")
        acts.append(Suspension(at_s + seconds(draw, 20, 60), key, seconds(draw, 20, 60)))
    return acting(script, *acts)


def fault_on_held_node(script: Script, draw: random.Random) -> Script:
    """A node that people hold breaks, and they end the hold later."""
    node, at_s = used_node(script, draw), begins_s(draw)
    after_s = draw.choice([seconds(draw, 1, 15), seconds(draw, 100, 200)])
    held = NodeHold(at_s, node, after_s + seconds(draw, 60, 300))
    return acting(limited(script, draw), held, KernelLine(at_s + after_s, node, draw.choice(FATAL)))


def released_then_breaks_again(script: Script, draw: random.Random) -> Script:
    """A person releases a broken node, and the same fault or another one shows there again. The clock of the
    node may be wrong."""
    node, line, at_s = used_node(script, draw), draw.choice(FATAL), begins_s(draw)
    released_s = at_s + seconds(draw, 60, 300)
    acts: list[AnyAct] = [KernelLine(at_s, node, line), Uncordon(released_s)]
    if draw.random() < 0.8:
        again_s = released_s + draw.choice([seconds(draw, 5, 60), seconds(draw, 70, 400)])
        acts.append(KernelLine(again_s, node, draw.choice([line, line, *FATAL])))
    if draw.random() < 0.5:
        script = set_up(script, clock_leads_s={node: draw.choice([-7200.0, -600.0, -90.0, 5.0, 90.0, 600.0])})
    return acting(limited(sized(script, free=2), draw, wide=0.8), *acts)


def person_starts_again(script: Script, draw: random.Random) -> Script:
    """A person starts a job that the controller has just stopped, and the job breaks once more."""
    key, at_s = script.jobs[0].key, begins_s(draw)
    return acting(
        limited(sized(script, free=3), draw),
        LineOfRank(at_s, key, rank_of(script, draw), draw.choice(FATAL)),
        StartAgain(at_s, key, seconds(draw, 0, 2)),
        RankCrash(at_s + seconds(draw, 150, 400), key, rank_of(script, draw), "exit-1", ""),
    )


def stop_is_refused(script: Script, draw: random.Random) -> Script:
    """A webhook denies the stop of a gang. Meanwhile a person releases the gang's node, or holds the job."""
    node, at_s, key = used_node(script, draw), begins_s(draw), script.jobs[0].key
    refused_s = seconds(draw, 100, 250)
    meanwhile_s = at_s + seconds(draw, 20, 50)
    meanwhile: AnyAct = Uncordon(meanwhile_s)
    if draw.random() < 0.3:
        meanwhile = Hold(meanwhile_s, key, refused_s + 60)
    return acting(
        limited(sized(script, free=2), draw, wide=0.8),
        JobWebhook(at_s - 1.0, key, draw.choice([403, 500]), refused_s),
        KernelLine(at_s, node, draw.choice(FATAL)),
        meanwhile,
    )
