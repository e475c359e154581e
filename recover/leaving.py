"""What is taken back before Rekindle is removed, and what keeps it from being removed now. Pure.

leave_command.py carries it out, while no controller works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from recover.actions import Patch
from recover.api import Incident, Recovery
from recover.decode import QUARANTINE, UNHEALTHY
from recover.keys import WRITTEN_BY_US
from recover.model import Gang, Node, Taint
from recover.repair.state import WORKING
from recover.resources import NODES
from recover.spare_nodes import SPARE, spare_of
from recover.taints import as_written
from recover.workloads.patches import environment_of

__all__ = ["Undo", "environments", "under_way", "undo"]


class Undo(msgspec.Struct, frozen=True):
    patch: Patch
    words: str
    """What it does, for people."""


def undo(node: Node) -> Undo | None:
    """Takes from the node all that is ours, in one patch; None where nothing is. A person's cordon, and a
    taint that a person has laid, stay or come back. A hold keeps us from a node, not our marks on it."""
    notes = sorted(name for name in node.annotations if name in WRITTEN_BY_US)
    labels = sorted(name for name in node.labels if name in WRITTEN_BY_US)
    taints = list(_taints_of_others(node))
    cordoned = node.quarantine is not None and node.quarantine.cordoned and node.unschedulable
    spec: dict[str, Any] = {"unschedulable": None} if cordoned else {}
    if taints != list(node.taints):
        spec["taints"] = as_written(taints)
    if not (notes or labels or spec):
        return None
    metadata = {"annotations": dict.fromkeys(notes), "labels": dict.fromkeys(labels)}
    patch = Patch(
        what="leave-node",
        resource=NODES,
        name=node.name,
        uid=node.uid,
        version=node.version,
        body={"metadata": {field: names for field, names in metadata.items() if names}, "spec": spec},
    )
    return Undo(patch, ", ".join(_words(node, taints, [*notes, *labels], cordoned=cordoned)))


def _taints_of_others(node: Node) -> Iterator[Taint]:
    """As they shall be. A spare's taint belongs to whoever laid it."""
    spare = spare_of(node)
    note = spare.kept if spare is not None else None
    for taint in node.taints:
        is_spare_of_ours = spare is not None and taint == spare.taint and note is not None and note.laid
        if taint.key != UNHEALTHY and not is_spare_of_ours:
            yield taint
    if spare is not None and spare.lent and note is not None and not note.laid:
        yield Taint(SPARE, "NoSchedule", note.value)


def _words(node: Node, taints: list[Taint], names: list[str], *, cordoned: bool) -> Iterator[str]:
    if cordoned:
        yield "uncordoned"
    yield from (f"taint {t.key}={t.value}:{t.effect} removed" for t in node.taints if t not in taints)
    yield from (f"taint {t.key}={t.value}:{t.effect} laid again" for t in taints if t not in node.taints)
    yield from (f"{name} removed" for name in names)
    if QUARANTINE in names and node.quarantine is None and node.unschedulable:
        yield "it stays cordoned: whose cordon that is cannot be read"


def under_way(
    gangs: Iterable[Gang], recoveries: Iterable[Recovery], incidents: Iterable[Incident]
) -> list[str]:
    """What nobody would finish, once no controller is there, one sentence each: jobs that a recovery has
    stopped and not started yet, and nodes on which a repair does something. What was given up is its people's
    already."""
    active = {(r.metadata.namespace, r.metadata.name) for r in recoveries if r.active}
    stopped = sorted(str(gang.ref) for gang in gangs if _is_stopped(gang, active))
    repaired = sorted(
        (incident.spec.node, incident.status.repair.phase)
        for incident in incidents
        if incident.status.repair is not None and incident.status.repair.phase in WORKING
    )
    return [
        *(f"{job} was stopped for a restart and is not started yet" for job in stopped),
        *(f"node {node} is being repaired, in phase {phase}" for node, phase in repaired),
    ]


def environments(recoveries: Iterable[Recovery]) -> list[tuple[str, str]]:
    """Namespace and name of the ConfigMaps that told resumed ranks where to begin, but those of active
    recoveries: their ranks may not have read them yet."""
    named: dict[tuple[str, str], bool] = {}
    for recovery in recoveries:
        place = (recovery.metadata.namespace, environment_of(recovery.spec.gang))
        named[place] = recovery.active or named.get(place, False)
    return sorted(place for place, active in named.items() if not active)


def _is_stopped(gang: Gang, active: Collection[tuple[str, str]]) -> bool:
    mark = gang.mark
    if not gang.suspended or mark is None or mark.did != "stopped":
        return False
    return (gang.ref.namespace, mark.recovery) in active
