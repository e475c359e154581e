"""Keeps one NodeHealth for each accelerator node, and tells its agent how to read the pods' steps, which log
lines people's own recipes look for, for which checkpoints the controller waits, and when to let go of its
devices for a repair.

Agents may not create their own object: it is made here, owned by the Node, so that it goes with it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from detectors.text.sharing import in_turn
from detectors.wire.contract import NodeHealth, NodeHealthSpec
from detectors.wire.fitting import fit, fitted, refitted
from detectors.wire.training import PodSettings
from recover.api import GangRef
from recover.api.repair_state import StepKind
from recover.diagnose.awaited import requests
from recover.k8s.bodies import body, builtins
from recover.k8s.durations import parse_s
from recover.k8s.kinds import NODEHEALTHS, NODES
from recover.model import Gang, Node, Pod, World
from recover.model.actions import Action, Create, Patch, Plan
from recover.policy.consent import OptIn, opt_in
from recover.policy.step_words import HANG_TIMEOUT, STEP_TEMPLATE, usable_template

__all__ = ["upkeep"]


class _Named(msgspec.Struct, frozen=True):
    """A pod that its agent is told of."""

    gang: GangRef
    settings: PodSettings
    opted_in: bool


def upkeep(world: World) -> Plan:
    """Missing NodeHealths, and specs that differ from what the jobs' annotations and the recipes say."""
    chains: list[tuple[Action, ...]] = []
    signatures = list(world.signatures)
    known = signatures
    bare = fitted(NodeHealthSpec, signatures=signatures)
    hands_off, waits = _hands_off(world), requests(world)
    unread = world.unread.get(NODEHEALTHS, ())
    for node in world.nodes.values():
        if not node.is_accelerated or node.name in unread:
            continue
        pods = sorted(_pods(world, node.name, waits), key=lambda pod: pod.uid)
        step = hands_off.get(node.name, "")
        spec = refitted(bare, pods=pods, hands_off=step) if pods or step else bare
        health = world.health.get(node.name)
        if health is None:
            chains.append((_create(node, spec),))
            continue
        if health.spec.signatures is not known and health.spec.signatures == signatures:
            known = health.spec.signatures  # the same list in most nodes: it is compared once
        told = health.spec
        if told.pods != spec.pods or told.signatures is not known or told.hands_off != step:
            chains.append((_update(health, spec),))
    return Plan(chains=tuple(chains))


def _hands_off(world: World) -> dict[str, str]:
    """Node -> the reset under way there: until its end the agent holds no device."""
    found = {}
    for incident in world.incidents.values():
        repair = incident.status.repair
        step = repair.step if repair is not None and repair.active else None
        if step is not None and step.kind is StepKind.RESET:
            found[incident.spec.node] = step.job
    return found


def _pods(world: World, node: str, waits: Mapping[str, str]) -> list[PodSettings]:
    """As many as there is room for: first those whose next checkpoint the controller waits for, then those
    of jobs that opted in. Anybody may annotate pods, so each namespace gets its share, and each job of it."""

    def rank(named: _Named) -> tuple[bool, bool]:
        return not named.settings.awaits_save, not named.opted_in

    found = sorted(_named(world, node, waits), key=lambda named: named.settings.uid)
    if not found:
        return []
    fair = in_turn(in_turn(found, lambda n: n.gang.uid), lambda n: (n.gang.namespace, rank(n)))
    return fit(NodeHealthSpec, "pods", [named.settings for named in sorted(fair, key=rank)])


def _named(world: World, node: str, waits: Mapping[str, str]) -> Iterator[_Named]:
    """Only pods whose job says something, or whose next checkpoint the controller waits for: the agent knows
    the common forms by itself. Where it leaves out some, those of all jobs that opted in: whom it is told of
    comes first."""
    uids = sorted(world.gangs_on.get(node, ()))
    crowded = bool(uids) and world.is_crowded(node)
    for uid in uids:
        gang = world.gangs.get(uid)
        if gang is None:
            continue
        says = STEP_TEMPLATE in gang.annotations or HANG_TIMEOUT in gang.annotations
        if not says and not crowded and not waits:
            continue
        opted_in = opt_in(gang, world.namespaces.get(gang.ref.namespace)) is OptIn.ENABLED
        is_named = says or (crowded and opted_in)
        for pod in world.pods(uid):
            if pod.node == node and not pod.ended and (is_named or pod.uid in waits):
                yield _Named(gang.ref, _settings(gang, pod, waits.get(pod.uid, "")), opted_in)


def _settings(gang: Gang, pod: Pod, awaits_save: str) -> PodSettings:
    template = gang.annotations.get(STEP_TEMPLATE, "")
    return fitted(
        PodSettings,
        uid=pod.uid,
        step_template=template if usable_template(template) else "",
        hang_timeout_s=parse_s(gang.annotations.get(HANG_TIMEOUT, "")),
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
    """Only what differs: the signatures are long, and pods come and go often."""
    changes: dict[str, Any] = {}
    if old.pods != new.pods:
        changes["pods"] = [builtins(pod) for pod in new.pods]
    if old.signatures != new.signatures:
        changes["signatures"] = [builtins(signature) for signature in new.signatures]
    if old.hands_off != new.hands_off:
        changes["handsOff"] = new.hands_off or None
    return changes
