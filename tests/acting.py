"""Plays the API server and the framework for tests of decisions: applies a plan to a world of tests.builders.

Only the parts that decisions read back are applied. The pods of a stopped gang stay until a test ends
them, and the pods of a started gang appear when a test starts them, so a test can examine every moment in
between.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import ObjectMeta
from detectors.wire.training import Edge
from recover.api import Answered, Incident, Phase, Recovery, RecoverySpec, RecoveryStatus
from recover.api.marks import QUARANTINE, RELEASED, RELEASED_FINDINGS, REPAIR_OF, SCAN_OF
from recover.k8s.bodies import builtins, merged
from recover.k8s.kinds import INCIDENTS, JOBS, NODES, PODS, RECOVERIES
from recover.model import Container, Pod, PodPhase, Quarantine, Release, Taint
from recover.model.actions import Action, ConfirmGone, Create, Delete, Patch, Plan
from recover.recovery.advance import advance
from recover.triage.plan import plan
from recover.workloads import workload_of
from recover.workloads.job import Job
from recover.workloads.patches import environment_name, mark_of, reads_environment
from tests.builders import Worlds
from tests.rights import lacking

__all__ = [
    "acts",
    "advanced",
    "apply",
    "end_pods",
    "first_step",
    "look",
    "only_recovery",
    "recovering",
    "scanned",
    "start_pods",
    "step",
]


def look(world: Worlds) -> Plan:
    """Runs one reconcile pass over the only recovery, and writes nothing."""
    return advance(only_recovery(world), world.world(), world.settings, world.now)


def acts(found: Plan) -> list[str]:
    """Returns the names of the plan's writes, without Events."""
    return [action.what for action in found.actions if isinstance(action, Create | Patch | Delete)]


def step(world: Worlds) -> list[str]:
    """Runs one reconcile pass over the only recovery, and applies its plan. Returns what it wrote, without
    Events."""
    found = look(world)
    apply(world, found)
    return acts(found)


def advanced(world: Worlds, to: Phase) -> Recovery:
    """Runs passes until the recovery reaches the phase. The pods end and start as soon as the gang is
    stopped or started. The stop that goes with the phase Stopping is left out, so the phase still has to
    make it. The choice that goes with the phase Choosing is left out too, as in a Recovery of an earlier
    version."""
    for _ in range(20):
        if to is Phase.CHOOSING and only_recovery(world).status.phase is Phase.RESUMING:
            _without_choice(world)
        if only_recovery(world).status.phase is to:
            return only_recovery(world)
        wrote = _without_stop(world) if only_recovery(world).status.phase is Phase.PLANNED else step(world)
        if "stop-gang" in wrote:
            end_pods(world)
        if "start-gang" in wrote:
            world.later(2)
            start_pods(world)
    raise AssertionError(f"{to} is not reached: {only_recovery(world).status}")


def _without_stop(world: Worlds) -> list[str]:
    found = look(world)
    chains = [
        chain for chain in found.chains if not any(acted == "stop-gang" for acted in acts(Plan((chain,))))
    ]
    apply(world, Plan(tuple(chains)))
    return [acted for chain in chains for acted in acts(Plan((chain,)))]


def _without_choice(world: Worlds) -> None:
    (key, recovery), *_ = world.recoveries.items()
    *phases, made = recovery.status.phases
    assert phases[-1].phase is Phase.CHOOSING
    assert phases[-1].at == made.at
    limit_s = world.settings.timing.scan_deadline_s
    status = msgspec.structs.replace(
        recovery.status,
        phase=Phase.CHOOSING,
        reason="",
        phases=phases,
        deadline=made.at + timedelta(seconds=limit_s),
        checkpoint=None,
        conditions=[],
    )
    world.recoveries[key] = msgspec.structs.replace(recovery, status=status)


def recovering(world: Worlds) -> Worlds:
    """Runs triage once, and applies its plan."""
    apply(world, plan(world.world(), world.settings, world.now))
    return world


