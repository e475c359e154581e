"""Builds the patches that quarantine a node and that end the quarantine, one patch each. Pure.

A cordon is `spec.unschedulable` plus our taint. Degraded nodes get only the taint, with the effect
PreferNoSchedule. The annotation in the same patch has the facts to undo the patch exactly. Taints are one
atomic list, so every patch carries the version of the node that was seen. People's changes take precedence: a
person who uncordons the node, or removes our taint, ends the quarantine, and Rekindle no longer acts on
faults that it saw before. A repair ends the quarantine in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from detectors.wire.contract import Fault, Finding, key
from recover.api import Act, Answered
from recover.api.marks import QUARANTINE, RELEASED, RELEASED_FINDINGS, UNHEALTHY
from recover.api.reasons import EventReason
from recover.diagnose.released import answer_of_person, is_released
from recover.k8s.bodies import regarding
from recover.k8s.kinds import NODES
from recover.model import Node, Quarantine, Release, Taint, World
from recover.model.actions import Action, Emit, Patch
from recover.model.taints import as_written
from recover.policy.faults import QuarantineLevel

__all__ = [
    "announced",
    "close",
    "give_back",
    "is_stronger",
    "is_tainted",
    "noted_again",
    "out_words",
    "quarantine",
    "releases",
    "takes_no_pods",
    "undone_by",
    "words",
]

_HEALTH = key("health")
_EFFECTS = {QuarantineLevel.CORDON: "NoSchedule", QuarantineLevel.PREFER: "PreferNoSchedule"}
_HEALTH_WORDS = {QuarantineLevel.CORDON: "faulted", QuarantineLevel.PREFER: "degraded"}


def quarantine(node: Node, incident: str, fault: Fault, level: QuarantineLevel, now: datetime) -> Patch:
    cordons = level is QuarantineLevel.CORDON and _may_cordon(node)
    note = Quarantine(incident=incident, fault=fault, at=now, cordoned=cordons)
    return _quarantined(node, note, level)


def noted_again(node: Node, incident: str, fault: Fault, at: datetime) -> Patch:
    """Returns the patch that adds the note again to a node that has our taint. `at` is the time of the
    quarantine."""
    return quarantine(
        node, incident, fault, QuarantineLevel.CORDON if takes_no_pods(node) else QuarantineLevel.PREFER, at
    )


def close(node: Node) -> Patch:
    """Returns the patch that makes a node with a soft taint take no pods at all. Until now the node is in
    quarantine but takes pods that fit nowhere else; before its repair the node must take none."""
    assert node.quarantine is not None, "only what is ours is closed"
    note = msgspec.structs.replace(node.quarantine, cordoned=_may_cordon(node))
    return _quarantined(node, note, QuarantineLevel.CORDON)


def _may_cordon(node: Node) -> bool:
    """Whether Rekindle may cordon the node. A cordon that a person set stays the person's. If somebody has
    removed the note, our taint shows that the cordon came with it: one patch sets both."""
    if node.quarantine is None:
        return not node.unschedulable or takes_no_pods(node)
    return not node.unschedulable or node.quarantine.cordoned


def _quarantined(node: Node, note: Quarantine, level: QuarantineLevel) -> Patch:
    spec: dict[str, Any] = {
        "taints": as_written([*_others(node), Taint(UNHEALTHY, _EFFECTS[level], note.fault)])
    }
    if note.cordoned:
        spec["unschedulable"] = True
    return _patch(
        node,
        Act.QUARANTINE_NODE.value,
        annotations={QUARANTINE: _words_of(note)},
        health=_HEALTH_WORDS[level],
        spec=spec,
    )


def announced(node: str, marks: str, cause: str) -> str:
    """Returns the Event's message, without the Incident. `marks` comes from `words`."""
    return f"Rekindle quarantined {node} ({marks}). The cause: {cause}"


def takes_out(action: Patch) -> bool:
    """Whether the patch takes a node out of service, as budgets count it. A soft taint does not."""
    taints = action.body.get("spec", {}).get("taints") or []
    effect = _EFFECTS[QuarantineLevel.CORDON]
    return action.what == Act.QUARANTINE_NODE and any(
        taint["key"] == UNHEALTHY and taint["effect"] == effect for taint in taints
    )


