"""Checks the coverage that must exist before an application may be blamed. Pure.

verdicts.py makes this check for the node of the first lost rank, and gang_faults.py for each node of a gang
that hangs. A source that is blind, that was not read yet when the rank was lost, or whose agent no longer
reports, is no evidence that the node is healthy. A family of faults is covered only if a rule or a reader of
detectors/sources reads its faults, however well the agent reads the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from detectors.wire.contract import Coverage, CoverageState, Family, Fault, NodeHealth, Source
from detectors.wire.open_findings import is_open
from recover.model import AgentPod, Node, World
from recover.policy.faults import QuarantineLevel, policies, quarantine_level

__all__ = [
    "FAMILIES",
    "Silence",
    "looked_at",
    "silence",
    "silence_of",
    "unread_sources",
    "unwatched",
    "why_not_covered",
]

FAMILIES: dict[Family, str] = {
    Family.GPU_XID: "GPUs (Xid)",
    Family.GPU_HEALTH: "GPUs (NVML)",
    Family.GPU_DRIVER: "the GPU driver",
    Family.NVSWITCH_SXID: "NVSwitches (SXid)",
    Family.NETWORK: "network adapters",
    Family.PCIE: "PCIe",
    Family.HOST_MEMORY: "host memory",
    Family.STORAGE: "storage",
    Family.OOM: "the kernel's out-of-memory killer",
    Family.HOST: "the host (lockups, machine checks)",
}
"""Names of the kinds of faults, for people."""
_REFRESHES = 3
"""Number of missed writes after which an agent that promised to write counts as dead."""
_REPORTED_WITHIN = timedelta(seconds=10)
"""Time within which an agent has reported what it saw. An agent that falls silent later has reported what it
saw before."""
_CLOCKS = timedelta(seconds=1)


class Silence(msgspec.Struct, frozen=True):
    """An agent that does not report."""

    node: str
    kind: str
    """The reason, in the same words for all nodes that are silent in the same way."""
    since: datetime | None = None
    """Time since which the agent is silent; None if nobody can tell."""

    @property
    def why(self) -> str:
        since = f" since {self.since:%H:%M:%S} UTC" if self.since is not None else ""
        return f"no agent reports from {self.node}{since}: {self.kind}"


def silence(world: World, node: str, now: datetime) -> Silence | None:
    """Returns why the agent of a node does not report, or None if it reports. The status of an agent that has
    ended stays in the NodeHealth, so the NodeHealth alone does not show whether the agent reports."""
    return silence_of(node, world.health.get(node), world.agents if world.agents_are_pods else None, now)


def silence_of(
    node: str, health: NodeHealth | None, agents: Mapping[str, AgentPod] | None, now: datetime
) -> Silence | None:
    """Returns the same as `silence`, for callers without a World. `agents` is by node, and None if agents are
    not pods."""
    if agents is None:
        return _outdated(node, health, now) if health is not None else None
    agent = agents.get(node)
    if agent is None:
        return Silence(node, "the agent's pod is missing")
    return None if agent.ready else Silence(node, "the agent's pod is not ready", agent.since)


def _outdated(node: str, health: NodeHealth, now: datetime) -> Silence | None:
    """Judges an agent by the writes that the agent has promised. An agent that promises nothing is not
    judged."""
    every, at = timedelta(seconds=health.status.refresh_s), health.status.observed_at
    if not every or at is None or now - at <= _REFRESHES * every:
        return None
    return Silence(node, "the agent has not reported for too long", at + every)


def unread_sources(world: World, node: Node, now: datetime) -> Iterator[str]:
    """Yields the sources of the node that no agent reads, without NVML while a repair step needs the agent to
    close the devices. Yields `agent` if no agent reports, because the agent's last status is then out of
    date."""
    health = world.health.get(node.name)
    if health is None or not health.status.coverage or silence(world, node.name, now) is not None:
        yield "agent"
        return
    for row in health.status.coverage:
        is_let_go = row.source is Source.NVML and bool(health.spec.hands_off)
        if row.state is CoverageState.BLIND and not is_let_go:
            yield row.source


def why_not_covered(world: World, node: str, at: datetime, now: datetime) -> str:
    """Returns why an application must not be blamed for what happened at `at` on this node; empty if it may
    be blamed."""
    health = world.health.get(node)
    if health is None or not health.status.coverage:
        return f"no agent reports from {node or 'its node'}"
    silent = silence(world, node, now)
    if silent is not None and (silent.since is None or silent.since < at + _REPORTED_WITHIN):
        return silent.why
    for family in policies()[Fault.APPLICATION].required:
        if missing := _missing(health, family, node, at):
            return missing
    return ""


def unwatched(world: World, node: Node, now: datetime) -> str:
    """Returns why nobody knows whether the node has a fault now, or an empty string if its agent would report
    one. The words contain no time, so they stay the same as long as the reason does."""
    health = world.health.get(node.name)
    if health is None or not health.status.coverage:
        return "no agent reports from this node"
    if health.status.boot_id != node.boot_id:
        return "the agent has not reported since the node's last boot"
    silent = silence(world, node.name, now)
    if silent is not None:
        return silent.kind
    for family in policies()[Fault.APPLICATION].required:
        row = _row(health, family)
        if row is None:
            return f"the agent does not read faults of {FAMILIES[family]}"
        if row.state is not CoverageState.COVERED:
            return f"{row.source} is blind ({row.why})"
    return ""


def _missing(health: NodeHealth, family: Family, node: str, at: datetime) -> str:
    row = _row(health, family)
    if row is None:
        return f"the agent of {node} does not read faults of {FAMILIES[family]}"
    if row.state is not CoverageState.COVERED:
        return f"{row.source} of {node} is blind ({row.why})"
    if row.since - at > _CLOCKS:
        return f"the agent has read {row.source} of {node} only since {row.since:%H:%M:%S} UTC"
    return ""


def _row(health: NodeHealth, family: Family) -> Coverage | None:
    """Returns the coverage of the source from which the agent reads these faults. An older agent does not
    report its families: it reads faults of GPUs from the kernel log, and no others."""
    rows = health.status.coverage
    named = next((row for row in rows if family in row.families), None)
    if named is not None or family is not Family.GPU_XID:
        return named
    return next((row for row in rows if row.source is Source.KMSG and not row.families), None)


def looked_at(world: World, node: str) -> str:
    """Returns the words for an Incident that blames an application: which sources of the node were read, and
    which kinds of faults no source covers."""
    health = world.health.get(node)
    rows = health.status.coverage if health is not None else []
    read = {family for row in rows if row.state is CoverageState.COVERED for family in row.families}
    fault = "new fault" if health is not None and _has_hardware_faults(health) else "fault"
    if not read:
        return (
            f"the kernel log shows no {fault} of the node; the agent has an older version, so "
            "Rekindle does not know which kinds of faults it reads"
        )
    unread = [words for family, words in FAMILIES.items() if family not in read]
    without = f", but reads no source that would show faults of {', '.join(unread)}" if unread else ""
    return f"the agent has seen no {fault} of the node{without}"


def _has_hardware_faults(health: NodeHealth) -> bool:
    """Whether the node has an open fault of its hardware. Such a fault did not explain the failure."""
    levels = (quarantine_level(f.fault, f.severity) for f in health.status.findings if is_open(f))
    return any(level is not QuarantineLevel.NONE for level in levels)
