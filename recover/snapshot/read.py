"""Reads the objects that `status`, `why` and `doctor JOB` need. I/O only; find.py finds the job among them.

A job that is in no list need not be deleted: the reader may lack a permission, the cluster may not serve its
kind, the API server may have failed to list the kind, or the object cannot be decoded. The snapshot records
which of these is true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.service.settings import SettingsError
from detectors.wire.contract import NodeHealth
from detectors.wire.resource import Resource
from recover.api import GangRef, Incident, Recovery
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS, RECOVERIES
from recover.kube.cluster import Cluster
from recover.model import Gang, NamespaceView, Node, Pod, decode
from recover.policy.consent import AUTO_RECOVERY
from recover.policy.driver_work import work_labels
from recover.policy.node_signals import SignalCatalogue
from recover.policy.settings import Settings, Signals
from recover.runtime.bounds import too_large
from recover.snapshot.device_reports import with_reports
from recover.stories.absence import Absence
from recover.stories.groups import largest
from recover.workloads import WORKLOADS

__all__ = [
    "CannotTell",
    "Lack",
    "Snapshot",
    "WhichJobs",
    "near",
    "pods_of",
    "pods_on",
    "ranks_of",
    "read",
    "unanswered",
]

T = TypeVar("T")

_OURS = (NODEHEALTHS, INCIDENTS, RECOVERIES)
_JOBS = tuple(workload.resource for workload in WORKLOADS)


class CannotTell(Exception):
    """The cluster cannot be read. The message is one line: what failed, and what to do."""


def unanswered(error: ReplyLost) -> CannotTell:
    return CannotTell(
        f"the API server does not answer: {error}. Try `kubectl version` with the same kubeconfig and context"
    )


class Lack(StrEnum):
    """Reason why no object of a kind was read."""

    FORBIDDEN = "forbidden"
    NOT_SERVED = "not-served"
    """The cluster does not know the kind: no such object exists, and none can be created."""
    UNANSWERED = "unanswered"
    """The API server failed to list the kind. Only kinds of jobs may be left out for this reason."""


class WhichJobs(StrEnum):
    """The jobs that `read` lists."""

    NONE = "none"
    LABELLED = "labelled"
    """All jobs of the frameworks' own kinds, and only those plain batch Jobs that have the label
    `rekindle.dev/auto-recovery`. A cluster may have 100,000 plain Jobs of 16 KB each, few of which train, and
    `status -w` lists the jobs every 5 seconds. The API server selects by labels alone: a plain Job whose
    consent is an annotation, or comes from its namespace, is left out."""
    ALL = "all"


class Snapshot(msgspec.Struct, frozen=True):
    """The objects from which stories are made."""

    nodes: dict[str, Node]
    health: dict[str, NodeHealth]
    incidents: list[Incident]
    recoveries: list[Recovery]
    gangs: list[Gang]
    namespaces: dict[str, NamespaceView]
    notes: list[str]
    """Notes on what could not be read, one line each."""
    lacks: Mapping[str, Lack] = {}
    """Kinds of which nothing was read, by their plural, each with the reason."""
    undecodable: Mapping[tuple[str, str], str] = {}
    """Objects that exist and could not be decoded, by plural and `namespace/name`, each with the reason."""

    @property
    def hidden(self) -> frozenset[str]:
        """Kinds of which objects may exist although none was read."""
        return frozenset(plural for plural, lack in self.lacks.items() if lack is not Lack.NOT_SERVED)

    def absence(self, ref: GangRef) -> Absence:
        """Returns why that job is not among `gangs`."""
        resource = next((one for one in _JOBS if one.kind == ref.kind and one.group == _group(ref)), None)
        if resource is None:
            return Absence.UNKNOWN_KIND
        if (resource.plural, f"{ref.namespace}/{ref.name}") in self.undecodable:
            return Absence.UNDECODABLE
        return _ABSENCES.get(self.lacks.get(resource.plural), Absence.DELETED)


_ABSENCES: dict[Lack | None, Absence] = {
    Lack.FORBIDDEN: Absence.FORBIDDEN,
    Lack.NOT_SERVED: Absence.NOT_SERVED,
    Lack.UNANSWERED: Absence.UNANSWERED,
}


def _group(ref: GangRef) -> str:
    group, slash, _ = ref.api_version.partition("/")
    return group if slash else ""


class _Reader:
    """Lists kinds, and remembers what it could not read."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.notes: list[str] = []
        self.refused: list[tuple[str, str]] = []
        """Plurals that may not be listed, each with the API server's answer."""
        self.lacks: dict[str, Lack] = {}
        self.undecodable: dict[tuple[str, str], str] = {}

    async def every(self, resource: Resource, parse: Callable[[bytes], T], labels: str = "") -> list[T]:
        """Returns all objects of a kind. One object that cannot be decoded does not hide the others. Raises
        CannotTell."""
        found = []
        left_out = []
        for raw in await self._list(resource, labels):
            try:
                if why := too_large(bytes(raw)):
                    raise ValueError(why)
                found.append(parse(bytes(raw)))
            except ValueError as error:  # msgspec's errors are ValueErrors, too
                left_out.append((str(error), _name(raw)))
                self.undecodable[resource.plural, _name(raw)] = str(error)
        for group in largest(left_out):
            many = f"{len(group.names)} objects of kind {resource.kind} left out ({group.who})"
            one = f"{resource.kind} {group.names[0]} left out"
            self.notes.append(f"{one if len(group.names) == 1 else many}: {group.why}")
        return found

    async def namespaces(self, asked: str) -> list[NamespaceView]:
        """Returns the namespaces. A reader who may not list namespaces may often read the namespace in which
        they work. Raises CannotTell."""
        found = await self.every(NAMESPACES, decode.namespace)
        if not asked or self.lacks.get(NAMESPACES.plural) is not Lack.FORBIDDEN:
            return found
        try:
            return [decode.namespace(await self._cluster.get(NAMESPACES, asked))]
        except ApiError as error:
            if error.not_found:
                raise CannotTell(f"no namespace {asked!r}") from error
            return []
        except ReplyLost as error:
            raise unanswered(error) from error

    async def _list(self, resource: Resource, labels: str) -> list[msgspec.Raw]:
        items: list[msgspec.Raw] = []
        page = ""
        while True:
            within = self._namespace if resource.namespaced else ""
            try:
                answer = await self._cluster.list(resource, namespace=within, labels=labels, page=page)
            except ApiError as error:
                if error.expired and page:  # the list took longer than the API server keeps its snapshot
                    items, page = [], ""
                    continue
                self.lacks[resource.plural] = self._lack(resource, error)
                return []
            except ReplyLost as error:
                raise unanswered(error) from error
            items += answer.items
            page = answer.next_page
            if not page:
                return items

    def _lack(self, resource: Resource, error: ApiError) -> Lack:
        """Returns why the kind could not be listed, if the rest of the answer can be given; otherwise raises
        CannotTell."""
        if error.status == 401:
            raise CannotTell(f"the API server does not accept these credentials: {error.message}") from error
        if error.status == 403:
            self.refused.append((resource.plural, error.message))
            return Lack.FORBIDDEN
        if error.not_found and resource in (NODES, NAMESPACES):
            raise CannotTell(
                "the server at that address is not a Kubernetes API server: it does not serve the "
                "kinds of Kubernetes"
            ) from error
        if error.not_found and resource in _OURS:
            raise CannotTell(
                f"this cluster does not know {resource.plural}.{resource.group}: Rekindle is not "
                "installed here, or its CRDs were deleted. To see which: `rekindle doctor`. To "
                "install only the CRDs: `rekindle crds | kubectl apply -f -`"
            ) from error
        if error.not_found:
            return Lack.NOT_SERVED  # a framework that is not installed has no jobs
        if resource in _JOBS:
            self.notes.append(f"{resource.plural} left out: the API server failed to list them ({error})")
            return Lack.UNANSWERED
        raise CannotTell(f"the API server cannot list {resource.plural}: {error}") from error


