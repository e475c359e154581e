"""Quarantine of a node and its undoing, each one patch. Pure.

A cordon is `spec.unschedulable` plus our taint; degraded nodes get the taint alone, as PreferNoSchedule. The
annotation in the same patch holds what undoes it exactly. Taints are one atomic list, so every patch carries
the version of the node that was seen. People win: whoever uncordons the node, or removes our taint, releases
it, and what was seen before that no longer acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from detectors.contract import key
from recover.actions import Action, Emit, Patch
from recover.decode import QUARANTINE, RELEASED, UNHEALTHY
from recover.diagnose.model import Diagnosis
from recover.model import Node, Quarantine, Taint, World
from recover.objects import regarding
from recover.policy import QuarantineLevel
from recover.reasons import EventReason
from recover.resources import NODES

__all__ = ["is_stronger", "quarantine", "releases", "words"]

_HEALTH = key("health")
_EFFECTS = {QuarantineLevel.CORDON: "NoSchedule", QuarantineLevel.PREFER: "PreferNoSchedule"}
_HEALTH_WORDS = {QuarantineLevel.CORDON: "faulted", QuarantineLevel.PREFER: "degraded"}


def quarantine(node: Node, diagnosis: Diagnosis, level: QuarantineLevel, now: datetime) -> Patch:
    cordons = level is QuarantineLevel.CORDON and (
        not node.unschedulable or (node.quarantine is not None and node.quarantine.cordoned)
    )
    note = Quarantine(incident=diagnosis.name, fault=diagnosis.fault, at=now, cordoned=cordons)
    spec: dict[str, Any] = {
        "taints": [
            *_others(node),
            {"key": UNHEALTHY, "value": str(diagnosis.fault), "effect": _EFFECTS[level]},
        ]
    }
    if cordons:
        spec["unschedulable"] = True
    return _patch(
        node,
        "quarantine-node",
        annotations={QUARANTINE: msgspec.json.encode(note).decode()},
        health=_HEALTH_WORDS[level],
        spec=spec,
    )


def is_stronger(level: QuarantineLevel, node: Node) -> bool:
    """True where a degraded node has become a faulted one."""
    return level is QuarantineLevel.CORDON and any(
        t.key == UNHEALTHY and t.effect == "PreferNoSchedule" for t in node.taints
    )


def words(level: QuarantineLevel, diagnosis: Diagnosis) -> str:
    taint = f"{UNHEALTHY}={diagnosis.fault}:{_EFFECTS[level]}"
    return f"cordoned and tainted {taint}" if level is QuarantineLevel.CORDON else f"tainted {taint}"


def releases(world: World, now: datetime) -> Iterator[tuple[Action, ...]]:
    """Completes what a person began: after an uncordon, or our taint's removal, nothing of ours stays."""
    for node in world.nodes.values():
        note = node.quarantine
        if note is None or not _released(node, note):
            continue
        spec: dict[str, Any] = {"taints": _others(node) or None}
        if note.cordoned:
            spec["unschedulable"] = None
        release = _patch(
            node,
            "release-node",
            annotations={QUARANTINE: None, RELEASED: now.isoformat()},
            health=None,
            spec=spec,
        )
        event = Emit(
            reason=EventReason.NODE_RELEASED,
            message=f"A person released {node.name}; incident {note.incident} no longer acts on it",
            regarding=regarding("v1", "Node", node.name, node.uid),
            key=f"{note.incident}-released",
        )
        yield release, event


def _released(node: Node, note: Quarantine) -> bool:
    uncordoned = note.cordoned and not node.unschedulable
    untainted = not any(taint.key == UNHEALTHY for taint in node.taints)
    return uncordoned or untainted


def _others(node: Node) -> list[dict[str, str]]:
    """Everybody else's taints, as they were."""
    return [
        {name: value for name, value in _fields(taint).items() if value}
        for taint in node.taints
        if taint.key != UNHEALTHY
    ]


def _fields(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}


def _patch(
    node: Node, what: str, *, annotations: dict[str, str | None], health: str | None, spec: dict[str, Any]
) -> Patch:
    return Patch(
        what=what,
        resource=NODES,
        name=node.name,
        uid=node.uid,
        version=node.version,
        body={"metadata": {"annotations": annotations, "labels": {_HEALTH: health}}, "spec": spec},
    )