def takes_no_pods(node: Node) -> bool:
    """Whether our own taint keeps pods off the node: only pods that tolerate the taint are allowed in."""
    return any(t.key == UNHEALTHY and t.effect == _EFFECTS[QuarantineLevel.CORDON] for t in node.taints)


def is_tainted(node: Node) -> bool:
    """Whether the node has our taint, with any effect."""
    return any(taint.key == UNHEALTHY for taint in node.taints)


def is_stronger(level: QuarantineLevel, node: Node) -> bool:
    """Whether the level is stronger than the node's quarantine: a degraded node has become a faulted node."""
    return level is QuarantineLevel.CORDON and any(
        t.key == UNHEALTHY and t.effect == "PreferNoSchedule" for t in node.taints
    )


def words(level: QuarantineLevel, fault: Fault) -> str:
    taint = f"{UNHEALTHY}={fault}:{_EFFECTS[level]}"
    return f"cordoned and tainted {taint}" if level is QuarantineLevel.CORDON else f"tainted {taint}"


def undone_by(node: str, note: Quarantine) -> str:
    """Returns the command by which a person ends the quarantine."""
    return f"kubectl uncordon {node}" if note.cordoned else f"kubectl taint node {node} {UNHEALTHY}-"


def out_words(node: Node, what: str) -> str:
    """Returns the words that the node is quarantined for `what`, and the command that ends the quarantine."""
    note = node.quarantine
    undo = f"; after the repair: `{undone_by(node.name, note)}`" if note is not None else ""
    return f"quarantined ({what}{undo})"


def releases(world: World, nodes: Iterable[Node], now: datetime) -> Iterator[tuple[Action, ...]]:
    """Completes what a person began: after an uncordon, or the removal of our taint, nothing of ours
    stays."""
    for node in nodes:
        note = node.quarantine
        if note is None or not is_released(node):
            continue
        found = answer_of_person(world, node, now)
        message = f"A person ended the quarantine of {node.name}. {_no_more(node, note, found.news)}"
        yield _release(node, note, message, found.answer.at, found.answer.known)


def _no_more(node: Node, note: Quarantine, news: Iterable[Finding]) -> str:
    """Returns which findings Rekindle no longer acts on."""
    codes = ", ".join(dict.fromkeys(finding.code for finding in news))
    if not codes:
        return f"Rekindle takes no further action on the node for Incident {note.incident}"
    return (
        f"Rekindle takes no further action on the findings that Incident {note.incident} has shown. While "
        f"Rekindle could not follow the node, its agent has reported {codes[:200]}. These findings may be "
        "newer than the end of the quarantine, so Rekindle acts on them"
    )


def give_back(
    node: Node, message: str, decided_at: datetime, answered: Answered | None
) -> tuple[Action, ...]:
    """Returns the actions that end the quarantine after a repair. The node is then as it was before its
    quarantine, and Rekindle no longer acts on what it knew at `decided_at`."""
    assert node.quarantine is not None, "only what is ours is given back"
    return _release(node, node.quarantine, message, decided_at, answered)


def _release(
    node: Node, note: Quarantine, message: str, at: datetime, answered: Answered | None
) -> tuple[Action, ...]:
    spec: dict[str, Any] = {"taints": as_written(_others(node))}
    if note.cordoned:
        spec["unschedulable"] = None
    known = _words_of(Release(at, answered, note.incident)) if answered is not None else None
    release = _patch(
        node,
        Act.RELEASE_NODE.value,
        annotations={
            QUARANTINE: None,
            RELEASED: at.isoformat(),
            RELEASED_FINDINGS: known,
        },
        health=None,
        spec=spec,
    )
    event = Emit(
        reason=EventReason.NODE_RELEASED,
        message=message,
        regarding=regarding("v1", "Node", node.name, node.uid),
        key=f"{note.incident}-released",
    )
    return release, event


def _words_of(note: Quarantine | Release) -> str:
    return msgspec.json.encode(note).decode()


def _others(node: Node) -> list[Taint]:
    """Returns the taints that are not ours."""
    return [taint for taint in node.taints if taint.key != UNHEALTHY]


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
