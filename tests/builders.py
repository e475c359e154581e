"""Builds worlds for tests in sentences: `cluster(nodes=4).running(gang("llm", ranks=4)).finding(on="n1")`.

The builder makes the same views that observe.py makes of API objects; `decide()` runs the production plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from detectors.wire.contract import (
    Coverage,
    CoverageState,
    Family,
    Fault,
    Finding,
    NodeHealth,
    NodeHealthStatus,
    ObjectMeta,
    Origin,
    Remedy,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.wire.resource import Resource
from detectors.wire.training import Edge, KnownLine, LastSave, LogError, PodProgress
from recover.api import GangRef, Incident, IncidentSpec, IncidentStatus, Recovery
from recover.k8s.kinds import INCIDENTS, PYTORCHJOBS, RECOVERIES
from recover.model import (
    AgentPod,
    Bystander,
    Container,
    Gang,
    NamespaceView,
    Node,
    Pod,
    PodPhase,
    Refusal,
    Template,
    World,
)
from recover.model.actions import Create, Patch, Plan
from recover.model.modes import Mode, Modes, Standing, begun
from recover.model.pause import Pause
from recover.policy.settings import Settings
from recover.recipes.load import built_in
from recover.triage.plan import plan

__all__ = ["BOOT", "NOW", "Decision", "Worlds", "cluster", "gang"]

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
BOOT = "11111111-2222-3333-4444-555555555555"


def gang(
    name: str = "llm",
    *,
    ranks: int = 4,
    opted_in: bool = True,
    annotations: Mapping[str, str] = {},
    templates: Mapping[str, Template] = {"": Template()},
) -> Gang:
    return Gang(
        ref=GangRef(
            api_version=PYTORCHJOBS.api_version,
            kind="PyTorchJob",
            namespace="ml",
            name=name,
            uid=f"{name}-uid",
        ),
        resource=PYTORCHJOBS,
        version="10",
        labels={"rekindle.dev/auto-recovery": "enabled"} if opted_in else {},
        annotations=annotations,
        created=NOW - timedelta(hours=2),
        size=ranks,
        templates=templates,
    )


class Decision(msgspec.Struct, frozen=True):
    """A plan, with the answers to a person's questions about it."""

    plan: Plan

    @property
    def cordons(self) -> list[str]:
        return [a.name for a in self.plan.actions if isinstance(a, Patch) and a.what == "quarantine-node"]

    @property
    def restarts(self) -> list[str]:
        return [
            a.body["spec"]["gang"]["name"]
            for a in self.plan.actions
            if isinstance(a, Create) and a.resource == RECOVERIES
        ]

    @property
    def incidents(self) -> list[Incident]:
        made = [a for a in self.plan.actions if isinstance(a, Create) and a.resource == INCIDENTS]
        return [
            Incident(
                metadata=ObjectMeta(name=a.name),
                spec=msgspec.convert(a.body["spec"], IncidentSpec),
                status=msgspec.convert(a.status, IncidentStatus),
            )
            for a in made
        ]

    @property
    def incident(self) -> Incident:
        (only,) = self.incidents
        return only

    def reasons(self, action: str = "") -> list[str]:
        """Returns the reasons of everything that was refused or only described."""
        return [
            r.reason
            for i in self.incidents
            for r in i.status.actions
            if r.reason and (not action or r.action == action)
        ]