def only_recovery(world: Worlds) -> Recovery:
    (only,) = world.recoveries.values()
    return only


def apply(world: Worlds, found: Plan) -> None:
    for action in found.actions:
        assert lacking(action) == [], f"the chart's rights do not suffice for {action.what}"
        _apply(world, action)


def end_pods(world: Worlds, job: str = "llm", *, keep_failed: bool = False) -> None:
    """Removes the pods, as the framework does. A Job keeps those that have failed."""
    pods = world.pods[f"{job}-uid"]
    world.pods[f"{job}-uid"] = {
        uid: pod for uid, pod in pods.items() if keep_failed and pod.phase is PodPhase.FAILED
    }


def start_pods(world: Worlds, job: str = "llm", *, first_node: int = 4, running: bool = True) -> None:
    """Creates a new pod for each rank, as the framework does, one on each node from `first_node` on."""
    gang = world.gangs[f"{job}-uid"]
    created = world.now.replace(microsecond=0)
    is_brought = reads_environment(gang) or workload_of(gang).start_brings_environment
    for rank in range(gang.size):
        uid = f"{job}-{rank}-{world.now:%H%M%S}-uid"
        world.pods.setdefault(gang.ref.uid, {})[uid] = Pod(
            namespace=gang.ref.namespace,
            name=f"{job}-worker-{rank}",
            uid=uid,
            version="1",
            owner_uid=gang.ref.uid,
            node=f"n{first_node + rank}" if running else "",
            phase=PodPhase.RUNNING if running else PodPhase.PENDING,
            created=created,
            containers=(Container(name="train", running=True),) if running else (),
            accelerators=8,
            environments=(environment_name(gang),) if is_brought else (),
            unschedulable="" if running else "0/8 nodes are available: 1 Insufficient nvidia.com/gpu",
        )


def first_step(world: Worlds, number: int, job: str = "llm") -> None:
    """Lets the agents publish the first step of every running rank."""
    for pod in world.pods[f"{job}-uid"].values():
        if pod.phase is PodPhase.RUNNING:
            world.progress(pod, Edge.STEPPING, at=world.now, first_step=number, last_step=number)


