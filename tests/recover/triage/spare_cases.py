"""Makes a pool with spare nodes and events of its nodes, and runs the spares loop pass by pass."""

from __future__ import annotations

import msgspec

from recover.api import Act, Incident, Outcome
from recover.k8s.kinds import NODES
from recover.model import Taint
from recover.model.actions import Emit, Patch
from recover.model.modes import Mode
from recover.triage.spare_node import KEPT, SPARE, SPARE_FOR
from recover.triage.spares import keep_spares
from tests.acting import apply, recovering
from tests.builders import Worlds, cluster

__all__ = [
    "OURS",
    "PEOPLES",
    "POOL",
    "add_label",
    "comes_to_rest",
    "fails",
    "incident_of",
    "kept",
    "lent",
    "released",
    "reserve",
    "spares",
    "told",
    "without_label",
]

POOL = "node.kubernetes.io/instance-type"
OURS = Taint(SPARE, "NoSchedule", "true")
GPUS = {"nvidia.com/gpu": 8}
PEOPLES = Taint("dedicated", "NoSchedule", "training")


def spares(*names: str, nodes: int = 60, mode: Mode = Mode.RECOVER) -> Worlds:
    """Returns nodes of one pool with eight GPUs each. Rekindle already keeps the spares."""
    world = cluster(nodes=nodes, mode=mode)
    for name in world.nodes:
        world.change_node(name, labels={POOL: "h200"}, allocatable=GPUS, capacity=GPUS)
    for name in names:
        add_label(world, name)
    if mode is not Mode.OBSERVE:
        kept(world)
    return world


def add_label(world: Worlds, name: str, value: str = "true") -> None:
    world.change_node(name, labels={**world.nodes[name].labels, SPARE: value})


def without_label(world: Worlds, name: str) -> None:
    labels = {key: value for key, value in world.nodes[name].labels.items() if key != SPARE}
    world.change_node(name, labels=labels)


def kept(world: Worlds) -> list[str]:
    """Runs one reconcile pass, and applies its plan. Returns the writes with the names of their nodes."""
    plan = keep_spares(world.world(), world.now)
    done = []
    for action in plan.actions:
        if isinstance(action, Patch) and action.resource == NODES:
            write(world, action)
            done.append(f"{action.what} {action.name}")
        elif not isinstance(action, Emit):
            apply(world, msgspec.structs.replace(plan, chains=((action,),)))
    return done


def write(world: Worlds, patch: Patch) -> None:
    node = world.nodes[patch.name]
    assert (patch.uid, patch.version) == (node.uid, node.version), "an unguarded write"
    notes = {**node.annotations, **patch.body["metadata"]["annotations"]}
    world.change_node(
        patch.name,
        annotations={name: value for name, value in notes.items() if value is not None},
        taints=tuple(msgspec.convert(taint, Taint) for taint in patch.body["spec"]["taints"] or ()),
    )


def comes_to_rest(world: Worlds) -> list[str]:
    """Runs reconcile passes until one writes nothing."""
    done: list[str] = []
    for _ in range(8):
        before = (dict(world.nodes), dict(world.incidents))
        done += kept(world)
        if (dict(world.nodes), dict(world.incidents)) == before:
            return done
    raise AssertionError(f"no rest: {done}")


def fails(world: Worlds, *names: str) -> Worlds:
    """Lets triage quarantine these nodes one after the other. These tests do not concern the limits."""
    for name in names:
        world.finding(on=name)
    recovering(world)
    recovering(world.later(1))
    return world


def released(world: Worlds, name: str) -> None:
    """Lets a person repair and uncordon the node, and lets triage react."""
    health = world.health[name]
    world.health[name] = msgspec.structs.replace(
        health, status=msgspec.structs.replace(health.status, findings=[])
    )
    world.change_node(name, unschedulable=False)
    recovering(world.later(1))
    recovering(world.later(1))


def lent(world: Worlds) -> dict[str, str]:
    """Returns each spare that takes pods, and the node that it replaces."""
    return {
        name: msgspec.json.decode(node.annotations[KEPT])["node"]
        for name, node in world.nodes.items()
        if SPARE_FOR in node.annotations
    }


def reserve(world: Worlds) -> list[str]:
    return [name for name, node in world.nodes.items() if OURS in node.taints]


def incident_of(world: Worlds, name: str) -> Incident:
    (found,) = [one for one in world.incidents.values() if one.spec.node == name]
    return found


def told(world: Worlds, name: str) -> list[tuple[Outcome, str, str]]:
    records = incident_of(world, name).status.actions
    return [(r.outcome, r.reason, r.message) for r in records if r.action == Act.LIFT_SPARE]
