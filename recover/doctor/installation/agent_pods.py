"""Checks whether all nodes that need an agent have one, and whether the agents are ready and read their
sources. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from detectors.wire.contract import CoverageState, NodeHealth, Source
from recover.doctor.blind_sources import UNSEEN
from recover.doctor.case import Finding, Place, Severity
from recover.doctor.installation.installed import AGENT, SETTINGS, Installation
from recover.policy.settings import DeviceReports
from recover.stories.groups import Group, grouped, largest
from recover.stories.words import SOURCES, counted, some

__all__ = ["catalogue", "coverage", "everywhere", "on_nodes", "ready", "reporting", "reports", "versions"]

_UNSEEN = "Rekindle does not see faults of GPUs and hung ranks there; it sees only pods that end"
_SWITCHED_OFF = "switched off by the setting "
"""First words of an agent's reason for a source that a setting switched off. The name of the setting
follows."""
_SEE: dict[Source, str] = {
    Source.KMSG: "agent.hostPaths.kmsg=FILE",
    Source.NVML: "agent.runtimeClassName=nvidia",
    Source.PODS: "agent.hostPaths.podResources=FOLDER",
    Source.LOGS: "agent.hostPaths.podLogs=FOLDER",
    Source.VOLUMES: "agent.hostPaths.podVolumes=FOLDER",
}
"""For each source, the value of the chart by which the agent may read it. For ports (FABRIC) and the node
itself (HOST) no value does that."""
_RUNBOOK = "docs/runbooks/RekindleAgentsBlind.md"


def everywhere(seen: Installation) -> Iterator[Finding]:
    """Reports nodes with accelerators that have no pod of the DaemonSet."""
    bare = sorted({node.name for node in seen.accelerated} - {pod.node for pod in seen.pods_of("agent")})
    where = f"DaemonSet {seen.namespace}/{AGENT}"
    if seen.agents is None:
        yield Finding(
            name="no-agents",
            severity=Severity.FAILS,
            what=f"there is no DaemonSet {AGENT} in {seen.namespace}",
            where=Place(where, "metadata.name"),
            means=_UNSEEN,
            fix=seen.upgrade("agent.enabled=true"),
        )
        return
    unwanted = [name for name in bare if not seen.agents.wants(seen.nodes[name].labels)]
    if unwanted:
        listed = [r.key for term in seen.agents.asked for r in term if r.operator == "Exists"]
        labels = seen.nodes[unwanted[0]].labels
        own = next((k for k in sorted(labels) if "gpu" in k or "accelerator" in k), "LABEL")
        yield Finding(
            name="nodes-without-agent-label",
            severity=Severity.FAILS,
            what=f"{counted(len(unwanted), 'node')} with accelerators {_has(unwanted)} none of the "
            f"labels that the agents' DaemonSet selects: {some(unwanted, 4)}",
            where=Place(where, "spec.template.spec.affinity", ", ".join(listed)),
            means=_UNSEEN,
            fix=seen.upgrade(f"'agent.nodeLabels={{{','.join([*listed, own])}}}'"),
        )
    missing = [name for name in bare if name not in unwanted]
    if missing:
        yield Finding(
            name="nodes-without-agent",
            severity=Severity.FAILS,
            what=f"{counted(len(missing), 'node')} with accelerators {_has(missing)} no agent, though the "
            f"DaemonSet wants one there: {some(missing, 4)}",
            where=Place(
                where, "status.desiredNumberScheduled", str(seen.agents.status.desired_number_scheduled)
            ),
            means=_UNSEEN,
            fix=f"kubectl -n {seen.namespace} describe daemonset {AGENT}  # the events say why there "
            "are no pods",
        )


def on_nodes(seen: Installation) -> Iterator[Finding]:
    """Reports that no node has accelerators, which device plugins offer as resources."""
    if not seen.accelerated:
        yield Finding(
            name="no-accelerators",
            severity=Severity.RISKS,
            what=f"none of {counted(len(seen.nodes), 'node')} has an accelerator that Rekindle knows"
            if seen.nodes
            else "the cluster has no nodes",
            where=Place("nodes", "status.allocatable"),
            means="Rekindle creates no NodeHealth, so no agent becomes ready, and no GPU is watched",
            fix="kubectl get pods -A -o wide  # check that the device plugin runs on the GPU nodes",
        )


def reports(seen: Installation) -> Iterator[Finding]:
    """Reports devices that no agent can read, if the reports of their plugins are not read either."""
    told = seen.settings.signals.reports if seen.settings is not None else DeviceReports()
    for vendor, starts, is_read in (
        ("ascend", ("huawei.com/",), told.ascend),
        ("iluvatar", ("iluvatar.com/", "iluvatar.ai/"), told.iluvatar),
    ):
        nodes = sorted(
            node.name
            for node in seen.accelerated
            if any(resource.startswith(starts) for resource in node.capacity)
        )
        if nodes and not is_read:
            yield Finding(
                name="device-reports-not-read",
                severity=Severity.ADVICE,
                what=f"{counted(len(nodes), 'node')} with devices of {vendor.title()}: {some(nodes, 4)}",
                where=Place(f"ConfigMap {seen.namespace}/{SETTINGS}", f"signals.reports.{vendor}", "false"),
                means="agents read only NVIDIA's driver, so Rekindle does not know the health of these "
                "devices",
                fix=seen.upgrade(f"settings.controller.signals.reports.{vendor}=true"),
            )


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"


def ready(seen: Installation) -> Iterator[Finding]:
    """Reports agents that are not ready, grouped by their reason."""
    not_ready = {pod.node or pod.metadata.name: pod for pod in seen.pods_of("agent") if not pod.ready}
    for group in grouped((pod.trouble or _silent(seen, pod.node), name) for name, pod in not_ready.items()):
        pod = not_ready[group.names[0]].metadata.name
        count = counted(len(group.names), "agent is", "agents are")
        yield Finding(
            name="agents-not-ready",
            severity=Severity.FAILS,
            what=f"{count} not ready, on {group.who}: {group.why}",
            where=Place(f"Pod {seen.namespace}/{pod}", "status.conditions[Ready]", "False"),
            means=_UNSEEN,
            fix=f"kubectl -n {seen.namespace} describe pod {pod}",
        )


def reporting(seen: Installation) -> Iterator[Finding]:
    """Reports agents whose pods are ready, and that have not written their NodeHealth."""
    ready_on = {pod.node for pod in seen.pods_of("agent") if pod.ready}
    without = sorted(
        node.name
        for node in seen.accelerated
        if node.name in ready_on
        and (node.name not in seen.health or not seen.health[node.name].status.coverage)
    )
    if without:
        pod = next(p.metadata.name for p in seen.pods_of("agent") if p.node == without[0])
        yield Finding(
            name="agents-not-reporting",
            severity=Severity.FAILS,
            what=f"{counted(len(without), 'agent is', 'agents are')} ready and {_has(without)} written no "
            f"NodeHealth, on {some(without, 4)}",
            where=Place(f"NodeHealth {without[0]}", "status.coverage"),
            means=_UNSEEN,
            fix=f"kubectl -n {seen.namespace} logs {pod}",
        )


def _silent(seen: Installation, node: str) -> str:
    there = seen.nodes.get(node)
    if there is not None and not there.ready:
        return "the node is NotReady"
    if there is not None and not there.is_accelerated:
        return "the node has no accelerators, so Rekindle creates no NodeHealth for the node"
    if there is not None and node not in seen.health:
        return "the controller has not created the NodeHealth of the node"
    return "the agent runs, and cannot use its NodeHealth; the agent's log says why"


def coverage(seen: Installation) -> Iterator[Finding]:
    """Reports sources that the agent does not read, by source and reason, for nodes whose agent has reported;
    and agents that leave out logs of some pods."""
    for source in Source:
        blind = [
            (one.why, name)
            for name, health in seen.health.items()
            if name in seen.nodes
            for one in health.status.coverage
            if one.source is source and one.state is CoverageState.BLIND and not _is_let_go(health, source)
        ]
        for group in largest(blind):
            yield _blind(seen, source, group)
    crowded = [
        (one.why, name)
        for name, health in seen.health.items()
        for one in health.status.coverage
        if one.source is Source.LOGS and one.state is CoverageState.COVERED and one.why
    ]
    for group in largest(crowded):
        yield Finding(
            name="logs-left-out",
            severity=Severity.RISKS,
            what=f"the agent does not read all logs of pods on {counted(len(group.names), 'node')}: "
            f"{group.who}",
            where=Place(f"NodeHealth {group.names[0]}", f"status.coverage[{Source.LOGS}]", group.why),
            means="Rekindle does not notice a hang of a pod whose log the agent leaves out, and does not "
            "report its error",
            fix=seen.upgrade("settings.agent.logs.containers_max=NUMBER"),
        )


def _is_let_go(health: NodeHealth, source: Source) -> bool:
    """Whether the agent has closed the devices for a repair, as it should."""
    return source is Source.NVML and bool(health.spec.hands_off)


def _blind(seen: Installation, source: Source, group: Group) -> Finding:
    severity = Severity.FAILS if source is Source.KMSG else Severity.RISKS
    nodes = counted(len(group.names), "node")
    return Finding(
        name=f"{source}-blind",
        severity=severity,
        what=f"{SOURCES[source]}: not read on {nodes} of {len(seen.health)}: {group.who}",
        where=Place(f"NodeHealth {group.names[0]}", f"status.coverage[{source}]", group.why),
        means=UNSEEN[source],
        fix=_seeing(seen, source, group),
    )


def _seeing(seen: Installation, source: Source, group: Group) -> str:
    """Returns the command by which the agent reads the source again, or the command that shows why it does
    not."""
    if group.why.startswith(_SWITCHED_OFF):
        return seen.upgrade(f"settings.agent.{group.why.removeprefix(_SWITCHED_OFF)}=true")
    if source in _SEE:
        return seen.upgrade(_SEE[source])
    pods = (pod.metadata.name for pod in seen.pods_of("agent") if pod.node in group.names)
    log = next((f"logs {pod}" for pod in pods), "get pods")
    return f"kubectl -n {seen.namespace} {log}  # {_RUNBOOK} lists the causes"


def catalogue(seen: Installation) -> Iterator[Finding]:
    """Reports rows of people's own catalogue that agents do not use."""
    told = ((why, name) for name, health in seen.health.items() for why in health.status.catalogue_problems)
    for group in largest(told):
        yield Finding(
            name="catalogue-row-unused",
            severity=Severity.RISKS,
            what=f"{counted(len(group.names), 'agent does', 'agents do')} not use a row of your "
            f"catalogue: {group.why}",
            where=Place(f"NodeHealth {group.names[0]}", "status.catalogueProblems", group.why),
            means="for such a row the agents use Rekindle's own row; they still use all your other rows",
            fix=f"{seen.upgrade()} -f VALUES  # with the row corrected in settings.catalogue",
        )


def versions(seen: Installation) -> Iterator[Finding]:
    """Reports agents that have another version than the controller."""
    told = [(h.status.agent_version, name) for name, h in seen.health.items() if h.status.agent_version]
    wanted = seen.release_version
    by_version: dict[str, list[str]] = {}
    for version, name in told:
        if version != wanted:
            by_version.setdefault(version, []).append(name)
    for version, names in sorted(by_version.items()):
        yield Finding(
            name="agents-of-another-version",
            severity=Severity.RISKS,
            what=f"{counted(len(names), 'agent is', 'agents are')} of version {version}, and the release of "
            f"{wanted}: {some(sorted(names), 4)}",
            where=Place(f"NodeHealth {min(names)}", "status.agentVersion", version),
            means="agents and controller do not exchange fields that only one of the two versions knows",
            fix=f"kubectl -n {seen.namespace} rollout status daemonset {AGENT}",
        )
