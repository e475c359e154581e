"""The world as decisions see it: frozen views of API objects, and nothing that can act.

observe.py fills it; diagnose, guard, plan and phases read it. Only the fields that a decision needs are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from detectors.contract import Edge, NodeHealth, PodProgress, Signature
from detectors.resource import Resource
from recover.api import GangRef, Incident, Recovery, Requirement
from recover.recipes.model import Recipe
from recover.recipes.objects import JudgedRecipe

__all__ = [
    "Container",
    "Gang",
    "Mark",
    "Mode",
    "Mount",
    "NamespaceView",
    "Node",
    "Outsider",
    "Pod",
    "PodPhase",
    "Quarantine",
    "Refusal",
    "Taint",
    "Template",
    "Terminal",
    "Volume",
    "VolumeKind",
    "Waiting",
    "World",
]


class Mode(StrEnum):
    OBSERVE = "observe"
    RECOVER = "recover"


class Taint(msgspec.Struct, frozen=True):
    key: str
    effect: str
    value: str = ""
    time_added: str = ""
    """As the API has it: taints are one list that is written whole, and others' must stay as they are."""


class Quarantine(msgspec.Struct, frozen=True, rename="camel"):
    """Our own annotation on a quarantined node: why, and what is needed to undo it exactly."""

    incident: str
    fault: str
    at: datetime
    cordoned: bool
    """True where we set `unschedulable`; False where a person had, or where the taint alone was wanted."""


class Node(msgspec.Struct, frozen=True):
    name: str
    uid: str
    version: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    ready_since: datetime | None = None
    boot_id: str = ""
    is_accelerated: bool = True
    """It offers accelerators, or did before its device plugin went away."""
    quarantine: Quarantine | None = None
    released_at: datetime | None = None
    """When a person last released it: evidence from before no longer acts."""


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Waiting(msgspec.Struct, frozen=True):
    """Why a container has not started, in its kubelet's words."""

    reason: str = ""
    """`ContainerCreating`, `ImagePullBackOff`, ..."""
    message: str = ""


class Container(msgspec.Struct, frozen=True):
    """The latest ending of a container: of this instance, or of the one before a restart in place."""

    name: str
    running: bool
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None
    waiting: Waiting | None = None


class Outsider(msgspec.Struct, frozen=True):
    """Whose a pod is that belongs to no gang, and what its training containers ask for."""

    owner: GangRef
    containers: tuple[Mapping[str, object], ...] = ()


class Pod(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    version: str
    owner_uid: str = ""
    owner_kind: str = ""
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: datetime | None = None
    deleting_since: datetime | None = None
    containers: tuple[Container, ...] = ()
    accelerators: int = 0
    gated: bool = False
    unschedulable: str = ""
    """The scheduler's message, while it finds no place."""
    failure: str = ""
    """Why its kubelet ended or refused it as a whole, as `Evicted: ...`; a container's own end says more."""
    volumes: tuple[Volume, ...] = ()
    environments: tuple[str, ...] = ()
    """ConfigMaps that all of its containers with accelerators (or without any, all) read by envFrom."""
    outsider: Outsider | None = None

    @property
    def ended(self) -> bool:
        """Terminal with all containers ended: nothing of it runs any more.

        A Job keeps its Failed pods, so waiting for every old pod to be deleted would wait for ever.
        """
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED) and not any(
            c.running for c in self.containers
        )


class VolumeKind(StrEnum):
    CLAIM = "persistentVolumeClaim"
    NFS = "nfs"
    CSI = "csi"
    HOST_PATH = "hostPath"
    EMPTY_DIR = "emptyDir"
    CONFIG_MAP = "configMap"
    SECRET = "secret"
    PROJECTED = "projected"
    DOWNWARD_API = "downwardAPI"
    OTHER = "other"


class Mount(msgspec.Struct, frozen=True, order=True):
    """Where a container sees a volume, or one folder of it."""

    path: str
    sub_path: str = ""


class Volume(msgspec.Struct, frozen=True):
    name: str
    kind: VolumeKind
    source: Mapping[str, object] = {}
    """The volume's source as the template has it, to be mounted by the scan pod."""
    mounts: tuple[Mount, ...] = ()


