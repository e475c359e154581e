"""Finds pods that a kubelet refuses or cannot start, and decides whether one node is a suspect, or whether
many nodes share one fault. Pure; triage writes the Incident (triage/start_incidents.py).

Failures count only if jobs of two namespaces show them, because the jobs of one tenant may share a fault that
no node has. For each reason that kubelets give:

| shown by | result |
|---|---|
| jobs of one namespace | nothing |
| jobs of two or more namespaces, all on one node | the node is a suspect for a while, and no more |
| jobs of two namespaces, each of them on several nodes | one fault of the fleet; no node is suspected |
| jobs of three or more namespaces, on several nodes together | one fault of the fleet; no node is suspected |
| anything less | nothing |

A fault of the fleet is a fault of a registry, of storage or of the pods' network.

A pod that was started on the node after the first failure shows that the node starts pods. The Incident is
the memory, because the failed pods no longer exist when a job is placed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from recover.api import Incident
from recover.diagnose.what_trained import trained_after
from recover.model import Pod, PodPhase, World

__all__ = [
    "CODE",
    "FailingStarts",
    "comes_due",
    "failing_starts",
    "is_of_starts",
    "suspected_of_starts",
    "taken_up",
]

CODE = "start-"
"""Beginning of the code of the evidence. The kubelet's reason follows."""

RECENT_S = 3600.0
"""Age beyond which a refused pod does not count. Such a pod may be kept for days, and says nothing about the
present."""

_PATIENCE_S = {"ContainerCreating": 1200.0, "CreateContainerError": 120.0, "RunContainerError": 120.0}
"""Time that a pod must have waited, for each reason. A large image is pulled in `ContainerCreating`."""


class FailingStarts(msgspec.Struct, frozen=True):
    """Jobs of several namespaces whose pods are not started, for one reason."""

    reason: str
    pods: tuple[Pod, ...]
    """Pods that are not started, oldest first."""
    also: tuple[str, ...] = ()
    """Nodes that showed the failure a short while ago and show it no more: their pods may have moved."""

    @property
    def nodes(self) -> list[str]:
        return sorted({*self.also, *(pod.node for pod in self.pods)})

    @property
    def node(self) -> str:
        """The only node that shows the failure; empty for a fault of the fleet."""
        return self.nodes[0] if len(self.nodes) == 1 else ""

    @property
    def namespaces(self) -> list[str]:
        return sorted({pod.namespace for pod in self.pods})

    @property
    def first_at(self) -> datetime:
        return taken_up(self.pods[0])

    @property
    def last_at(self) -> datetime:
        return taken_up(self.pods[-1])


def failing_starts(world: World, now: datetime) -> list[FailingStarts]:
    """Returns the failing starts, by reason. A person who may create pods in two namespaces can make a node a
    suspect, and no more."""
    by_reason: dict[str, list[Pod]] = {}
    for pod in world.not_started.values():
        if (pod.admitted_at or pod.created) is not None and _fails(pod, now):
            by_reason.setdefault(pod.not_started, []).append(pod)
    found = [
        FailingStarts(reason, tuple(sorted(pods, key=lambda pod: (taken_up(pod), pod.uid))))
        for reason, pods in sorted(by_reason.items())
    ]
    return [one for one in found if _counts(world, one)]


def _fails(pod: Pod, now: datetime) -> bool:
    waited_s = (now - taken_up(pod)).total_seconds()
    patience_s = _PATIENCE_S.get(pod.not_started)
    return waited_s <= RECENT_S if patience_s is None else waited_s >= patience_s


def _counts(world: World, one: FailingStarts) -> bool:
    if len(one.namespaces) < 2:
        return False
    if one.node:
        return one.node in world.nodes and not _starts_pods(world, one.node, one.first_at)
    widely = [name for name in one.namespaces if len({p.node for p in one.pods if p.namespace == name}) > 1]
    return len(widely) >= 2 or len(one.namespaces) >= 3


def _starts_pods(world: World, node: str, since: datetime) -> bool:
    return any(
        pod.node == node
        and pod.phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED)
        and pod.admitted_at is not None
        and pod.admitted_at > since
        for uid in world.gangs_on.get(node, ())
        for pod in world.pods_of.get(uid, {}).values()
    )


def comes_due(world: World) -> Iterator[datetime]:
    """Yields the times at which pods have waited, or will have waited, for too long."""
    for pod in world.not_started.values():
        patience_s = _PATIENCE_S.get(pod.not_started)
        if patience_s is not None and (pod.admitted_at or pod.created) is not None:
            yield taken_up(pod) + timedelta(seconds=patience_s)


def taken_up(pod: Pod) -> datetime:
    """Returns when the pod's kubelet accepted the pod, or when the pod was created if no acceptance is
    known."""
    at = pod.admitted_at or pod.created
    assert at is not None, "others are left out"
    return at


# --- what the Incidents say -------------------------------------------------------------------------------


def is_of_starts(incident: Incident) -> bool:
    """Whether the Incident is about no single job, and its evidence is about starts."""
    spec = incident.spec
    is_about_none = not spec.node and spec.gang is None
    return is_about_none and any(e.code.startswith(CODE) for e in incident.status.evidence)


def suspected_of_starts(world: World, now: datetime, window_s: float) -> dict[str, str]:
    """Returns the nodes that an Incident suspects, with the code, until `window_s` after the last failure.
    The suspicion ends earlier if a person or a repair has returned the node to service since then, or if
    training continues on the node."""
    found = {}
    since = now - timedelta(seconds=window_s)
    for incident in world.incidents.values():
        status = incident.status
        if not status.suspects or status.superseded_by or not is_of_starts(incident):
            continue
        last = max(status.evidence, key=lambda e: e.at)
        node = world.nodes.get(status.suspects[0].node)
        if node is None or last.at < since or trained_after(world.health.get(node.name), last.at):
            continue
        if node.released_at is None or node.released_at < last.at:
            found[node.name] = last.code
    return found