class Worlds:
    """A world under construction. It is mutable on purpose, unlike the World that it builds."""

    def __init__(self, nodes: int, mode: Mode) -> None:
        self.now = NOW
        self.mode = mode
        self.mode_since = NOW - timedelta(hours=1)
        self.pools: dict[str, Standing] = {}
        self.lowered: dict[str, Standing] = {}
        """Modes of the namespaces whose mode the settings lower."""
        self.paused: Pause | None = None
        self.resumed: datetime | None = None
        self.settings = Settings(mode=mode)
        self.nodes = {
            f"n{i}": Node(name=f"n{i}", uid=f"n{i}-uid", version="1", boot_id=BOOT) for i in range(nodes)
        }
        self.health = {name: self._covered(name) for name in self.nodes}
        self.gangs: dict[str, Gang] = {}
        self.pods: dict[str, dict[str, Pod]] = {}
        self.departed: dict[str, dict[str, Pod]] = {}
        self.incidents: dict[str, Incident] = {}
        self.recoveries: dict[str, Recovery] = {}
        self.scans: dict[str, Pod] = {}
        self.refused: dict[str, Refusal] = {}
        self.bystanders: dict[str, dict[str, Bystander]] = {}
        self.repair_jobs: dict[str, Gang] = {}
        self.agents: dict[str, AgentPod] = {}
        """Pods of the agents, which count if `settings.agents_are_pods` is true."""
        self.being_quarantined: set[str] = set()
        self.being_started: set[str] = set()
        self.unread: dict[Resource, set[str]] = {}
        self.gone_nodes: set[str] = set()
        """Nodes for which a live read has answered that they do not exist."""
        self.namespaces = {"ml": NamespaceView("ml")}
        self.recipes = built_in()

    def _covered(self, node: str) -> NodeHealth:
        since = NOW - timedelta(hours=5)
        kernel = Coverage(
            source=Source.KMSG, state=CoverageState.COVERED, since=since, families=[Family.GPU_XID]
        )
        logs = Coverage(source=Source.LOGS, state=CoverageState.COVERED, since=since)
        status = NodeHealthStatus(boot_id=BOOT, coverage=[kernel, logs])
        return NodeHealth(metadata=ObjectMeta(name=node), status=status)

    # --- running work --------------------------------------------------------------------------------------

    def running(self, job: Gang, *, first_node: int = 0, stepping: bool = True) -> Worlds:
        """Adds a gang with one rank on each node from `first_node` on."""
        self.gangs[job.ref.uid] = job
        pods = {}
        for rank in range(job.size):
            node = f"n{first_node + rank}"
            pod = Pod(
                namespace="ml",
                name=f"{job.ref.name}-worker-{rank}",
                uid=f"{job.ref.name}-{rank}-uid",
                version="1",
                owner_uid=job.ref.uid,
                node=node,
                phase=PodPhase.RUNNING,
                created=NOW - timedelta(hours=1),
                containers=(Container(name="train", running=True),),
                accelerators=8,
            )
            pods[pod.uid] = pod
            if stepping:
                self.progress(pod, Edge.STEPPING, at=NOW - timedelta(minutes=50))
        self.pods[job.ref.uid] = pods
        return self

    def progress(
        self,
        pod: Pod,
        edge: Edge,
        *,
        at: datetime,
        instance: int = 0,
        first_step: int = 1,
        last_step: int = 100,
        first_error: LogError | None = None,
    ) -> None:
        health = self.health[pod.node]
        others = [p for p in health.status.pods if p.uid != pod.uid]
        mine = PodProgress(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            edge=edge,
            at=at,
            instance=instance,
            first_step=first_step,
            first_step_at=at - timedelta(hours=1) if edge is Edge.STALLED else at,
            last_step=last_step,
            last_step_at=at,
            first_error=first_error,
        )
        status = msgspec.structs.replace(health.status, pods=[*others, mine])
        self.health[pod.node] = msgspec.structs.replace(health, status=status)

    def tells(
        self, job: str = "llm", rank: int = 0, *, at: datetime, step: int | None = None, served: str = ""
    ) -> Worlds:
        """Lets the rank's agent publish this checkpoint as the last complete one."""
        saved = LastSave(at=at, step=step, served=served)
        (pod,) = [p for p in self.pods[f"{job}-uid"].values() if p.name == f"{job}-worker-{rank}"]
        status = self.health[pod.node].status
        told = [msgspec.structs.replace(p, last_save=saved) if p.uid == pod.uid else p for p in status.pods]
        status = msgspec.structs.replace(status, pods=told)
        self.health[pod.node] = msgspec.structs.replace(self.health[pod.node], status=status)
        return self

    def says(self, *lines: str, job: str = "llm", rank: int = 0) -> Worlds:
        """Lets the rank's agent publish these lines of the rank's log, in which recipes search."""
        pods = self.pods[f"{job}-uid"].values()
        return self.says_of([p for p in pods if p.name == f"{job}-worker-{rank}"], *lines)

    def says_of(self, pods: Iterable[Pod], *lines: str) -> Worlds:
        known = [KnownLine(signature="any", at=self.now, text=line, issue=True) for line in lines]
        for pod in pods:
            status = self.health[pod.node].status
            told = [
                msgspec.structs.replace(p, known_lines=known) if p.uid == pod.uid else p for p in status.pods
            ]
            status = msgspec.structs.replace(status, pods=told)
            self.health[pod.node] = msgspec.structs.replace(self.health[pod.node], status=status)
        return self

    # --- faults --------------------------------------------------------------------------------------------

    def finding(
        self,
        *,
        on: str,
        code: str = "xid-79",
        fault: Fault = Fault.DEVICE_LOST,
        origin: Origin = Origin.KERNEL,
        severity: Severity = Severity.FATAL,
        final: bool = True,
        remedy: Remedy = Remedy.NONE,
        ago_s: float = 1.0,
        boot_id: str = BOOT,
        subject: Subject | None = None,
    ) -> Worlds:
        health = self.health[on]
        seen = self.now - timedelta(seconds=ago_s)
        sequence = len(health.status.findings) + 1
        found = Finding(
            id=f"{boot_id[:8]}-kmsg-{sequence}",
            code=code,
            fault=fault,
            origin=origin,
            severity=severity,
            subject=subject or Subject(kind=SubjectKind.DEVICE, device=f"GPU-{on}"),
            boot_id=boot_id,
            first_seen=seen,
            last_seen=seen,
            remedy=remedy,
            final=final,
            sequence=sequence,
            evidence=f"NVRM: Xid {code}",
        )
        status = msgspec.structs.replace(health.status, findings=[*health.status.findings, found])
        self.health[on] = msgspec.structs.replace(health, status=status)
        return self

    def crash(
        self, job: str = "llm", *, rank: int, exit_code: int = 1, reason: str = "Error", ago_s: float = 1.0
    ) -> Worlds:
        """Makes the rank's pod Failed."""
        return self._end(job, rank, exit_code, reason, ago_s, phase=PodPhase.FAILED)

    def restart_in_place(
        self, job: str = "llm", *, rank: int, exit_code: int = 1, ago_s: float = 1.0
    ) -> Worlds:
        """Ends the rank's container. The kubelet has started it again in the same pod."""
        return self._end(job, rank, exit_code, "Error", ago_s, phase=PodPhase.RUNNING)

    def _end(
        self, job: str, rank: int, exit_code: int, reason: str, ago_s: float, *, phase: PodPhase
    ) -> Worlds:
        pods = self.pods[f"{job}-uid"]
        (pod,) = [p for p in pods.values() if p.name == f"{job}-worker-{rank}"]
        in_place = phase is PodPhase.RUNNING
        ended = Container(
            name="train",
            running=in_place,
            restarts=1 if in_place else 0,
            exit_code=exit_code,
            reason=reason,
            finished_at=self.now - timedelta(seconds=ago_s),
        )
        pods[pod.uid] = msgspec.structs.replace(pod, phase=phase, containers=(ended,))
        return self

    def stall(self, job: str = "llm") -> Worlds:
        """Lets every readable rank exceed its time limit."""
        for pod in self.pods[f"{job}-uid"].values():
            self.progress(pod, Edge.STALLED, at=self.now - timedelta(seconds=5))
        return self

    def not_ready(self, node: str, *, ago_s: float = 60.0) -> Worlds:
        since = self.now - timedelta(seconds=ago_s)
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], ready=False, ready_since=since)
        return self

    def blind(self, node: str, why: str = "permission denied") -> Worlds:
        row = Coverage(source=Source.KMSG, state=CoverageState.BLIND, since=self.now, why=why)
        health = self.health[node]
        status = msgspec.structs.replace(health.status, coverage=[row])
        self.health[node] = msgspec.structs.replace(health, status=status)
        return self

    def change_node(self, node: str, **changes: object) -> Worlds:
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], **changes)
        return self

    def without_node(self, node: str) -> Worlds:
        """Removes the Node from the cache. A live read has found none either."""
        del self.nodes[node]
        self.gone_nodes.add(node)
        return self

    def change_gang(self, job: str = "llm", **changes: object) -> Worlds:
        self.gangs[f"{job}-uid"] = msgspec.structs.replace(self.gangs[f"{job}-uid"], **changes)
        return self

    def later(self, seconds: float) -> Worlds:
        self.now += timedelta(seconds=seconds)
        return self

    # --- the result ----------------------------------------------------------------------------------------

    def world(self) -> World:
        gangs_on: dict[str, frozenset[str]] = {}
        for uid, pods in self.pods.items():
            for pod in pods.values():
                gangs_on[pod.node] = gangs_on.get(pod.node, frozenset()) | {uid}
        complaining: dict[str, dict[str, Pod]] = {}
        for pod in (pod for pods in self.pods.values() for pod in pods.values()):
            if pod.unhealthy:
                complaining.setdefault(pod.node, {})[pod.uid] = pod
        recoveries_of: dict[str, dict[str, Recovery]] = {}
        for key, recovery in self.recoveries.items():
            for uid in (recovery.spec.gang.uid, recovery.gang_uid):
                recoveries_of.setdefault(uid, {})[key] = recovery
        return World(
            modes=Modes(
                begun(self.mode, self.mode_since), self.pools, self.lowered, self.paused, self.resumed
            ),
            pool_label=self.settings.budgets.pool_label,
            nodes=self.nodes,
            health=self.health,
            gangs=self.gangs,
            pods_of=self.pods,
            scans=self.scans,
            refused=self.refused,
            namespaces=self.namespaces,
            incidents=self.incidents,
            recoveries=self.recoveries,
            recoveries_of=recoveries_of,
            gangs_on=gangs_on,
            departed=self.departed,
            bystanders=self.bystanders,
            repair_jobs=self.repair_jobs,
            being_quarantined=self.being_quarantined,
            being_started=self.being_started,
            unread=self.unread,
            gone_nodes=self.gone_nodes,
            recipes=self.recipes,
            complaining=complaining,
            not_started={
                uid: pod for pods in self.pods.values() for uid, pod in pods.items() if pod.not_started
            },
            signalling={name: node for name, node in self.nodes.items() if node.signals},
            agents=self.agents,
            agents_are_pods=self.settings.agents_are_pods,
        )

    def decide(self) -> Decision:
        return Decision(plan(self.world(), self.settings, self.now))


def cluster(nodes: int = 4, *, mode: Mode = Mode.RECOVER) -> Worlds:
    return Worlds(nodes, mode)