def _apply(world: Worlds, action: Action) -> None:
    match action:
        case Create(resource=resource) if resource == RECOVERIES:
            meta = ObjectMeta(
                name=action.name,
                namespace=action.namespace,
                uid=f"{action.name}-uid",
                resource_version="1",
                creation_timestamp=world.now.replace(microsecond=0),
            )
            made = msgspec.convert({"spec": action.body["spec"]}, Recovery)
            key = f"{action.namespace}/{action.name}"
            world.recoveries.setdefault(key, msgspec.structs.replace(made, metadata=meta))
        case Create(resource=resource) if resource == INCIDENTS:
            meta = ObjectMeta(
                name=action.name,
                uid=f"{action.name}-uid",
                creation_timestamp=world.now.replace(microsecond=0),
            )
            found = msgspec.convert({"spec": action.body["spec"], "status": action.status}, Incident)
            world.incidents.setdefault(action.name, msgspec.structs.replace(found, metadata=meta))
        case Create(resource=resource) if resource == PODS:
            gated = bool(action.body["spec"].get("schedulingGates"))
            world.scans.setdefault(
                f"{action.namespace}/{action.name}",
                Pod(
                    namespace=action.namespace,
                    name=action.name,
                    uid=f"{action.name}-uid",
                    version="1",
                    labels={SCAN_OF: action.body["metadata"]["labels"][SCAN_OF]},
                    annotations=action.body["metadata"].get("annotations", {}),
                    gated=gated,
                ),
            )
        case Patch(resource=resource) if resource == RECOVERIES:
            key = f"{action.namespace}/{action.name}"
            old = world.recoveries[key]
            new = merged(builtins(old.status), action.body.get("status", {}))
            spec = msgspec.convert(merged(builtins(old.spec), action.body.get("spec", {})), RecoverySpec)
            status = msgspec.convert(new, RecoveryStatus)
            world.recoveries[key] = msgspec.structs.replace(old, spec=spec, status=status)
        case Patch(resource=resource) if resource == INCIDENTS:
            before = world.incidents[action.name]
            new = merged(builtins(before.status), action.body["status"])
            after = msgspec.convert(new, type(before.status))
            world.incidents[action.name] = msgspec.structs.replace(before, status=after)
        case Patch(resource=resource) if resource == NODES:
            _apply_node(world, action)
        case Patch(resource=resource) if resource == PODS:
            _apply_pod(world, action)
        case Delete(resource=resource) if resource == PODS:
            world.scans.pop(f"{action.namespace}/{action.name}", None)
            for pods in world.pods.values():
                pods.pop(action.uid, None)
        case ConfirmGone(resource=resource) if resource == NODES and action.name not in world.nodes:
            world.gone_nodes.add(action.name)
        case Patch():
            _apply_gang(world, action)
        case Delete() if action.uid in world.gangs:
            assert action.foreground, "a job is deleted with all that it owns"
            world.gangs[action.uid] = msgspec.structs.replace(world.gangs[action.uid], deleting=True)
        case Create(resource=resource) if resource == JOBS:
            told = {**action.body["metadata"], "uid": f"{action.name}-anew-uid", "resourceVersion": "20"}
            anew = Job().parse(msgspec.json.encode({**action.body, "metadata": told}))
            if REPAIR_OF in anew.labels:
                world.repair_jobs.setdefault(action.name, anew)
            else:
                world.gangs[anew.ref.uid] = anew
        case Delete(resource=resource) if resource == JOBS:
            world.repair_jobs.pop(action.name)
        case _:
            pass


def _apply_gang(world: Worlds, action: Patch) -> None:
    gang = world.gangs[action.uid]
    annotations = merged(dict(gang.annotations), action.body["metadata"]["annotations"])
    spec = action.body.get("spec", {})
    world.gangs[action.uid] = msgspec.structs.replace(
        gang,
        annotations=annotations,
        mark=mark_of(annotations),
        suspended=spec.get("runPolicy", spec).get("suspend", gang.suspended),
    )


def _apply_node(world: Worlds, action: Patch) -> None:
    node = world.nodes[action.name]
    annotations = action.body["metadata"]["annotations"]
    note = annotations[QUARANTINE]
    spec = action.body["spec"]
    world.nodes[action.name] = msgspec.structs.replace(
        node,
        quarantine=msgspec.json.decode(note, type=Quarantine) if note else None,
        taints=tuple(msgspec.convert(taint, Taint) for taint in spec["taints"] or ()),
        unschedulable=bool(spec.get("unschedulable", node.unschedulable)),
        released_at=datetime.fromisoformat(annotations[RELEASED])
        if RELEASED in annotations
        else node.released_at,
        answered=_answered(annotations) if RELEASED in annotations else node.answered,
    )


def _answered(annotations: dict[str, str | None]) -> Answered | None:
    text = annotations[RELEASED_FINDINGS]
    return msgspec.json.decode(text, type=Release).findings if text else None


def _apply_pod(world: Worlds, action: Patch) -> None:
    key = f"{action.namespace}/{action.name}"
    if key in world.scans:
        world.scans[key] = msgspec.structs.replace(world.scans[key], gated=False)
        return
    for pods in world.pods.values():
        if action.uid in pods:
            pods[action.uid] = msgspec.structs.replace(pods[action.uid], phase=PodPhase.FAILED)


def scanned(world: Worlds, message: str | None) -> None:
    """Ends the only scan pod with this termination message."""
    ((key, pod),) = world.scans.items()
    ended = Container(name="scan", running=False, exit_code=0, message=message or "")
    world.scans[key] = msgspec.structs.replace(pod, phase=PodPhase.SUCCEEDED, containers=(ended,))
