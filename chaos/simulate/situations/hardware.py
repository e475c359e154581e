"""Situations in which nodes and devices break: two in a row, worse than before, too many at once, degraded,
and without room for the gang elsewhere."""

from __future__ import annotations

import random

import msgspec

from chaos.simulate.acts import AnyAct
from chaos.simulate.acts.base import seconds
from chaos.simulate.acts.faults import (
    KernelLine,
    LineOfRank,
    MassFault,
    NodeDeath,
    RankCrash,
    Reboot,
)
from chaos.simulate.acts.people import Uncordon
from chaos.simulate.acts.series import NodesInARow
from chaos.simulate.script import Script
from chaos.simulate.situations.parts import (
    acting,
    begins_s,
    last_words,
    limited,
    long_grace,
    rank_of,
    scanned,
    sized,
    used_node,
)
from chaos.simulated.lines import FATAL, WEAK

__all__ = [
    "brake_beside_training",
    "broken_spare",
    "comes_to_a_degraded_node",
    "degraded_at_a_checkpoint",
    "degraded_on_a_full_cluster",
    "node_returns_to_a_waiting_gang",
    "nodes_in_a_row",
    "same_node_breaks_worse",
    "second_node_breaks",
]

_DEGRADED = ("contained", "power-low")


def second_node_breaks(script: Script, draw: random.Random) -> Script:
    """While a gang is being recovered from one broken node, another node breaks: a node of the same gang, of
    another gang, or an idle node."""
    key, at_s = script.jobs[0].key, begins_s(draw)
    gap_s = draw.choice([0.5, seconds(draw, 1, 10), seconds(draw, 10, 60), seconds(draw, 60, 200)])
    first = LineOfRank(at_s, key, rank_of(script, draw), draw.choice(FATAL))
    second: AnyAct = KernelLine(at_s + gap_s, draw.choice(script.setup.names), draw.choice(FATAL))
    if draw.random() < 0.6:
        second = LineOfRank(
            at_s + gap_s, draw.choice(script.jobs).key, draw.randint(0, 1), draw.choice(FATAL)
        )
    return acting(limited(script, draw), first, second)


def nodes_in_a_row(script: Script, draw: random.Random) -> Script:
    """One node after the other breaks under a gang, and the cluster has enough other nodes."""
    ranks = tuple(rank_of(script, draw) for _ in range(draw.randint(3, 6)))
    series = NodesInARow(begins_s(draw), script.jobs[0].key, ranks, draw.choice(FATAL))
    return acting(limited(sized(script, free=len(ranks) + 1), draw, wide=0.8), series)


def same_node_breaks_worse(script: Script, draw: random.Random) -> Script:
    """A node shows two faults: the second when the gang has left the node, or is about to."""
    node, at_s = used_node(script, draw), begins_s(draw)
    gap_s = draw.choice([seconds(draw, 2, 15), seconds(draw, 15, 60), seconds(draw, 60, 200)])
    first, second = draw.choice([*FATAL, *_DEGRADED]), draw.choice(FATAL)
    return acting(
        limited(sized(script, free=2), draw),
        KernelLine(at_s, node, first),
        KernelLine(at_s + gap_s, node, second),
    )


def brake_beside_training(script: Script, draw: random.Random) -> Script:
    """A mass fault of idle nodes engages the brake. While the brake is engaged, a fault shows on a node where
    a gang trains."""
    script = sized(script, free=draw.randint(6, 8))
    idle, line, at_s = script.setup.names[-6:], draw.choice([*FATAL, *WEAK]), begins_s(draw)
    late_s = draw.choice([seconds(draw, 5, 60), seconds(draw, 100, 280)])
    return acting(
        limited(script, draw, wide=0.8),
        MassFault(at_s, tuple(idle), line, draw.choice([0.0, 2.0])),
        LineOfRank(at_s + late_s, script.jobs[0].key, rank_of(script, draw), draw.choice([line, *FATAL])),
    )


def degraded_on_a_full_cluster(script: Script, draw: random.Random) -> Script:
    """A node under a gang is degraded and no node is free. Later a rank crashes."""
    at_s = begins_s(draw)
    gap_s = draw.choice([seconds(draw, 2, 30), seconds(draw, 60, 300)])
    return acting(
        sized(script, free=0),
        LineOfRank(at_s, script.jobs[0].key, rank_of(script, draw), draw.choice(_DEGRADED)),
        RankCrash(at_s + gap_s, script.jobs[0].key, rank_of(script, draw), "exit-1", last_words(draw)),
    )


def comes_to_a_degraded_node(script: Script, draw: random.Random) -> Script:
    """The only free node has been degraded for long when a gang has to move there. Then a better node
    returns."""
    script, at_s = sized(script, free=1), begins_s(draw)
    degraded, broken = script.setup.names[-1], script.setup.names[0]
    moves_s = at_s + seconds(draw, 130, 260)
    return acting(
        limited(script, draw, wide=1.0),
        KernelLine(at_s, degraded, draw.choice(_DEGRADED)),
        KernelLine(moves_s, broken, draw.choice(FATAL)),
        Reboot(moves_s + seconds(draw, 20, 60), broken, seconds(draw, 5, 40)),
        Uncordon(moves_s + 110.0),
    )


def degraded_at_a_checkpoint(script: Script, draw: random.Random) -> Script:
    """A node under a gang that logs its checkpoints is degraded, and a better node is free. The grace is
    longer than the time between two checkpoints."""
    script = long_grace(sized(scanned(script), free=2))
    key, at_s = script.jobs[0].key, draw.choice([begins_s(draw), seconds(draw, 150, 350)])
    acts: list[AnyAct] = [LineOfRank(at_s, key, rank_of(script, draw), draw.choice(_DEGRADED))]
    if draw.random() < 0.5:
        again_s = at_s + draw.choice([seconds(draw, 10, 90), seconds(draw, 120, 300)])
        acts.append(LineOfRank(again_s, key, rank_of(script, draw), draw.choice(_DEGRADED)))
    return acting(limited(script, draw, wide=0.8), *acts)


def broken_spare(script: Script, draw: random.Random) -> Script:
    """There are two spares, of which one may be broken, and one or two nodes of a gang break."""
    script = sized(script, free=2)
    spares, at_s = tuple(script.setup.names[-2:]), begins_s(draw)
    acts: list[AnyAct] = [LineOfRank(at_s + 100.0, script.jobs[0].key, 0, draw.choice(FATAL))]
    if draw.random() < 0.6:
        acts.append(KernelLine(at_s + seconds(draw, 0, 95), draw.choice(spares), draw.choice(FATAL)))
    if draw.random() < 0.6:
        gap_s = draw.choice([0.0, seconds(draw, 1, 60)])
        acts.append(LineOfRank(at_s + 100.0 + gap_s, script.jobs[0].key, 1, draw.choice(FATAL)))
    return msgspec.structs.replace(acting(limited(script, draw, wide=0.8), *acts), spares=spares)


def node_returns_to_a_waiting_gang(script: Script, draw: random.Random) -> Script:
    """A gang leaves a broken node, another node dies before all ranks run again, and the first node returns
    sound."""
    script, at_s = sized(script, free=1), begins_s(draw)
    broken, dead = script.setup.names[0], script.setup.names[1]
    returns_s = at_s + seconds(draw, 60, 200)
    return acting(
        limited(script, draw, wide=1.0),
        KernelLine(at_s, broken, draw.choice(FATAL)),
        NodeDeath(at_s + seconds(draw, 0.5, 25), dead),
        Reboot(returns_s, broken, seconds(draw, 5, 40)),
        Uncordon(returns_s + 90.0),
    )
