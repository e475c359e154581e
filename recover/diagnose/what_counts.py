"""Decides whether a finding counts, and for what. Pure. Triage, placement, spares and repair use the answer.

    open         it shows a fault of this boot. Since it was seen, nobody has returned the node to service or
                 closed its Incident (answered.py), and no work on the node's driver explains it
                 (set_aside.py)
    a proof      open, of a class that takes its node out of service, and either fatal or with the verdict
                 that the device must be drained: it excludes the node for as long as it is open, also if it
                 is older than the mode in force
    a suspicion  open, and no proof: it makes other nodes preferable. It ends with time, and with steps that
                 training made on that node after it

Whether a proof may also cordon its node is decided by recover/triage/guard.py (mode, holds, budgets).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from detectors.wire.contract import Finding, NodeHealth, Remedy, Severity
from recover.api import Incident
from recover.diagnose.answered import Answer, answered, answers
from recover.diagnose.failing_starts import suspected_of_starts
from recover.diagnose.kubelet_words import doubted_by_kubelets
from recover.diagnose.set_aside import aside_origins, has_findings, of_this_boot
from recover.diagnose.signals import doubted_by_others
from recover.diagnose.what_trained import trained_over
from recover.model import Node, World
from recover.policy.faults import QuarantineLevel, quarantine_level

__all__ = [
    "degraded",
    "incidents_by_node",
    "is_proof",
    "open_findings",
    "proofs",
    "proven",
    "strength",
    "suspected",
]

_FATAL = 4
"""Strength of a fatal proof."""
_DEGRADED = 2
"""Strength of a finding that shows a degraded device."""


def open_findings(
    node: Node, health: NodeHealth | None, given: Collection[Answer], now: datetime
) -> list[Finding]:
    """Returns the node's open findings of its present boot that none of the answers `given` has answered.
    While somebody works on the node's driver, findings of the driver do not count."""
    if not has_findings(node, health):
        return []
    aside = aside_origins(node, now)
    return [
        finding
        for finding in of_this_boot(node, health, now)
        if finding.origin not in aside and not answered(finding, given, now)
    ]


def incidents_by_node(world: World) -> dict[str, list[Incident]]:
    found: dict[str, list[Incident]] = {}
    for incident in world.incidents.values():
        if incident.spec.node:
            found.setdefault(incident.spec.node, []).append(incident)
    return found


def is_proof(finding: Finding) -> bool:
    """Whether the open finding proves that work on its node would be lost, or shows that the vendor forbids
    new work there."""
    drain = finding.remedy is Remedy.DRAIN_AND_RESET
    return quarantine_level(finding.fault, finding.severity, drain=drain) is QuarantineLevel.CORDON


def strength(finding: Finding) -> int:
    """Returns how much an open finding demands by its class and severity. From strong to weak: a fatal proof,
    a proof, a degraded device, a fatal finding of a class without actions, any other finding."""
    if is_proof(finding):
        return _FATAL if finding.severity is Severity.FATAL else 3
    if quarantine_level(finding.fault, finding.severity) is not QuarantineLevel.NONE:
        return _DEGRADED
    return 1 if finding.severity is Severity.FATAL else 0


def proven(world: World, now: datetime) -> dict[str, str]:
    """Returns the nodes with a proof, and the code of the strongest proof."""
    return {name: worst.code for name, worst in _worst(world, now) if is_proof(worst)}


def degraded(world: World, now: datetime) -> dict[str, str]:
    """Returns the nodes with a proof or with a degraded device, and the code of the strongest finding."""
    return {name: worst.code for name, worst in _worst(world, now) if strength(worst) >= _DEGRADED}


def suspected(world: World, now: datetime, window_s: float) -> dict[str, str]:
    """Returns the nodes that only a suspicion makes less preferable, with the code of the suspicion. First
    come the nodes that their agents suspect, then those suspected because of failing starts, by kubelets, or
    by other controllers, each group sorted by name. The second group does not count if it has every
    accelerator node. A signal of another controller counts until that controller removes it."""
    found = suspected_by_agents(world, now, window_s)
    others = _apart(world, _doubts(world, now, window_s))
    return found | {name: others[name] for name in sorted(others) if name not in found}


def suspected_by_agents(world: World, now: datetime, window_s: float) -> dict[str, str]:
    """Returns the nodes that findings of their agents make suspects, with the code of the strongest finding,
    sorted by name. A suspicion does not count if it is older than `window_s`, or if a training has made steps
    on the node since."""
    since = now - timedelta(seconds=window_s)
    found = {}
    by_node = incidents_by_node(world)
    for node, health in _reported(world):
        fresh = [
            finding
            for finding in open_findings(node, health, answers(node, by_node.get(node.name, ())), now)
            if finding.last_seen >= since and not trained_over(finding, health)
        ]
        if fresh and not any(map(is_proof, fresh)):
            found[node.name] = max(fresh, key=strength).code
    return {name: found[name] for name in sorted(found)}


def _doubts(world: World, now: datetime, window_s: float) -> dict[str, str]:
    """Returns the suspicions that do not come from the nodes' agents."""
    starts, kubelets = suspected_of_starts(world, now, window_s), doubted_by_kubelets(world, now, window_s)
    return starts | kubelets | doubted_by_others(world, now)


def _apart(world: World, told: dict[str, str]) -> dict[str, str]:
    """Returns `told`, or nothing if `told` names every accelerator node: then it does not distinguish any
    node from another."""
    nodes = (world.nodes.get(name) for name in told)
    accelerated = sum(1 for node in nodes if node is not None and node.is_accelerated)
    return {} if accelerated == world.accelerated() else told


def proofs(
    node: Node, health: NodeHealth | None, incidents: Iterable[Incident], now: datetime
) -> list[Finding]:
    """Returns the node's proofs. `incidents` may also be about other nodes."""
    about = [incident for incident in incidents if incident.spec.node == node.name]
    return [one for one in open_findings(node, health, answers(node, about), now) if is_proof(one)]


def _worst(world: World, now: datetime) -> Iterable[tuple[str, Finding]]:
    by_node = incidents_by_node(world)
    for node, health in _reported(world):
        found = open_findings(node, health, answers(node, by_node.get(node.name, ())), now)
        if found:
            yield node.name, max(found, key=strength)


def _reported(world: World) -> Iterable[tuple[Node, NodeHealth]]:
    for name, health in world.subjects.health.items():
        node = world.nodes.get(name)
        if node is not None and has_findings(node, health):
            yield node, health
