"""The ranks that stand for a stopped gang: what their agents tell of them outlives their pods. Pure.

Chosen while the pods are there (plan.py, phases/context.py), asked once they are gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from detectors.contract import PodProgress
from recover.api import Witness
from recover.diagnose.starts import ranks
from recover.model import Gang, World

__all__ = ["told", "witnesses"]

_WITNESSES_MAX = 8


def witnesses(world: World, gang: Gang, lost: Sequence[str], nodes: Sequence[str]) -> list[Witness]:
    """The `lost` ranks first (names, in the order of their loss), then those on the blamed `nodes`, then the
    others. Besides the first lost rank only those that an agent tells something of."""
    order = {name: index for index, name in reversed(list(enumerate(lost)))}
    found = sorted(
        (pod for pod in ranks(world, gang) if world.progress(pod) is not None or pod.name in lost[:1]),
        key=lambda pod: (order.get(pod.name, len(lost)), pod.node not in nodes, pod.name),
    )
    return [Witness(pod=p.name, uid=p.uid, node=p.node) for p in found[:_WITNESSES_MAX] if p.node]


def told(world: World, stood: Sequence[Witness]) -> list[PodProgress]:
    """What is known of each container of these ranks; of the rank that was lost first, first."""
    return [
        progress
        for witness in stood
        if (health := world.health.get(witness.node)) is not None
        for progress in health.status.pods
        if progress.uid == witness.uid
    ]
