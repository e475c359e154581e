"""The mutants: small wrong decisions, each as somebody might write it by mistake. By the file that they
change."""

from __future__ import annotations

from tests.mutants.model import Mutant

__all__ = ["MUTANTS"]


def _of(file: str, *changes: tuple[str, str, str, str]) -> tuple[Mutant, ...]:
    """Each: name, search text, replacement, why it is harmful."""
    return tuple(Mutant(name, file, search, new, why) for name, search, new, why in changes)


_GUARD = _of(
    "recover/guard.py",
    (
        "rack limit ignored",
        "limit = limits.domain_nodes_max if percent is None else _share(len(peers), percent)",
        "limit = len(peers) if percent is None else _share(len(peers), percent)",
        "a whole rack may leave service",
    ),
    (
        "pool limit ignored",
        "limit = limits.domain_nodes_max if percent is None else _share(len(peers), percent)",
        "limit = limits.domain_nodes_max if percent is None else len(peers)",
        "a whole pool may leave service",
    ),
    (
        "cluster limit one too high",
        "if len(others) + 1 > cluster:",
        "if len(others) > cluster:",
        "one node more than allowed leaves service",
    ),
    (
        "hourly limit ignored",
        "if self._recent + 1 > limits.quarantines_per_hour_max:",
        "if self._recent < 0:",
        "a storm of false findings empties the cluster within the hour",
    ),
    (
        "soft taints use the budget",
        "        if level is not QuarantineLevel.CORDON:\n            return Allowed()\n",
        "",
        "a harmless sign keeps a dead GPU in service",
    ),
    (
        "brake ignored for nodes",
        "        if self.brakes:\n",
        "        if self.brakes and not self._nodes:\n",
        "a broken driver update cordons node after node",
    ),
    (
        "brake ignored for gangs",
        "if not harm.dead and self.brakes:",
        "if harm.dead and self.brakes:",
        "a mass fault stops jobs that train, and keeps dead ones down",
    ),
    (
        "brake one node too late",
        "if len(nodes) >= limits.brake_nodes_min and share",
        "if len(nodes) > limits.brake_nodes_min and share",
        "one node more is taken out before the brake",
    ),
    (
        "consent ignored",
        "if consent is OptIn.DISABLED:",
        "if consent is OptIn.DISABLED and gang.suspended:",
        "jobs are stopped whose people did not ask for it",
    ),
    (
        "hold of a node ignored",
        "if why := frozen(node, self._now):",
        "if (why := frozen(node, self._now)) and node.quarantine is not None:",
        "a node that people hold is taken from them",
    ),
    (
        "hold of a gang ignored",
        "if why := frozen_gang(gang, namespace, now):",
        "if (why := frozen_gang(gang, namespace, now)) and gang.suspended:",
        "a job that people hold is stopped",
    ),
    (
        "old evidence cordons",
        "        if diagnosis.seen_at < mode.acting_since:\n",
        "        if diagnosis.seen_at > mode.acting_since:\n",
        "the promotion to recover cordons for what was seen before, and nothing after",
    ),
    (
        "what people have undone is tried again",
        "if (last.phase, last.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER) else None",
        "if not last.phase else None",
        "Rekindle and another controller stop and start a job in turns",
    ),
    (
        "a degraded node moves a gang without a better place",
        "if not free.fits:",
        "if free.fits and free.missing:",
        "a job that trains is stopped and finds no place",
    ),
)

_EVIDENCE = _of(
    "recover/evidence.py",
    (
        "a fault of an earlier boot counts",
        "and finding.boot_id == boot == health.status.boot_id",
        "and boot == health.status.boot_id",
        "a node that has booted again is cordoned for what is over",
    ),
    (
        "a release answers nothing",
        "return max((end for end in (*ends, node.released_at) if end is not None), default=None)",
        "return max((end for end in ends if end is not None), default=None)",
        "a node is taken out again for what a person has released it from",
    ),
    (
        "a degraded device is a proof",
        "drain = finding.remedy is Remedy.DRAIN_AND_RESET\n    return",
        "drain = True\n    return",
        "a gang waits beside a place of use",
    ),
    (
        "a suspicion never ends",
        "if finding.last_seen >= since and not trained_over(finding, health)",
        "if finding.last_seen <= now",
        "a node that trained for days is avoided for a sign of long ago",
    ),
    (
        "proofs are forgotten",
        "return {name: found for name, found, is_proven in _worst(world, now) if is_proven}",
        "return {name: found for name, found, is_proven in _worst(world, now) if not is_proven}",
        "a gang is placed on a dead GPU that no budget let be cordoned",
    ),
    (
        "a weak finding hides a fatal one",
        "return 4 if finding.severity is Severity.FATAL else 3",
        "return 0 if finding.severity is Severity.FATAL else 3",
        "a dead GPU stays in service beside an unknown code",
    ),
)

MUTANTS: tuple[Mutant, ...] = (*_GUARD, *_EVIDENCE)
