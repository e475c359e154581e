"""Keeps one NodeHealth for each accelerator node, and tells its agent how to read the pods' steps, and which
log lines people's own recipes look for.

Agents may not create their own object: it is made here, owned by the Node, so that it goes with it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detectors.contract import NodeHealth, NodeHealthSpec, PodSettings, key
from recover.actions import Action, Create, Patch, Plan
from recover.durations import parse_s
from recover.model import Gang, Node, Pod, World
from recover.objects import body, builtins
from recover.resources import NODEHEALTHS, NODES

__all__ = ["HANG_TIMEOUT", "STEP_TEMPLATE", "upkeep", "usable_template"]

STEP_TEMPLATE = key("step-template")
HANG_TIMEOUT = key("hang-timeout")


def upkeep(world: World) -> Plan:
    """Missing NodeHealths, and specs that differ from what the jobs' annotations and the recipes say."""
    chains: list[tuple[Action, ...]] = []
    signatures = list(world.signatures)
    known = signatures
    for node in world.nodes.values():
        if not node.is_accelerated:
            continue
        pods = sorted(_pods(world, node.name), key=lambda p: p.uid)[:64]
        spec = NodeHealthSpec(pods=pods, signatures=signatures)
        health = world.health.get(node.name)
        if health is None:
            chains.append((_create(node, spec),))
            continue
        if health.spec.signatures is not known and health.spec.signatures == signatures:
            known = health.spec.signatures  # the same list in most nodes: it is compared once
        if health.spec.pods != pods or health.spec.signatures is not known:
            chains.append((_update(health, spec),))
    return Plan(chains=tuple(chains))


def _pods(world: World, node: str) -> Iterator[PodSettings]:
    """Only pods whose job says something: the agent knows the common forms by itself."""
    for uid in world.gangs_on.get(node, ()):
        gang = world.gangs.get(uid)
        if gang is None or not (STEP_TEMPLATE in gang.annotations or HANG_TIMEOUT in gang.annotations):
            continue
        for pod in world.pods(uid):
            if pod.node == node and not pod.ended:
                yield _settings(gang, pod)


def usable_template(text: str) -> bool:
    return text.count("{step}") == 1 and len(text) <= 128


def _settings(gang: Gang, pod: Pod) -> PodSettings:
    template = gang.annotations.get(STEP_TEMPLATE, "")
    return PodSettings(
        uid=pod.uid,
        step_template=template if usable_template(template) else "",
        hang_timeout_s=parse_s(gang.annotations.get(HANG_TIMEOUT, "")),
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
    return changes