class Template(msgspec.Struct, frozen=True):
    """What we need of a gang's pod template."""

    volumes: tuple[Volume, ...] = ()
    security_context: Mapping[str, object] = {}
    containers: tuple[Mapping[str, object], ...] = ()
    """Raw and whole: a merge patch replaces lists."""
    affinity: Mapping[str, object] = {}
    tolerations: tuple[Mapping[str, object], ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    """Nodes that the template's required node affinity already keeps out by host name."""


class Mark(msgspec.Struct, frozen=True, rename="camel"):
    """Our annotation on a job: which recovery and attempt stopped or resumed it last.

    It is written in the same patch as the stop or the resume, so that neither can happen twice.
    """

    recovery: str
    attempt: int
    did: str
    """`stopped` or `resumed`."""
    avoided: tuple[str, ...] = ()
    """Nodes that the template's affinity keeps out because of us, so that the next start can undo it."""
    placed: tuple[Requirement, ...] = ()
    """What the template's affinity asks of the nodes because of us."""
    restarts: int | None = None
    """What the stop brings the framework's own number of restarts to, where that is part of it."""


class Terminal(msgspec.Struct, frozen=True):
    """The job has ended for good, in its framework's own opinion."""

    succeeded: bool
    reason: str = ""
    message: str = ""


class Gang(msgspec.Struct, frozen=True):
    """A job whose ranks live and die together, whatever its framework."""

    ref: GangRef
    resource: Resource
    version: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: datetime | None = None
    deleting: bool = False
    suspended: bool = False
    suspend_writer: str = ""
    """Field manager of the last write to its suspend field, where the API server tells."""
    terminal: Terminal | None = None
    failures: int = 0
    """Failed pods that the framework has counted."""
    done_ranks: str = ""
    """Ranks that the framework counts as ended and never makes again, in its own notation."""
    size: int = 0
    """Pods of the whole gang."""
    unsupported: str = ""
    """Why it cannot be stopped and resumed as one gang; empty where it can."""
    foreign_owner: str = ""
    """Who else decides about its suspend field (Kueue, an owning controller); empty if nobody."""
    mark: Mark | None = None
    templates: Mapping[str, Template] = {}
    """By replica type; frameworks with one template use the empty name."""
    part_of: str = ""
    """Uid of the gang whose framework has made this job; empty if it is a gang itself."""
    parts: int = 0
    """Jobs that its framework keeps for it while it is suspended."""
    restarts: int = 0
    """The framework's own number of restarts; of a part, the one that it was made for."""
    definition: bytes = b""
    """What people wrote of it, kept only of jobs that may be made anew."""


class NamespaceView(msgspec.Struct, frozen=True):
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Refusal(msgspec.Struct, frozen=True):
    """An object that could not be created, in the API server's own words."""

    at: datetime
    words: str
    may_pass: bool
    """It was overloaded, or did not answer, or somebody that it asks did not."""


class World(msgspec.Struct, frozen=True):
    """One consistent look at the caches. Lookups only; whoever holds it must not keep it across an await."""

    mode: Mode
    mode_since: datetime
    nodes: Mapping[str, Node]
    health: Mapping[str, NodeHealth]
    gangs: Mapping[str, Gang]
    """By uid."""
    pods_of: Mapping[str, Mapping[str, Pod]]
    """Gang uid -> pod uid -> pod."""
    scans: Mapping[str, Pod]
    """Scan pods by `namespace/name`."""
    namespaces: Mapping[str, NamespaceView]
    incidents: Mapping[str, Incident]
    recoveries: Mapping[str, Recovery]
    """By `namespace/name`."""
    recoveries_of: Mapping[str, Mapping[str, Recovery]] = {}
    """Gang uid -> `namespace/name` -> recovery; one whose gang was made anew stands under both uids."""
    gangs_on: Mapping[str, frozenset[str]] = {}
    """Node name -> uids of the gangs with a pod bound there."""
    departed: Mapping[str, Mapping[str, Pod]] = {}
    """Gang uid -> pod uid -> what was last seen of a pod that went away while its gang was meant to run."""
    parts_of: Mapping[str, Mapping[str, Gang]] = {}
    """Gang uid -> uid of a job that its framework has made for it -> that job."""
    refused: Mapping[str, Refusal] = {}
    """Pods that we could not create, by `namespace/name`: what was said last, since this process began."""
    recipes: Mapping[str, Recipe] = {}
    """The known issues by name: the built-in ones, and people's own."""
    signatures: tuple[Signature, ...] = ()
    """The log lines of people's own recipes, by name; agents know those of the built-in ones."""
    judged_recipes: tuple[JudgedRecipe, ...] = ()
    """People's Recipe objects, and whether each is used."""

    def pods(self, gang_uid: str) -> list[Pod]:
        """The gang's pods. What names the gang can be forged, but only within its writer's own namespace."""
        gang = self.gangs.get(gang_uid)
        pods = self.pods_of.get(gang_uid, {}).values()
        return [p for p in pods if gang is None or p.namespace == gang.ref.namespace]

    def parts(self, gang: Gang) -> list[Gang]:
        """The jobs that the gang's framework has made for it, by name; none of another namespace."""
        found = self.parts_of.get(gang.ref.uid, {}).values()
        mine = [part for part in found if part.ref.namespace == gang.ref.namespace]
        return sorted(mine, key=lambda part: part.ref.name)

    def history(self, gang_uid: str) -> list[Recovery]:
        """The gang's recoveries, oldest first, those of jobs that it was made anew from included; none of
        another namespace."""
        gang = self.gangs.get(gang_uid)
        found = self._lineage(gang_uid).values()
        mine = [r for r in found if gang is None or r.metadata.namespace == gang.ref.namespace]
        return sorted(mine, key=lambda r: r.spec.number)

    def _lineage(self, gang_uid: str) -> dict[str, Recovery]:
        found: dict[str, Recovery] = {}
        uids = [gang_uid]
        maker = self._maker(gang_uid)
        if maker is not None:
            uids.append(maker.gang_uid)
        while uids:
            for name, recovery in self.recoveries_of.get(uids.pop(), {}).items():
                if name not in found:
                    found[name] = recovery
                    uids.append(recovery.spec.gang.uid)
        return found

    def _maker(self, gang_uid: str) -> Recovery | None:
        """The recovery that has just made this job anew and does not know its uid yet. The mark tells it;
        people may copy that, so the recovery must be making a job of that name."""
        gang = self.gangs.get(gang_uid)
        if gang is None or gang.mark is None:
            return None
        recovery = self.recoveries.get(f"{gang.ref.namespace}/{gang.mark.recovery}")
        if (
            recovery is None
            or recovery.status.recreation is None
            or not recovery.status.recreation.definition
        ):
            return None
        same = msgspec.structs.replace(recovery.spec.gang, uid=gang_uid) == gang.ref
        return recovery if same and recovery.active else None

    def active_recovery(self, gang_uid: str) -> Recovery | None:
        return next((r for r in self.history(gang_uid) if r.active), None)

    def victims_on(self, node: str) -> list[Gang]:
        """Gangs with a living pod on that node, in a stable order."""
        found = []
        for uid in self.gangs_on.get(node, ()):
            gang = self.gangs.get(uid)
            if gang is not None and any(p.node == node and not p.ended for p in self.pods(uid)):
                found.append(gang)
        return sorted(found, key=lambda g: str(g.ref))

    def progress(self, pod: Pod) -> PodProgress | None:
        """How far its training is. A container beside the training one may name a step, too; its steps do not
        advance."""
        told = [p for p in self._published(pod) if p.edge is not Edge.STARTED]
        return max(
            _newest(told),
            key=lambda p: (p.last_step != p.first_step, p.first_step is not None, p.at),
            default=None,
        )

    def containers(self, pod: Pod) -> list[PodProgress]:
        """The last edge that the pod's node published for each of its containers, of the newest instance."""
        return _newest(self._published(pod))

    def _published(self, pod: Pod) -> list[PodProgress]:
        health = self.health.get(pod.node)
        return [p for p in health.status.pods if p.uid == pod.uid] if health is not None else []


def _newest(told: list[PodProgress]) -> list[PodProgress]:
    """Of each container the newest instance."""
    return list({p.container: p for p in sorted(told, key=lambda p: (p.instance, p.at))}.values())
