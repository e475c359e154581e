"""Decides about spare nodes: each is kept free, is used in place of a node that is out of service, and is
kept free again when that node returns. Pure; a separate loop runs this module.

Each node that is out of service gets one spare. A node is out of service if its quarantine keeps pods off.
While a recovery keeps its gang off a node, the node also counts as out of service if it is dead, gone, or
proven to be broken although a limit prevents the quarantine. Each reconcile derives from the Node objects
which nodes are out of service, and which spare replaces which node. People's changes take precedence: a taint
that a person removes or sets again stays as the person left it, and a node whose label a person removes is no
longer a spare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from detectors.wire.fitting import fitted, refitted
from recover.api import Act, ActionRecord, IncidentPhase, Outcome, Phase, Recovery
from recover.api.marks import UNHEALTHY
from recover.api.reasons import EventReason, Reason
from recover.diagnose.answered import answers
from recover.diagnose.signals import doubts
from recover.diagnose.what_counts import open_findings, proven
from recover.k8s.bodies import regarding
from recover.k8s.pod_specs import HOSTNAME
from recover.model import Gang, Node, World
from recover.model.actions import Action, Emit, Plan
from recover.model.modes import Mode
from recover.policy.consent import held, hold_of_node, in_force_on
from recover.triage.capacity import may_use
from recover.triage.incidents import merged_records, update
from recover.triage.reserved import request_of
from recover.triage.spare_node import Spare, others, spare_of

__all__ = ["keep_spares", "would_lift"]

HELD_S = 60.0
"""Time until the next reconcile while a hold exists. A hold may end by time alone."""
_STOPPED = (Phase.FENCING, Phase.CHOOSING, Phase.RESUMING, Phase.BLOCKED)
"""Phases of a recovery that has stopped its gang, and has not seen all ranks run since."""


class _Need(msgspec.Struct, frozen=True):
    """A node that is out of service and that a spare should replace meanwhile."""

    name: str
    incident: str
    like: Node | None
    """The node that a spare must equal: the node itself or, if that node is gone, another node of its gang.
    None if nobody can tell; then a spare that replaces the node already continues to do so, and no other
    spare starts to."""

    def fitting(self, world: World, spares: Collection[Spare]) -> Spare | None:
        """Returns the first spare that may replace the node, and that a gang of the node may use."""
        if self.like is None or not spares:
            return None
        out, gangs = self.like, _gangs_of(world, self.name)
        return next(
            (one for one in spares if _fits(world, one, out, gangs) and not _declined(one, self)), None
        )


def keep_spares(world: World, now: datetime) -> Plan:
    """Returns all writes that spares need now."""
    spares = _spares(world)
    if not spares:
        return Plan()
    out = _Out.of(world, spares, now)
    needs = _needs(world, spares, out)
    serving, over = _serving_and_over(spares, needs, out)
    ours = [spare for spare in spares if _may_touch(world, spare.node, now)]
    unserved = [need for need in needs.values() if need.name not in serving]
    if world.modes.paused is None:
        lifted = dict(_chosen(world, unserved, ours, now))
    else:  # a gang that is stopped must run again, and may need a spare
        waiting = [need for need in unserved if need.name in out.waited_for]
        free = [spare for spare in spares if _may_touch(world, spare.node, now, heeds_pause=False)]
        lifted = dict(_chosen(world, waiting, free, now))
        needs = {name: need for name, need in needs.items() if name in serving | lifted}
    returned = [spare for spare in over if spare in ours]
    busy = {spare.name for spare in (*lifted.values(), *returned)}
    kept = (spare.keep(now) for spare in ours if spare.name not in busy)
    chains: list[tuple[Action, ...]] = [_lifted(spare, needs[name], now) for name, spare in lifted.items()]
    chains += [_returned(spare, now) for spare in returned]
    chains += [(patch,) for patch in kept if patch is not None]
    chains += [(action,) for action in _explained(world, spares, needs.values(), serving | lifted, now)]
    is_held = any(held(spare.node.annotations, now) is not None for spare in spares)
    return Plan(chains=tuple(chains), requeue_after_s=HELD_S if is_held else None)


def would_lift(world: World, node: Node, why: Reason, now: datetime) -> list[ActionRecord]:
    """Returns the record of the spare that Rekindle would use for a node that it would take out of service,
    in mode observe or in a pause."""
    free, gangs = _free(world, _spares(world), now), _gangs_of(world, node.name)
    spare = next((one for one in free if _fits(world, one, node, gangs)), None)
    if spare is None:
        return []
    message = f"would use the spare {spare.name} in place of {node.name}"
    return [
        fitted(
            ActionRecord,
            at=now,
            action=Act.LIFT_SPARE,
            target=node.name,
            outcome=Outcome.WOULD,
            reason=why,
            message=message,
        )
    ]


def _spares(world: World) -> list[Spare]:
    found = (spare_of(node) for node in world.subjects.nodes.values())
    return sorted((spare for spare in found if spare is not None), key=lambda spare: spare.name)


# --- what is out ------------------------------------------------------------------------------------------


class _Out(msgspec.Struct, frozen=True):
    """Nodes that are out of service for reasons other than a quarantine."""

    avoided: Mapping[str, str]
    """Nodes that running recoveries keep their gangs off, or that lack devices (`lacking`), each with the
    Incident that gives the reason."""
    broken: Collection[str]
    """Nodes with a proven fault."""
    gone: Mapping[str, tuple[str, Node | None]]
    """Nodes of gangs with a running recovery that no longer exist and on which a rank used accelerators. Each
    has the Incident, and another node of the gang."""
    lacking: Collection[str]
    """Nodes that offer a gang's ranks too few devices. A rank of the gang ran there and the gang waits for
    room, or a spare replaces the node and the gang still needs the spare."""
    waited_for: Collection[str]
    """Nodes in `avoided` and `gone` whose gang is stopped by its recovery."""

    @classmethod
    def of(cls, world: World, spares: Collection[Spare], now: datetime) -> _Out:
        served = {spare.instead_of for spare in spares if spare.lent}
        devices = {name for spare in spares for name in spare.node.capacity}
        avoided: dict[str, str] = {}
        gone: dict[str, tuple[str, Node | None]] = {}
        lacking: set[str] = set()
        waited_for: set[str] = set()
        for spare in (one for one in spares if one.lent):
            node = world.nodes.get(spare.instead_of)
            gangs = _gangs_of(world, spare.name)
            if node is not None and any(_lacks_devices(node, gang, devices) for gang in gangs):
                lacking.add(node.name)
                avoided[node.name] = spare.incident
        for recovery in world.recoveries.values():
            if recovery.active:
                told = {cause.node: cause.incident for cause in recovery.status.causes}
                short = _short_of_devices(world, recovery, devices)
                short = short if _waits_for_room(recovery) else short & served
                lacking |= short
                kept_off = {recovery.spec.avoid_node, *recovery.status.avoid_nodes, *short} - {""}
                for name in kept_off:
                    avoided[name] = told.get(name, recovery.spec.incident)
                names = recovery.nodes_with_devices
                like = next((world.nodes[n] for n in names if n in world.nodes), None)
                lost = set(filter(world.has_no_node, names))
                for name in lost:
                    gone[name] = (told.get(name, recovery.spec.incident), like)
                if recovery.status.phase in _STOPPED:
                    waited_for |= kept_off | lost
        return cls(avoided, proven(world, now).keys(), gone, lacking, waited_for)

    def has(self, node: Node) -> bool:
        """Whether the node is out: its quarantine keeps pods off, or the node is dead or broken and a gang is
        kept off it, or the node lacks devices."""
        if node.name in self.avoided and (not node.ready or node.name in self.broken):
            return True
        if node.name in self.lacking:
            return True
        closed = any(taint.key == UNHEALTHY and taint.effect == "NoSchedule" for taint in node.taints)
        return closed and node.quarantine is not None


def _short_of_devices(world: World, recovery: Recovery, devices: Collection[str]) -> set[str]:
    """Returns the nodes that offer too few devices for each rank of the gang, although a rank ran there: a
    device may be gone after a reboot."""
    gang = world.gangs.get(recovery.gang_uid)
    if gang is None:
        return set()
    nodes = (world.nodes[name] for name in recovery.nodes_with_devices if name in world.nodes)
    return {node.name for node in nodes if _lacks_devices(node, gang, devices)}


def _lacks_devices(node: Node, gang: Gang, devices: Collection[str]) -> bool:
    """Whether the node offers too few devices for each rank of the gang that asks for devices."""
    requests = [request for one in gang.templates.values() if (request := request_of(one, devices))]
    return bool(requests) and all(
        any(node.allocatable.get(name, 0) < count for name, count in request) for request in requests
    )


def _waits_for_room(recovery: Recovery) -> bool:
    return recovery.status.phase in _STOPPED and recovery.status.reason == Reason.NO_CAPACITY


def _perhaps_out(world: World, out: _Out) -> Iterable[Node]:
    """Returns the nodes for which `out.has` may be true, so that the caller need not ask about each node of a
    large cluster."""
    avoided = {name: world.nodes[name] for name in out.avoided if name in world.nodes}
    return {**world.subjects.nodes, **avoided}.values()


def _needs(world: World, spares: Iterable[Spare], out: _Out) -> dict[str, _Need]:
    """Returns the needs, by the name of the node that is out. A spare that fails in reserve leaves no gap. A
    spare that fails in service leaves the gap that it had filled."""
    reserve = {spare.name for spare in spares if spare.in_reserve or spare.lent}
    needs = {
        node.name: _Need(
            node.name, node.quarantine.incident if node.quarantine else out.avoided[node.name], node
        )
        for node in _perhaps_out(world, out)
        if node.is_accelerated and node.name not in reserve and out.has(node)
    }
    for name, (incident, like) in out.gone.items():
        needs[name] = _Need(name, incident, like)
    for spare in spares:
        name = spare.instead_of
        node = world.nodes.get(name)
        is_still_out = name in out.avoided or (node is not None and not node.ready)
        if spare.lent and name and is_still_out:
            needs.setdefault(name, _Need(name, spare.incident, node))
    return dict(sorted(needs.items()))


def _serving_and_over(
    spares: Iterable[Spare], needs: Mapping[str, _Need], out: _Out
) -> tuple[dict[str, Spare], list[Spare]]:
    """Returns which need each used spare serves, and the spares that serve no need any more or are out
    themselves."""
    serving: dict[str, Spare] = {}
    over = []
    for spare in (one for one in spares if one.lent):
        name = spare.instead_of
        if name in needs and name not in serving and not out.has(spare.node):
            serving[name] = spare
        else:
            over.append(spare)
    return serving, over


# --- which spare ------------------------------------------------------------------------------------------


def _may_touch(world: World, node: Node, now: datetime, *, heeds_pause: bool = True) -> bool:
    mode = in_force_on(world, node, heeds_pause=heeds_pause).mode
    return mode is not Mode.OBSERVE and not hold_of_node(node, now)


def _chosen(
    world: World, needs: Iterable[_Need], spares: Iterable[Spare], now: datetime
) -> Iterator[tuple[str, Spare]]:
    """Yields a separate spare for each need that can be served, with the name of the need's node."""
    free: list[Spare] | None = None
    for need in needs:
        if need.like is None:
            continue
        free = _free(world, spares, now) if free is None else free
        found = need.fitting(world, free)
        if found is not None:
            free.remove(found)
            yield need.name, found


