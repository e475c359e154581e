"""Chooses the witnesses of a stopped gang: ranks whose agents' reports outlive the pods. Pure.

The witnesses are chosen while the pods exist (triage/restarts.py, recovery/context.py), and read once the
pods are gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from detectors.wire.fitting import fitted, limit
from detectors.wire.training import PodProgress
from recover.api import RecoverySpec, Witness
from recover.diagnose.starts import ranks
from recover.model import Gang, Pod, World

__all__ = ["reports_of", "witnesses"]

_WITNESSES_MAX = limit(RecoverySpec, "witnesses")


def witnesses(world: World, gang: Gang, lost: Sequence[str], nodes: Sequence[str]) -> list[Witness]:
    """Returns the witnesses: the `lost` ranks first (names, in the order of their loss), then ranks on the
    blamed `nodes`, then the others. Apart from the first lost rank, only ranks about which an agent reports
    something can be witnesses. If an agent reports checkpoints of any rank, one such rank is among the
    witnesses."""
    order = {name: index for index, name in reversed(list(enumerate(lost)))}
    pods = ranks(world, gang)
    tells = {pod.uid for pod in pods if world.containers(pod)}
    found = sorted(
        (pod for pod in pods if pod.uid in tells or pod.name in lost[:1] or _saves(world, pod)),
        key=lambda pod: (
            order.get(pod.name, len(lost)),
            pod.node not in nodes,
            pod.uid not in tells,
            pod.name,
        ),
    )
    kept, saving = found[:_WITNESSES_MAX], [pod for pod in found if _saves(world, pod)]
    if saving and all(pod not in kept for pod in saving):
        kept[-1] = saving[0]
    return [fitted(Witness, pod=p.name, uid=p.uid, node=p.node) for p in kept if p.node]


def _saves(world: World, pod: Pod) -> bool:
    return any(told.last_save is not None for told in world.containers(pod))


def reports_of(world: World, stood: Sequence[Witness]) -> list[PodProgress]:
    """Returns the reports about each container of these ranks. The rank that was lost first comes first."""
    return [
        progress
        for witness in stood
        if (health := world.health.get(witness.node)) is not None
        for progress in health.status.pods
        if progress.uid == witness.uid
    ]
