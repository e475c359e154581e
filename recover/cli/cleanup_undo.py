"""Decides what `rekindle cleanup` undoes before Rekindle is removed, and what prevents the removal now. Pure.

cleanup_command.py makes the changes, while no controller works.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from recover.api import Incident, Phase, Recovery, RecoveryStatus
from recover.api.marks import OWN_CONDITION, QUARANTINE, UNHEALTHY
from recover.api.repair_state import WORKING
from recover.k8s.kinds import NODES
from recover.model import Gang, Node, Taint
from recover.model.actions import Patch
from recover.model.taints import as_written
from recover.stories.keys import WRITTEN_BY_US
from recover.triage.node_condition import told_away
from recover.triage.spare_node import SPARE, spare_of
from recover.workloads import started_by
from recover.workloads.patches import environment_of, old_environment_of

__all__ = ["Undo", "Unfinished", "environments", "remove_condition", "under_way", "undo"]


class Undo(msgspec.Struct, frozen=True):
    patch: Patch
    words: str
    """Description of the patch, for people."""


def undo(node: Node, stays: str = "") -> Undo | None:
    """Returns one patch that removes all marks of Rekindle from the node; None if the node has none. A
    person's cordon, and a taint that a person set, stay or are restored. A hold keeps Rekindle off a node,
    but does not protect Rekindle's marks on the node. `stays` says why the node must stay out of service, if
    it must: then the patch leaves a plain cordon on the node."""
    notes = sorted(name for name in node.annotations if name in WRITTEN_BY_US)
    labels = sorted(name for name in node.labels if name in WRITTEN_BY_US)
    taints = list(_taints_of_others(node))
    cordoned = node.quarantine is not None and node.quarantine.cordoned and node.unschedulable
    spec: dict[str, Any] = {"unschedulable": None} if cordoned else {}
    if stays:
        spec = {} if node.unschedulable else {"unschedulable": True}
    if taints != list(node.taints):
        spec["taints"] = as_written(taints)
    if not (notes or labels or spec):
        return None
    words = [*_words(node, taints, [*notes, *labels], uncordoned=cordoned and not stays)]
    if stays:
        words.append(
            f"the node stays cordoned, because {stays}; after the repair of the node: kubectl uncordon "
            f"{node.name}"
        )
    metadata = {"annotations": dict.fromkeys(notes), "labels": dict.fromkeys(labels)}
    patch = Patch(
        what="leave-node",
        resource=NODES,
        name=node.name,
        uid=node.uid,
        version=node.version,
        body={"metadata": {field: names for field, names in metadata.items() if names}, "spec": spec},
    )
    return Undo(patch, ", ".join(words))


def remove_condition(node: Node) -> Undo | None:
    """Returns the patch that removes Rekindle's condition from the node's status; None if there is no
    condition. The status is written apart from the node."""
    return Undo(told_away(node), f"condition {OWN_CONDITION} removed") if node.told is not None else None


def _taints_of_others(node: Node) -> Iterator[Taint]:
    """Yields the taints that the node has afterwards. A spare's taint is left out if Rekindle set it. If a
    person set the taint, and Rekindle has removed the taint to use the spare, the taint is added again."""
    spare = spare_of(node)
    note = spare.kept if spare is not None else None
    for taint in node.taints:
        is_spare_of_ours = spare is not None and taint == spare.taint and note is not None and note.laid
        if taint.key != UNHEALTHY and not is_spare_of_ours:
            yield taint
    if spare is not None and spare.lent and note is not None and not note.laid:
        yield Taint(SPARE, "NoSchedule", note.value)


def _words(node: Node, taints: list[Taint], names: list[str], *, uncordoned: bool) -> Iterator[str]:
    if uncordoned:
        yield "uncordoned"
    yield from (f"taint {t.key}={t.value}:{t.effect} removed" for t in node.taints if t not in taints)
    yield from (f"taint {t.key}={t.value}:{t.effect} added again" for t in taints if t not in node.taints)
    yield from (f"{name} removed" for name in names)
    if QUARANTINE in names and node.quarantine is None and node.unschedulable:
        yield "the node stays cordoned: Rekindle cannot read who set the cordon"


class Unfinished(msgspec.Struct, frozen=True):
    """Work that a controller has begun and that nothing would finish without a controller."""

    words: str
    needs: str
    """Next step for a person."""
    blocks: bool
    """Whether a removal now would do harm: a job would stay stopped or started in part, or a node would stay
    in the middle of a repair. If not, the removal waits for a while, and then names the work."""


def under_way(
    gangs: Iterable[Gang], recoveries: Iterable[Recovery], incidents: Iterable[Incident]
) -> list[Unfinished]:
    """Returns the jobs whose recovery has not ended yet, and the nodes on which a repair is at work. A
    recovery that was escalated is already the task of people."""
    by_place = {(gang.ref.kind, gang.ref.namespace, gang.ref.name): gang for gang in gangs}
    found = []
    for recovery in recoveries:
        ref = recovery.spec.gang
        if recovery.active:
            found.append(_unfinished(recovery, by_place.get((ref.kind, ref.namespace, ref.name))))
    for incident in incidents:
        repair = incident.status.repair
        if repair is not None and repair.phase in WORKING:
            found.append(
                Unfinished(
                    f"node {incident.spec.node} is being repaired, in phase {repair.phase}",
                    f"wait for the end of the repair: rekindle why node/{incident.spec.node}",
                    blocks=True,
                )
            )
    return sorted(found, key=lambda one: (not one.blocks, one.words))


def _unfinished(recovery: Recovery, gang: Gang | None) -> Unfinished:
    ref, status = recovery.spec.gang, recovery.status
    name, space = recovery.metadata.name, recovery.metadata.namespace
    if gang is None and status.recreation is not None and status.recreation.definition:
        return Unfinished(
            f"{ref} was deleted to be created again, and only Recovery {name} has its definition",
            f"to create the job: kubectl get recovery -n {space} {name} -o "
            "jsonpath={.status.recreation.definition} | kubectl create -f -",
            blocks=True,
        )
    if gang is not None and _was_stopped_by(gang, name):
        return Unfinished(
            f"{ref} was stopped for a restart and is not started yet" + _said(status),
            f"if you remove Rekindle nevertheless, start the job yourself afterwards: {started_by(ref)}",
            blocks=True,
        )
    words = f"{ref} is being recovered, in phase {status.phase}" + _said(status)
    why = f"rekindle why -n {space} {ref.kind.lower()}/{ref.name}"
    if gang is not None and status.phase is Phase.RESUMING:
        return Unfinished(
            words,
            "not all ranks of the job run yet, and without Rekindle nobody places them again: wait, and see "
            + why,
            blocks=True,
        )
    return Unfinished(
        words,
        f"the job continues without Rekindle, and nobody checks whether the job trains again: {why}",
        blocks=False,
    )


def _said(status: RecoveryStatus) -> str:
    why = f"{status.reason}: {status.message}".strip(": ")
    return f" ({' '.join(why.split())})" if why else ""


def environments(recoveries: Iterable[Recovery]) -> list[tuple[str, str]]:
    """Returns namespace and name of the ConfigMaps from which resumed ranks read where to begin. ConfigMaps
    of active recoveries are left out: their ranks may not have read them yet."""
    named: dict[tuple[str, str], bool] = {}
    for recovery in recoveries:
        for name in (environment_of(recovery.spec.gang), old_environment_of(recovery.spec.gang)):
            place = (recovery.metadata.namespace, name)
            named[place] = recovery.active or named.get(place, False)
    return sorted(place for place, active in named.items() if not active)


def _was_stopped_by(gang: Gang, recovery: str) -> bool:
    mark = gang.mark
    return gang.suspended and mark is not None and mark.did == "stopped" and mark.recovery == recovery