def _free(world: World, spares: Iterable[Spare], now: datetime) -> list[Spare]:
    """Returns the spares that are in reserve and healthy, and whose devices are not in use: a spare may have
    left service while its gang still runs there. Spares that no other controller has marked come first."""
    failing = {i.spec.node for i in world.incidents.values() if i.status.phase is IncidentPhase.OPEN}
    free = [
        spare
        for spare in spares
        if spare.in_reserve
        and not spare.incident
        and spare.name not in failing
        and _is_sound(world, spare.node, now)
        and not _is_used(world, spare.name)
    ]
    return sorted(free, key=lambda spare: bool(doubts(spare.node, now)))


def _is_sound(world: World, node: Node, now: datetime) -> bool:
    takes_pods = node.ready and not node.unschedulable and node.quarantine is None
    return takes_pods and not open_findings(node, world.health.get(node.name), answers(node), now)


def _is_used(world: World, node: str) -> bool:
    """Whether a pod with accelerators runs on the node. A pod without accelerators takes no device from a
    rank, and anyone who may create a pod could place one on each spare by a toleration."""
    owners = world.gangs_on.get(node, frozenset())
    pods = (pod for uid in owners for pod in world.pods_of.get(uid, {}).values())
    return any(pod.node == node and pod.accelerators and not pod.ended for pod in pods)


