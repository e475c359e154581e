"""Reads what the stories need from the API, and finds the job or node that a person named. For cli.py.

Whatever cannot be read is told in one line: `CannotTell` where there is no answer without it, a note where
the rest is still worth telling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeVar

import msgspec

from detectors.contract import NodeHealth
from detectors.kubeapi import ApiError, ReplyLost, Resource
from recover import decode
from recover.api import GangRef, Incident, Recovery
from recover.consent import opt_in
from recover.kube.cluster import Cluster
from recover.model import Gang, NamespaceView, Node
from recover.resources import INCIDENTS, NAMESPACES, NODEHEALTHS, NODES, RECOVERIES
from recover.settings import Settings
from recover.stories.annotations import misread_on_job
from recover.stories.groups import largest
from recover.stories.job import Job
from recover.stories.words import some
from recover.workloads import WORKLOADS

__all__ = ["CannotTell", "NotFound", "Snapshot", "find", "namespace_of", "read"]

T = TypeVar("T")

_OURS = (NODEHEALTHS, INCIDENTS, RECOVERIES)
_NODE_WORDS = frozenset({"node", "nodes", "no"})


class CannotTell(Exception):
    """The cluster cannot be read. One line: what failed, and what to do."""


class NotFound(Exception):
    """No such job or node, or several. One line: the nearest names, or how to say which."""


class Snapshot(msgspec.Struct, frozen=True):
    """One look at the objects that stories are told from."""

    nodes: dict[str, Node]
    health: dict[str, NodeHealth]
    incidents: list[Incident]
    recoveries: list[Recovery]
    gangs: list[Gang]
    namespaces: dict[str, NamespaceView]
    notes: list[str]
    """What could not be read, one line each."""
    hidden: frozenset[str] = frozenset()
    """Kinds that the reader may not list, by their plural: nothing of them is not none of them."""


async def read(cluster: Cluster, *, namespace: str = "", jobs: bool = True, instead: str = "") -> Snapshot:
    """Everything at once; jobs and recoveries of one namespace only, where one is given. That of `instead` is
    read by those who may list nothing of the whole cluster.

    Raises CannotTell.
    """
    notes: list[str] = []
    hidden: set[str] = set()
    accelerators = Settings().accelerators

    async def every(resource: Resource, parse: Callable[[bytes], T]) -> list[T]:
        within = namespace if resource.namespaced else ""
        return _parsed(resource, await _list(cluster, resource, within, notes, hidden), parse, notes)

    async def all_jobs() -> list[Gang]:
        lists = await asyncio.gather(*(every(w.resource, w.parse) for w in WORKLOADS if jobs))
        return [gang for gangs in lists for gang in gangs if not gang.part_of]

    nodes, health, incidents, recoveries, namespaces, gangs = await asyncio.gather(
        every(NODES, lambda raw: decode.node(raw, accelerators)),
        every(NODEHEALTHS, lambda raw: msgspec.json.decode(raw, type=NodeHealth)),
        every(INCIDENTS, lambda raw: msgspec.json.decode(raw, type=Incident)),
        every(RECOVERIES, lambda raw: msgspec.json.decode(raw, type=Recovery)),
        every(NAMESPACES, decode.namespace),
        all_jobs(),
    )
    known = {one.name for one in namespaces}
    if namespace and namespace not in known and NAMESPACES.plural not in hidden:
        raise CannotTell(f"no namespace {namespace!r}{_near(namespace, known)}")
    if hidden.issuperset(resource.plural for resource in _OURS):
        if instead and not namespace:
            return await read(cluster, namespace=instead, jobs=jobs)
        first = next(note for note in notes if note.startswith(_OURS[0].plural))
        # Who may view a namespace has the right there, and only there.
        or_there = "" if namespace else ", or -n NAMESPACE asks where you have it"
        raise CannotTell(
            f"you may list nothing of what Rekindle writes: {first}; the ClusterRole rekindle-viewer of the "
            f"chart gives that right{or_there}"
        )
    return Snapshot(
        nodes={node.name: node for node in nodes},
        health={one.metadata.name: one for one in health},
        incidents=incidents,
        recoveries=recoveries,
        gangs=gangs,
        namespaces={one.name: one for one in namespaces},
        notes=notes,
        hidden=frozenset(hidden),
    )


async def _list(
    cluster: Cluster, resource: Resource, namespace: str, notes: list[str], hidden: set[str]
) -> list[msgspec.Raw]:
    items: list[msgspec.Raw] = []
    page = ""
    while True:
        try:
            answer = await cluster.list(resource, namespace=namespace, page=page)
        except ApiError as error:
            if error.expired and page:  # the list took longer than the server keeps its snapshot
                items, page = [], ""
                continue
            _refused(resource, error, notes)
            if error.status == 403:
                hidden.add(resource.plural)
            return []
        except ReplyLost as error:
            raise CannotTell(f"the API server does not answer: {error}") from error
        items += answer.items
        page = answer.next_page
        if not page:
            return items


def _refused(resource: Resource, error: ApiError, notes: list[str]) -> None:
    """Goes on where the rest can be told; raises CannotTell where it cannot."""
    if error.not_found:
        if resource in _OURS:
            raise CannotTell(
                f"this cluster does not know {resource.plural}.{resource.group}: Rekindle is not installed "
                "here, or its CRDs are gone. `rekindle doctor` tells which; `rekindle crds | kubectl apply "
                "-f -` brings the CRDs alone"
            ) from error
        return  # a framework that is not installed has no jobs
    if error.status == 401:
        raise CannotTell(f"the API server does not accept these credentials: {error.message}") from error
    if error.status == 403:
        notes.append(f"{resource.plural} left out: you may not list them ({error.message})")
        return
    raise CannotTell(f"the API server cannot list {resource.plural}: {error}") from error


def _parsed(
    resource: Resource, raws: Iterable[msgspec.Raw], parse: Callable[[bytes], T], notes: list[str]
) -> list[T]:
    """One object that cannot be read does not hide the others."""
    found = []
    left_out = []
    for raw in raws:
        try:
            found.append(parse(bytes(raw)))
        except msgspec.MsgspecError as error:
            left_out.append((str(error), _name(raw)))
    for group in largest(left_out):
        many = f"{len(group.names)} objects of kind {resource.kind} left out ({group.who})"
        one = f"{resource.kind} {group.names[0]} left out"
        notes.append(f"{one if len(group.names) == 1 else many}: {group.why}")
    return found


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


# --- finding what was asked for ---------------------------------------------------------------------------


def namespace_of(asked: str) -> str:
    """The namespace in NAMESPACE/NAME; empty in other forms."""
    first, slash, _ = asked.partition("/")
    return first if slash and not _is_kind(first) else ""


def find(asked: str, snapshot: Snapshot, namespace: str = "", command: str = "why") -> Job | str:
    """The job, or the name of the node, that `asked` means.

    `asked` is NAME, NAMESPACE/NAME, KIND/NAME or node/NAME; `command` is the one that asks. Raises NotFound.
    """
    first, slash, second = asked.partition("/")
    name = second if slash else first
    if not name or "/" in name:
        raise NotFound(f"{asked!r} is no name: expected NAME, NAMESPACE/NAME, KIND/NAME or node/NAME")
    kind = first.lower().removesuffix("s") if slash and _is_kind(first) else ""
    within = namespace or namespace_of(asked)

    jobs = [
        job
        for job in _jobs(snapshot)
        if job.ref.name == name
        and (not within or job.ref.namespace == within)
        and (not kind or job.ref.kind.lower() == kind)
    ]
    known = snapshot.nodes.keys() | snapshot.health.keys() | {i.spec.node for i in snapshot.incidents}
    is_node = name in known and not within and kind in ("", "node")
    match jobs, is_node:
        case [], True:
            return name
        case [job], False:
            return job
        case [], False:
            raise NotFound(_nothing(asked, name, snapshot))
    raise NotFound(_several(asked, jobs, node=name if is_node else "", command=command))


def _is_kind(word: str) -> bool:
    kinds = {w.resource.kind.lower() for w in WORKLOADS} | {w.resource.plural for w in WORKLOADS}
    return word.lower() in kinds | _NODE_WORDS


def _jobs(snapshot: Snapshot) -> list[Job]:
    """Those that exist, and those that only their recoveries still tell of."""
    jobs: dict[tuple[str, str, str], Job] = {}
    for recovery in snapshot.recoveries:
        jobs[_identity(recovery.spec.gang)] = Job(ref=recovery.spec.gang)
    for gang in snapshot.gangs:
        namespace = snapshot.namespaces.get(gang.ref.namespace)
        jobs[_identity(gang.ref)] = Job(
            ref=gang.ref,
            gang=gang,
            consent=opt_in(gang, namespace),
            misread=misread_on_job(gang, namespace),
        )
    return [jobs[identity] for identity in sorted(jobs)]


def _identity(ref: GangRef) -> tuple[str, str, str]:
    return ref.namespace, ref.name, ref.kind


def _nothing(asked: str, name: str, snapshot: Snapshot) -> str:
    space = asked.partition("/")[0]
    names: dict[str, list[str]] = {}
    for job in _jobs(snapshot):
        names.setdefault(job.ref.name, []).append(f"{job.ref.namespace}/{job.ref.name}")
    for node in snapshot.nodes:
        names.setdefault(node, []).append(f"node/{node}")
    near = [full for close in get_close_matches(name, names, n=3) for full in names[close]]
    if snapshot.hidden and not near:
        left = some(sorted(snapshot.hidden), 3)
        return f"no job or node {asked!r} is among what you may read; left out: {left}"
    hint = f"did you mean {some(near, 3)}?" if near else "`rekindle status` lists what Rekindle knows"
    is_there = _is_kind(space) or "/" not in asked or space in snapshot.namespaces
    return f"no {f'job or node {asked!r}' if is_there else f'namespace {space!r}'}: {hint}"


def _near(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, n=1)
    return f": did you mean {near[0]}?" if near else ""


def _several(asked: str, jobs: list[Job], node: str, command: str) -> str:
    ways = [f"-n {j.ref.namespace} {j.ref.kind.lower()}/{j.ref.name}" for j in jobs]
    if node:
        ways.append(f"node/{node}")
    return f"{asked!r} means several things; say which: " + "; ".join(
        f"rekindle {command} {way}" for way in ways
    )
