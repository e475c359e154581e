"""Finds the job or node that a person named among the objects that read.py has read.

Jobs are found by name and not by uid: a person asks about `team/llm` even after the job was deleted and
submitted again. Decisions, in contrast, go by uid.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from recover.api import GangRef
from recover.k8s.kinds import NAMESPACES
from recover.model import Gang
from recover.policy.commands import why, why_node
from recover.policy.consent import AUTO_RECOVERY, OptIn, opt_in
from recover.snapshot.read import Lack, Snapshot
from recover.stories.annotations import misread_on_job
from recover.stories.job_state import Job
from recover.stories.words import some
from recover.workloads import WORKLOADS

__all__ = ["NotFound", "find", "namespace_of"]

_NODE = "node"
_NODE_WORDS = frozenset({_NODE, "nodes", "no"})


class NotFound(Exception):
    """There is no such job or node, or there are several. The message is one line: the nearest names, or how
    to choose one."""


def namespace_of(asked: str) -> str:
    """Returns the namespace in NAMESPACE/NAME; empty for other forms."""
    first, slash, _ = asked.partition("/")
    return first if slash and not _kind(first) else ""


def find(
    asked: str, snapshot: Snapshot, namespace: str = "", command: str = "why", default_namespace: str = ""
) -> Job | str:
    """Returns the job, or the name of the node, that `asked` means.

    `asked` is NAME, NAMESPACE/NAME, KIND/NAME or node/NAME; `command` is the command that runs. If several
    jobs have the name, the job in `default_namespace` is meant, which the kubeconfig names. Raises
    NotFound.
    """
    first, slash, second = asked.partition("/")
    name = second if slash else first
    if not name or "/" in name:
        raise NotFound(f"{asked!r} is not a name: expected NAME, NAMESPACE/NAME, KIND/NAME or node/NAME")
    kind = _kind(first) if slash else ""
    within = namespace or namespace_of(asked)

    jobs = [
        job
        for job in _jobs(snapshot)
        if job.ref.name == name
        and (not within or job.ref.namespace == within)
        and (not kind or job.ref.kind.lower() == kind)
    ]
    known = snapshot.nodes.keys() | snapshot.health.keys() | {i.spec.node for i in snapshot.incidents}
    is_node = name in known and not within and kind in ("", _NODE)
    match jobs, is_node:
        case [], True:
            return name
        case [job], False:
            return job
        case [], False:
            raise NotFound(_nothing(asked, name, snapshot))
        case _, False:
            near = [job for job in jobs if default_namespace and job.ref.namespace == default_namespace]
            if len(near) == 1:
                return near[0]
    raise NotFound(_several(asked, jobs, node=name if is_node else "", command=command))


def _kind(word: str) -> str:
    """Returns the kind that the word names, in lower case; empty if the word names no known kind."""
    if word.lower() in _NODE_WORDS:
        return _NODE
    kinds = (w.resource for w in WORKLOADS if word.lower() in (w.resource.kind.lower(), w.resource.plural))
    return next((kind.kind.lower() for kind in kinds), "")


def _jobs(snapshot: Snapshot) -> list[Job]:
    """Returns all jobs: jobs that could be read, and jobs that are known only from their recoveries."""
    jobs: dict[tuple[str, str, str], Job] = {}
    for recovery in snapshot.recoveries:
        ref = recovery.spec.gang
        jobs[_identity(ref)] = Job(ref=ref, absence=snapshot.absence(ref))
    for gang in snapshot.gangs:
        namespace = snapshot.namespaces.get(gang.ref.namespace)
        jobs[_identity(gang.ref)] = Job(
            ref=gang.ref,
            gang=gang,
            consent=_consent(gang, snapshot),
            misread=misread_on_job(gang, namespace),
        )
    return [jobs[identity] for identity in sorted(jobs)]


def _consent(gang: Gang, snapshot: Snapshot) -> OptIn | None:
    """Returns the consent of the job; None if the job leaves its consent to a namespace that may not be
    read."""
    namespace = snapshot.namespaces.get(gang.ref.namespace)
    says_itself = AUTO_RECOVERY in gang.labels or AUTO_RECOVERY in gang.annotations
    if namespace is None and not says_itself and NAMESPACES.plural in snapshot.hidden:
        return None
    return opt_in(gang, namespace)


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
    hint = f"did you mean {some(near, 3)}?" if near else "`rekindle status` lists what Rekindle knows"
    if unread := _unread(asked, name, snapshot):
        return unread
    if about := _record_of(name, snapshot):
        return f"{asked!r} is neither a job nor a node, but {about}"
    if not_served := _not_served(asked, snapshot.lacks):
        return f"no {asked!r}: {not_served}"
    hidden = snapshot.hidden - ({NAMESPACES.plural} if space in snapshot.namespaces else set())
    if hidden:
        left = f"you may read no job or node named {asked!r}; left out: {some(sorted(hidden), 3)}"
        return f"{left}; {hint}" if near else left
    is_there = _kind(space) or "/" not in asked or space in snapshot.namespaces
    return f"no {f'job or node {asked!r}' if is_there else f'namespace {space!r}'}: {hint}"


def _unread(asked: str, name: str, snapshot: Snapshot) -> str:
    """Returns a sentence if the object exists and cannot be decoded; otherwise empty."""
    *_, space = ("", *asked.split("/")[:-1])
    for (plural, full), reason in snapshot.undecodable.items():
        namespace, _, found = full.rpartition("/")
        if found == name and (space in ("", namespace) or _kind(space)):
            return f"{plural} {full} exists and cannot be read: {reason}"
    return ""


def _record_of(name: str, snapshot: Snapshot) -> str:
    """Returns, if the name is that of an Incident or a Recovery, what it is and the command that explains its
    node or job; otherwise empty."""
    for incident in snapshot.incidents:
        if incident.metadata.name == name and incident.spec.node:
            return f"an Incident; see `{why_node(incident.spec.node)}`"
        if incident.metadata.name == name and incident.spec.gang is not None:
            return f"an Incident; see `{why(incident.spec.gang)}`"
    for recovery in snapshot.recoveries:
        if recovery.metadata.name == name:
            return f"a Recovery; see `{why(recovery.spec.gang)}`"
    return ""


def _not_served(asked: str, lacks: Mapping[str, Lack]) -> str:
    """Returns a sentence if the cluster does not serve the kind that the person named; empty if it does."""
    word = asked.partition("/")[0].lower()
    for resource in (w.resource for w in WORKLOADS):
        named = "/" in asked and word in (resource.kind.lower(), resource.plural)
        if named and lacks.get(resource.plural) is Lack.NOT_SERVED:
            return f"this cluster does not serve {resource.kind} ({resource.api_version}): its CRD is missing"
    return ""


def _several(asked: str, jobs: list[Job], node: str, command: str) -> str:
    ways = [f"-n {j.ref.namespace} {j.ref.kind.lower()}/{j.ref.name}" for j in jobs]
    if node:
        ways.append(f"node/{node}")
    return f"{asked!r} names several objects; choose one: " + "; ".join(
        f"rekindle {command} {way}" for way in ways
    )