def _gangs_of(world: World, node: str) -> list[Gang]:
    """Returns the gangs whose ranks run on the node, or ran there until a running recovery stopped them."""
    stopped = (r for r in world.recoveries.values() if r.active and node in r.nodes)
    uids = (recovery.gang_uid for recovery in stopped)
    return [*world.gangs_living_on(node), *(world.gangs[uid] for uid in uids if uid in world.gangs)]


def _fits(world: World, spare: Spare, out: Node, gangs: Collection[Gang]) -> bool:
    """Whether the spare may replace the node `out`: the spare is in the same pool, has all devices that `out`
    has, has no taint that `out` lacks, and may be used by one of the node's `gangs`, if there are any that
    can run elsewhere. A job's node selector may name the model of the GPU, and nodes without a label of the
    pool are all in one pool. The node `out` may have lost all its devices by now."""
    node = spare.node
    if not _same_pool(world, node, out):
        return False
    enough = all(node.allocatable.get(name, 0) >= count for name, count in out.capacity.items())
    tolerated = {(taint.key, taint.value, taint.effect) for taint in out.taints}
    hard = {(t.key, t.value, t.effect) for t in others(node) if t.effect != "PreferNoSchedule"}
    movable = [gang for gang in gangs if not _is_pinned_to(gang, out)]
    may_serve = not movable or any(may_use(gang, node) for gang in movable)
    return any(node.allocatable.values()) and enough and hard <= tolerated and may_serve


