"""Keeps the condition `AcceleratorHealthy` of each accelerator Node, for tools that read conditions. Pure.

The condition is off unless a setting enables it. While the condition is off, and on nodes without
accelerators, Rekindle removes an existing condition. Nothing here decides what is done about a fault, and no
diagnosis reads the condition back.

| status | when |
|---|---|
| False | Rekindle has taken the node out of service, or a finding that takes the node out is open |
| Unknown | the node's agent is blind: it would not report a fault |
| True | otherwise; a degraded node still computes correctly |

The change to False is written at once. Every other change, including a change of the reason, is written once
the change has lasted for a minute, so that an agent that comes and goes causes no write. While the setting is
on, a node with a hold keeps the condition that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from detectors.wire.resource import StrategicPatch
from recover.api.marks import OWN_CONDITION
from recover.api.reasons import NODE_EXPLANATIONS, NodeReason
from recover.diagnose.coverage import unwatched
from recover.diagnose.what_counts import proven
from recover.k8s.kinds import NODES
from recover.model import Node, OwnCondition, Refusal, World
from recover.model.actions import Patch, Plan
from recover.model.world import place
from recover.policy.consent import hold_of_node
from recover.triage.guard import is_out_of_service

__all__ = ["STATUS_OF", "Wanted", "told_away", "told_nodes"]

STEADY_S = 60.0
"""Time that a change must last before it is written; the change to False is written at once."""

AT_ONCE_MAX = 50
"""Number of nodes that one reconcile writes, one after the other: ten thousand nodes are written in a few
minutes, and if the API server refuses the first of these writes, the rest is not tried."""

REFUSED_S = 600.0
"""Pause after a refusal. No decision waits for this write."""

REFUSED_NODES_MAX = 3
"""Number of refused nodes from which the write counts as refused in general, for example for a missing
permission. Rekindle then tries no node."""

MESSAGE_CHARS_MAX = 512

_NODE = place(NODES, "")
"""Beginning of the key of a refused write of a Node."""
STATUS_OF = "/status"
"""End of the key of a refused write of a Node's status in `World.refused`."""


class Wanted(msgspec.Struct, frozen=True):
    """The condition that a Node should have."""

    told: OwnCondition | None
    since: datetime
    is_urgent: bool
    """Whether the change is a change to False, or a removal."""

    @property
    def due_at(self) -> datetime:
        return self.since if self.is_urgent else self.since + timedelta(seconds=STEADY_S)


def told_nodes(
    world: World, before: Mapping[str, Wanted], now: datetime, *, is_on: bool
) -> tuple[Plan, dict[str, Wanted]]:
    """Returns the writes that are due now, and the wanted conditions of the nodes that differ from them. The
    caller passes the second value to its next call: the value says since when each difference has lasted."""
    wanted = {
        name: _since(before.get(name), world.nodes[name].told, told, now)
        for name, told in (_wishes(world, now) if is_on else _takes_back(world))
    }
    due = [name for name, one in wanted.items() if one.due_at <= now]
    writes = _writable(world, due, now)[:AT_ONCE_MAX]
    chain = tuple(_patch(world.nodes[name], wanted[name].told, now) for name in writes)
    moments = [one.due_at for one in wanted.values() if one.due_at > now]
    moments += _tried_again(world, now) if due else []
    waits = [(at - now).total_seconds() for at in moments]
    return Plan((chain,) if chain else (), min(waits, default=None)), wanted


def _wishes(world: World, now: datetime) -> Iterator[tuple[str, OwnCondition | None]]:
    """Yields each node whose condition differs from what it should be."""
    proofs = proven(world, now)
    for name, node in world.nodes.items():
        told = _own_condition(world, node, proofs.get(name, ""), now) if node.is_accelerated else None
        if told != node.told and not hold_of_node(node, now):
            yield name, told


def _takes_back(world: World) -> Iterator[tuple[str, OwnCondition | None]]:
    """Yields each node with the condition, for its removal. A hold keeps Rekindle off a node, but does not
    protect the condition that Rekindle itself has written."""
    return ((name, None) for name, node in world.subjects.nodes.items() if node.told is not None)