async def read(
    cluster: Cluster,
    *,
    namespace: str = "",
    jobs: WhichJobs = WhichJobs.ALL,
    instead: str = "",
    own: Signals | None = None,
) -> Snapshot:
    """Reads all kinds; with `namespace`, the jobs and Recoveries of that namespace only. If the reader may
    list none of Rekindle's own kinds in the whole cluster, reads the namespace `instead`. `own` are the
    controller's rows about signals of nodes, in addition to the packaged rows. Raises CannotTell."""
    reader = _Reader(cluster, namespace)
    accelerators = Settings().accelerators

    async def all_jobs() -> list[Gang]:
        asked = () if jobs is WhichJobs.NONE else WORKLOADS
        lists = await asyncio.gather(
            *(reader.every(w.resource, w.parse, _selector(w.resource, jobs)) for w in asked)
        )
        return [gang for gangs in lists for gang in gangs if not gang.part_of]

    own = own or Signals()
    signals = _catalogue(own)
    # Kubernetes' own kinds come first: a server that does not know them is no Kubernetes API server.
    nodes, namespaces = await asyncio.gather(
        reader.every(NODES, lambda raw: decode.node(raw, accelerators, work_labels(), signals.read)),
        reader.namespaces(namespace or instead),
    )
    nodes = await with_reports(cluster, nodes, own.reports, reader.notes)
    known = {one.name for one in namespaces}
    if namespace and namespace not in known and NAMESPACES.plural not in reader.lacks:
        raise CannotTell(f"no namespace {namespace!r}{near(namespace, known)}")
    health, incidents, recoveries, gangs = await asyncio.gather(
        reader.every(NODEHEALTHS, decode.health),
        reader.every(INCIDENTS, lambda raw: msgspec.json.decode(raw, type=Incident)),
        reader.every(RECOVERIES, lambda raw: msgspec.json.decode(raw, type=Recovery)),
        all_jobs(),
    )
    if reader.lacks.keys() >= {resource.plural for resource in _OURS}:
        if instead and not namespace:
            return await read(cluster, namespace=instead, jobs=jobs, own=own)
        raise CannotTell(_no_rights(reader.refused, namespace))
    if reader.refused:
        reader.notes.insert(0, _refused(reader.refused))
    return Snapshot(
        nodes={node.name: node for node in nodes},
        health={one.metadata.name: one for one in health},
        incidents=incidents,
        recoveries=recoveries,
        gangs=gangs,
        namespaces={one.name: one for one in namespaces},
        notes=reader.notes,
        lacks=reader.lacks,
        undecodable=dict(reader.undecodable),
    )