def _is_pinned_to(gang: Gang, node: Node) -> bool:
    """Whether the job's own node selector allows only this node for each rank with devices, so that no spare
    helps the job."""
    hostname = node.labels.get(HOSTNAME, node.name)
    asking = [one for one in gang.templates.values() if request_of(one, node.capacity)]
    return bool(asking) and all(one.node_selector.get(HOSTNAME) == hostname for one in asking)


def _same_pool(world: World, node: Node, other: Node) -> bool:
    return node.labels.get(world.pool_label) == other.labels.get(world.pool_label)


def _declined(spare: Spare, need: _Need) -> bool:
    return spare.kept is not None and spare.kept.declined == need.incident


# --- the writes -------------------------------------------------------------------------------------------


def _lifted(spare: Spare, need: _Need, now: datetime) -> tuple[Action, ...]:
    message = f"the spare {spare.name} takes pods in place of {need.name}. Incident {need.incident}"
    return (
        spare.lift(need.name, need.incident, now),
        _event(EventReason.SPARE_LIFTED, spare, message, need.incident),
    )


def _returned(spare: Spare, now: datetime) -> tuple[Action, ...]:
    message = (
        f"the spare {spare.name} no longer replaces {spare.instead_of or 'a node'}: it takes no new "
        "pods, and pods that run there continue to run"
    )
    return spare.give_back(now), _event(EventReason.SPARE_RETURNED, spare, message, spare.incident)


def _event(reason: EventReason, spare: Spare, message: str, incident: str) -> Emit:
    about = regarding("v1", "Node", spare.name, spare.node.uid)
    return Emit(reason=reason, message=message, regarding=about, key=f"{incident}-{spare.name}-{reason}")


def _explained(
    world: World, spares: list[Spare], needs: Iterable[_Need], serving: Mapping[str, Spare], now: datetime
) -> Iterator[Action]:
    """Yields the writes by which each need's Incident says which spare replaces the node, or why none does.
    If the pool has no spare at all, nothing is written."""
    for need in needs:
        incident = world.incidents.get(need.incident)
        if incident is None or incident.status.phase is IncidentPhase.CLOSED:
            continue
        record = _record(world, spares, need, serving.get(need.name), now)
        before = incident.status.actions
        if record is None or any(_says_the_same(old, record) for old in before):
            continue
        rest = [old for old in before if (old.action, old.target) != (record.action, record.target)]
        status = refitted(incident.status, actions=merged_records(rest, [record]))
        yield from update(incident, status, "explain-spare")


def _says_the_same(old: ActionRecord, new: ActionRecord) -> bool:
    return msgspec.structs.replace(old, at=new.at) == new


def _record(
    world: World, spares: list[Spare], need: _Need, spare: Spare | None, now: datetime
) -> ActionRecord | None:
    if spare is not None:
        message = f"the spare {spare.name} takes pods in place of {need.name} until that node is back"
        return fitted(
            ActionRecord,
            at=now,
            action=Act.LIFT_SPARE,
            target=need.name,
            outcome=Outcome.DONE,
            message=message,
        )
    out = need.like
    peers = [] if out is None else [s for s in spares if s.labelled and _same_pool(world, s.node, out)]
    if out is None or not peers:
        return None
    pool = out.labels.get(world.pool_label)
    wanted = "a spare" + (f" of pool {pool}" if pool else "")
    devices = ", ".join(f"{name}: {count}" for name, count in sorted(out.capacity.items()) if count)
    wanted += f" with {devices}" if devices else ""
    return fitted(
        ActionRecord,
        at=now,
        action=Act.LIFT_SPARE,
        target=need.name,
        outcome=Outcome.REFUSED,
        reason=Reason.NO_SPARE,
        message=f"Rekindle looked for {wanted} in place of {need.name}: {_none_of(len(peers))} "
        f"free, healthy, and allowed by the node selector and affinity of a job that used {need.name}",
    )


def _none_of(count: int) -> str:
    return "the only spare is not" if count == 1 else f"none of the {count} spares is"
