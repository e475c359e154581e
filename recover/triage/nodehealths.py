"""Keeps one NodeHealth for each accelerator node. Its spec tells the node's agent how to read the steps of
pods, which log lines people's own recipes look for, for which checkpoints the controller waits, and when to
close the devices for a repair.

Agents may not create their own NodeHealth. The controller creates it, owned by the Node, so that the API
server deletes it with the Node. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from detectors.text.sharing import in_turn
from detectors.wire.contract import NodeHealth, NodeHealthSpec
from detectors.wire.fitting import fit, fitted, refitted
from detectors.wire.training import Pace, PodSettings
from recover.api import GangRef
from recover.api.repair_state import StepKind
from recover.diagnose.awaited import requests
from recover.diagnose.pace import known_pace
from recover.k8s.bodies import body, builtins
from recover.k8s.kinds import NODEHEALTHS, NODES
from recover.model import Gang, Node, Pod, World
from recover.model.actions import Action, Create, Patch, Plan
from recover.policy.consent import OptIn, opt_in
from recover.policy.step_words import HANG_TIMEOUT, STEP_TEMPLATE, hang_timeout_s, usable_template

__all__ = ["is_spec_current", "upkeep"]


class _Named(msgspec.Struct, frozen=True):
    """A pod about which the spec has settings for the agent."""

    gang: GangRef
    settings: PodSettings
    opted_in: bool


def upkeep(world: World) -> Plan:
    """Returns the writes for missing NodeHealths, and for specs that differ from the jobs' annotations and
    the recipes."""
    bare = fitted(NodeHealthSpec, signatures=list(world.signatures))
    hands_off, asked = _hands_off(world), requests(world)
    waits = {pod.uid: wait for pod, wait in asked}
    names = {*world.subjects.outdated_specs, *hands_off, *(pod.node for pod, _ in asked)}
    unread = world.unread.get(NODEHEALTHS, ())
    chains: list[tuple[Action, ...]] = []
    for name in sorted(names.difference(unread)):
        node = world.nodes.get(name)
        if node is None or not node.is_accelerated:
            continue
        spec = _wanted(world, name, bare, waits, hands_off.get(name, ""))
        health = world.health.get(name)
        if health is None:
            chains.append((_create(node, spec),))
        elif _differs(health.spec, spec):
            chains.append((_update(health, spec),))
    return Plan(chains=tuple(chains))


def is_spec_current(world: World, node: Node) -> bool:
    """Whether the agent of the node has everything that it needs, and has nothing to do for a repair or a
    wait, because these may end at any time."""
    health = world.health.get(node.name)
    if not node.is_accelerated or node.name in world.unread.get(NODEHEALTHS, ()):
        return True
    if health is None or health.spec.hands_off or any(pod.awaits_save for pod in health.spec.pods):
        return False
    bare = fitted(NodeHealthSpec, signatures=list(world.signatures))
    return not _differs(health.spec, _wanted(world, node.name, bare, {}, ""))


def _wanted(
    world: World, node: str, bare: NodeHealthSpec, waits: Mapping[str, str], hands_off: str
) -> NodeHealthSpec:
    pods = sorted(_pods(world, node, waits), key=lambda pod: pod.uid)
    return refitted(bare, pods=pods, hands_off=hands_off) if pods or hands_off else bare


def _differs(told: NodeHealthSpec, spec: NodeHealthSpec) -> bool:
    return told.pods != spec.pods or told.hands_off != spec.hands_off or told.signatures != spec.signatures


def _hands_off(world: World) -> dict[str, str]:
    """Returns the job of the reset that is under way on each node. Until the reset ends, the agent must keep
    no device open."""
    found = {}
    for incident in world.incidents.values():
        repair = incident.status.repair
        step = repair.step if repair is not None and repair.active else None
        if step is not None and step.kind is StepKind.RESET:
            found[incident.spec.node] = step.job
    return found


def _pods(world: World, node: str, waits: Mapping[str, str]) -> list[PodSettings]:
    """Returns as many pods as the spec has room for. Pods whose next checkpoint the controller waits for come
    first, then pods of jobs that opted in. Anybody may annotate pods, so each namespace gets its share, and
    so does each job in the namespace."""

    def rank(named: _Named) -> tuple[bool, bool]:
        return not named.settings.awaits_save, not named.opted_in

    found = sorted(_named(world, node, waits), key=lambda named: named.settings.uid)
    if not found:
        return []
    fair = in_turn(in_turn(found, lambda n: n.gang.uid), lambda n: (n.gang.namespace, rank(n)))
    return fit(NodeHealthSpec, "pods", [named.settings for named in sorted(fair, key=rank)])


def _named(world: World, node: str, waits: Mapping[str, str]) -> Iterator[_Named]:
    """Yields only pods whose job has settings or a known pace, or whose next checkpoint the controller waits
    for, because the agent knows the common forms by itself. On a crowded node, where the agent leaves out
    some pods, the pods of all jobs that opted in follow: the agent reads the pods of its spec first."""
    uids = sorted(world.gangs_on.get(node, ()))
    crowded = bool(uids) and world.is_crowded(node)
    for uid in uids:
        gang = world.gangs.get(uid)
        if gang is None:
            continue
        pace = known_pace(world.history(uid))
        says = STEP_TEMPLATE in gang.annotations or HANG_TIMEOUT in gang.annotations or pace is not None
        if not says and not crowded and not waits:
            continue
        opted_in = opt_in(gang, world.namespaces.get(gang.ref.namespace)) is OptIn.ENABLED
        is_named = says or (crowded and opted_in)
        for pod in world.pods_at(uid, node):
            if not pod.ended and (is_named or pod.uid in waits):
                yield _Named(gang.ref, _settings(gang, pod, pace, waits.get(pod.uid, "")), opted_in)


def _settings(gang: Gang, pod: Pod, pace: Pace | None, awaits_save: str) -> PodSettings:
    template = gang.annotations.get(STEP_TEMPLATE, "")
    return fitted(
        PodSettings,
        uid=pod.uid,
        step_template=template if usable_template(template) else "",
        hang_timeout_s=hang_timeout_s(gang.annotations),
        pace=pace,
        awaits_save=awaits_save,
    )


def _create(node: Node, spec: NodeHealthSpec) -> Create:
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node.name, "uid": node.uid}
    made = body(NODEHEALTHS, node.name, spec=spec)
    made["metadata"]["ownerReferences"] = [owner]
    return Create(what="create-nodehealth", resource=NODEHEALTHS, name=node.name, body=made)


def _update(health: NodeHealth, spec: NodeHealthSpec) -> Patch:
    return Patch(
        what="update-nodehealth",
        resource=NODEHEALTHS,
        name=health.metadata.name,
        uid=health.metadata.uid,
        version=health.metadata.resource_version,
        body={"spec": _changes(health.spec, spec)},
    )


def _changes(old: NodeHealthSpec, new: NodeHealthSpec) -> dict[str, Any]:
    """Returns only the fields that differ, because the signatures are long, and pods come and go often."""
    changes: dict[str, Any] = {}
    if old.pods != new.pods:
        changes["pods"] = [builtins(pod) for pod in new.pods]
    if old.signatures != new.signatures:
        changes["signatures"] = [builtins(signature) for signature in new.signatures]
    if old.hands_off != new.hands_off:
        changes["handsOff"] = new.hands_off or None
    return changes