def _selector(resource: Resource, jobs: WhichJobs) -> str:
    """Returns the label selector. The name of a label alone selects the objects that have the label, with any
    value."""
    return AUTO_RECOVERY if jobs is WhichJobs.LABELLED and resource == JOBS else ""


def _catalogue(own: Signals) -> SignalCatalogue:
    try:
        return SignalCatalogue(own)
    except SettingsError:  # the controller does not start with such rows either
        return SignalCatalogue(Signals())


async def ranks_of(cluster: Cluster, gang: Gang) -> tuple[Pod, ...]:
    """Returns the gang's pods. Returns no pods if they may not be read, or if the API server fails: a story
    can do without pods. Raises CannotTell."""
    try:
        return await pods_of(cluster, gang)
    except ApiError:
        return ()
    except ReplyLost as error:
        raise unanswered(error) from error


async def pods_of(cluster: Cluster, gang: Gang) -> tuple[Pod, ...]:
    """Returns the gang's pods, without those that cannot be decoded. Raises ApiError, ReplyLost."""
    accelerators = Settings().accelerators
    found: list[Pod] = []
    page = ""
    while True:
        answer = await cluster.list(PODS, namespace=gang.ref.namespace, page=page)
        for raw in answer.items:
            with suppress(msgspec.MsgspecError):
                found.append(decode.pod(bytes(raw), accelerators))
        page = answer.next_page
        if not page:
            return tuple(pod for pod in found if pod.owner_uid == gang.ref.uid)


async def pods_on(cluster: Cluster, node: str, health: NodeHealth | None) -> tuple[Pod, ...]:
    """Returns the pods on the node that the node's agent names, without those that may not be read. Other
    pods are not read, because a cluster may have 100,000 of them. Raises CannotTell."""
    if health is None:
        return ()
    named = {(pod.namespace, pod.name) for pod in health.status.pods}
    named |= {(pod.namespace, pod.name) for device in health.status.devices for pod in device.pods}
    accelerators = Settings().accelerators
    found = []
    for namespace, name in sorted(named):
        try:
            with suppress(msgspec.MsgspecError):
                found.append(decode.pod(await cluster.get(PODS, name, namespace), accelerators))
        except ApiError:
            continue
        except ReplyLost as error:
            raise unanswered(error) from error
    return tuple(pod for pod in found if pod.node == node)


def _refused(refused: list[tuple[str, str]]) -> str:
    """Returns one line that names all missing permissions."""
    (_, first), *others = refused
    more = f", and {len(others)} more of this kind" if others else ""
    names = ", ".join(name for name, _ in refused)
    return (
        f"you have no permission to list {names}, so this answer leaves out what these objects show "
        f"({first}{more})"
    )


def _no_rights(refused: list[tuple[str, str]], namespace: str) -> str:
    name, why = next(one for one in refused if one[0] == _OURS[0].plural)
    first = f"{name} ({why})"
    # A person with the view role of a namespace has the permission in that namespace, and only there.
    or_there = "" if namespace else ", or use -n with a namespace where you have it"
    return (
        f"you have no permission to list any object of Rekindle, such as {first}; the ClusterRole "
        f"rekindle-viewer of the chart gives this permission{or_there}"
    )


def near(name: str, names: Iterable[str]) -> str:
    """Returns `: did you mean NAME?`, or an empty text."""
    found = get_close_matches(name, names, n=1)
    return f": did you mean {found[0]}?" if found else ""


class _Meta(msgspec.Struct):
    namespace: str = ""
    name: str = "?"


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


def _name(raw: msgspec.Raw) -> str:
    try:
        meta = msgspec.json.decode(raw, type=_Named).metadata
    except msgspec.MsgspecError:
        return "?"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
