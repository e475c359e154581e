"""Decides about the next checkpoint of a gang that has to leave a degraded node: whether Rekindle waits for
the checkpoint, which agents it asks, and whether an agent has answered. Pure.

triage/nodehealths.py asks the agents of pods whose logs have shown a complete checkpoint before.
node_faults.py and repair/waiting.py decide by the answer. A wait has an id, which names the Incident of each
degraded node of the gang and the pods there: if the gang has to leave for a different reason, another wait
begins. No clocks are compared: an agent answers with the id once a checkpoint has become complete after the
agent had read the id.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from detectors.wire.fitting import limit
from detectors.wire.training import LastSave, PodSettings
from recover.api import Phase
from recover.api.repair_state import RepairPhase
from recover.k8s.bodies import shortened
from recover.model import Gang, Node, Pod, World
from recover.policy.consent import OptIn, opt_in

__all__ = ["ASKED_MAX", "Awaited", "Awaiting", "requests"]

ASKED_MAX = 4
"""Number of pods of one gang whose agents are asked. One answer suffices, and an agent may be unavailable."""


class Awaited(Enum):
    """Meaning of a gang's next checkpoint for the move of the gang off a degraded node."""

    UNTOLD = auto()
    """No log of the gang has shown a complete checkpoint so far."""
    NEXT = auto()
    """The gang is moved once its next checkpoint is complete."""
    SAVED = auto()
    """A checkpoint was completed after the gang had to leave."""
    MOVED_BEFORE = auto()
    """The gang was moved for this fault before, and came back. The gang keeps the whole grace period:
    otherwise a gang that saves often would be moved again and again."""


class Awaiting:
    """Judges the gangs for one reconcile. A large gang may be on many degraded nodes, and is judged once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, Awaited] = {}
        """Results by the gang's uid, for all reasons to leave."""

    def of(self, gang: Gang, incident: str) -> Awaited:
        """Returns what the next checkpoint of the gang means. `incident` is the Incident for which the gang
        has to leave."""
        history = self._world.history(gang.ref.uid)
        if any(incident in r.cause_names and r.status.phase is not Phase.FAILED for r in history):
            return Awaited.MOVED_BEFORE
        if gang.ref.uid not in self._known:
            self._known[gang.ref.uid] = _judged(self._world, gang)
        return self._known[gang.ref.uid]


def _judged(world: World, gang: Gang) -> Awaited:
    wait, there = _wait(world, gang), _living(world, gang)
    if wait and any(save.served == wait for pod in there for save in _saves(world, pod)):
        return Awaited.SAVED
    return Awaited.NEXT if any(_tells(world, pod) for pod in there) else Awaited.UNTOLD


def requests(world: World) -> list[tuple[Pod, str]]:
    """Returns the pods whose agents are asked, each with the id of the wait."""
    gangs = {gang.ref.uid: gang for node in _quarantined(world) for gang in world.gangs_living_on(node.name)}
    return [
        (pod, wait) for gang in gangs.values() for wait in [_wait(world, gang)] for pod in _asked(world, gang)
    ]


def _quarantined(world: World) -> Iterator[Node]:
    return (node for node in world.subjects.nodes.values() if node.quarantine is not None)


def _asked(world: World, gang: Gang) -> list[Pod]:
    """Returns the pods of the gang whose agents are asked. Pods on the degraded nodes come first, because
    their agents look for new requests most often."""
    if opt_in(gang, world.namespaces.get(gang.ref.namespace)) is not OptIn.ENABLED:
        return []
    if world.active_recovery(gang.ref.uid) is not None:
        return []
    telling = [pod for pod in _living(world, gang) if _tells(world, pod)]
    return sorted(telling, key=lambda pod: (not _incident_at(world, pod.node), pod.name))[:ASKED_MAX]


def _wait(world: World, gang: Gang) -> str:
    """Returns the id of the gang's wait, or an empty string if no node of the gang is in quarantine."""
    parts = {
        f"{incident} {_repair_since(world, incident)} {pod.uid}"
        for pod in _living(world, gang)
        if (incident := _incident_at(world, pod.node))
    }
    return shortened(", ".join(sorted(parts)), limit(PodSettings, "awaits_save"))


def _incident_at(world: World, name: str) -> str:
    node = world.nodes.get(name)
    return node.quarantine.incident if node is not None and node.quarantine is not None else ""


def _repair_since(world: World, name: str) -> str:
    """Returns since when a repair waits for the gangs of its node. Such a repair is a further reason to
    leave."""
    incident = world.incidents.get(name)
    repair = incident.status.repair if incident is not None else None
    if repair is None or repair.phase is not RepairPhase.WAITING or not repair.phases:
        return ""
    return repair.phases[-1].at.isoformat()


def _living(world: World, gang: Gang) -> list[Pod]:
    return [pod for pod in world.pods(gang.ref.uid) if not pod.ended]


def _tells(world: World, pod: Pod) -> bool:
    return any(_saves(world, pod))


def _saves(world: World, pod: Pod) -> Iterator[LastSave]:
    return (told.last_save for told in world.containers(pod) if told.last_save is not None)