def _own_condition(world: World, node: Node, proof: str, now: datetime) -> OwnCondition:
    """Returns the condition that a node should have. The message has no time and no count, so it changes only
    with its meaning."""
    more = f"; for details: rekindle why node/{node.name}"
    note = node.quarantine
    if note is not None and is_out_of_service(node):
        why = f"Rekindle has put this node into quarantine ({note.fault}, Incident {note.incident})"
        return _condition(NodeReason.QUARANTINED, why + more)
    if proof:
        return _condition(
            NodeReason.FAULT_FOUND, f"{proof} is open on this node and requires a quarantine" + more
        )
    if why_not := unwatched(world, node, now):
        return _condition(
            NodeReason.NOT_WATCHED, f"Rekindle does not know whether the node has a fault: {why_not}"
        )
    if note is not None:
        return _condition(NodeReason.DEGRADED, f"a device is degraded ({note.fault})" + more)
    return _condition(
        NodeReason.NO_FAULT, "Rekindle watches this node, and has found no fault that requires a quarantine"
    )


def _condition(reason: NodeReason, message: str) -> OwnCondition:
    status, _ = NODE_EXPLANATIONS[reason]
    return OwnCondition(status, reason, message[:MESSAGE_CHARS_MAX])


def _since(
    before: Wanted | None, there: OwnCondition | None, told: OwnCondition | None, now: datetime
) -> Wanted:
    is_urgent = told is None or (told.status == "False" and (there is None or there.status != "False"))
    since = before.since if before is not None and before.told == told else now
    return Wanted(told, since, is_urgent)


# --- refusals ---------------------------------------------------------------------------------------------


def _writable(world: World, names: list[str], now: datetime) -> list[str]:
    refused = _refused(world, now)
    if len(refused) >= REFUSED_NODES_MAX:
        return []
    return [name for name in names if name not in refused]


def _refused(world: World, now: datetime) -> dict[str, Refusal]:
    """Returns the nodes whose status write was refused less than `REFUSED_S` ago."""
    return {
        key[len(_NODE) : -len(STATUS_OF)]: refusal
        for key, refusal in world.refused.items()
        if key.startswith(_NODE) and key.endswith(STATUS_OF) and _again_at(refusal) > now
    }


def _tried_again(world: World, now: datetime) -> list[datetime]:
    return [_again_at(refusal) for refusal in _refused(world, now).values()]


def _again_at(refusal: Refusal) -> datetime:
    return refusal.at + timedelta(seconds=REFUSED_S)


# --- the writes -------------------------------------------------------------------------------------------


def _patch(node: Node, told: OwnCondition | None, now: datetime) -> Patch:
    return told_away(node) if told is None else _tell(node, told, now)


def _tell(node: Node, told: OwnCondition, now: datetime) -> Patch:
    """Returns the patch that writes the condition. `lastTransitionTime` is the time when the status changed.
    If only the reason or message changes, the patch leaves the field out, and the merge keeps the existing
    value."""
    condition: dict[str, Any] = {
        "type": OWN_CONDITION,
        "status": told.status,
        "reason": told.reason,
        "message": told.message,
        "lastHeartbeatTime": _time(now),
    }
    if node.told is None or node.told.status != told.status:
        condition["lastTransitionTime"] = _time(now)
    return _status_patch("tell-node", node, condition, version=node.version)


def told_away(node: Node) -> Patch:
    """Returns the patch that removes the condition. The condition is ours, so the patch applies to any
    version of the Node."""
    return _status_patch("untell-node", node, {"type": OWN_CONDITION, "$patch": "delete"}, version="")


def _status_patch(what: str, node: Node, condition: dict[str, Any], *, version: str) -> Patch:
    return Patch(
        what=what,
        resource=NODES,
        name=node.name,
        uid=node.uid,
        version=version,
        subresource="status",
        patch_type=StrategicPatch,
        body={"status": {"conditions": [condition]}},
    )


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
