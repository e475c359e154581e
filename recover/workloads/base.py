"""How a framework's job becomes a Gang, and how it is stopped and started. Adapters return writes only.

One file per framework; WORKLOADS in __init__ is the registration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from detectors.contract import ObjectMeta, key
from detectors.resource import Resource
from recover.actions import Patch
from recover.api import GangRef
from recover.consent import may_recreate
from recover.model import Gang, Mark, Mount, Template, Terminal, Volume, VolumeKind
from recover.objects import merged, shortened

__all__ = [
    "HOSTNAME",
    "MARK",
    "ConditionView",
    "OwnedMeta",
    "PodSpec",
    "PodTemplate",
    "StopsAtOnce",
    "Workload",
    "avoiding",
    "changes_affinity",
    "environment_name",
    "gang_of",
    "gang_patch",
    "made_anew",
    "reading_environment",
    "terminal_of",
    "volumes_of",
]

MARK = key("recovery")
HOSTNAME = "kubernetes.io/hostname"
_OWN_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences")
_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"


class Workload(Protocol):
    """One framework. `parse` raises msgspec.MsgspecError for an object that is not what it should be."""

    resource: Resource
    delays_starts: bool
    """It keeps its Failed pods, counts them, and makes new ones the later for them."""
    reuses_names: bool
    """New pods take the names of the old ones, so those must be gone, not only ended, before the start. Its
    stop deletes pods that have ended, too."""
    stops_at_once: bool
    """Nothing is `unfinished` after the patches of `stop`."""

    def parse(self, raw: bytes) -> Gang: ...

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        """The uncounted way to end every pod; the first patch carries the mark."""
        ...

    def unfinished(self, gang: Gang) -> list[Patch]:
        """What a stop still needs once its mark is there. Asked at every look, so it ends by itself."""
        ...

    def startable(self, gang: Gang, parts: Sequence[Gang]) -> bool:
        """Its framework has done what the stop set off."""
        ...

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        """Starts the stopped gang off the nodes that the mark avoids; the last patch carries the mark."""
        ...

    def anew(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        """The object to create in place of the gang's job, running off the nodes that the mark avoids."""
        ...


class StopsAtOnce:
    """For a framework whose stop is one patch, after which nothing of it has to be waited for but pods."""

    stops_at_once = True

    def unfinished(self, gang: Gang) -> list[Patch]:
        return []

    def startable(self, gang: Gang, parts: Sequence[Gang]) -> bool:
        return True


# --- the parts of a job that all frameworks share ----------------------------------------------------------


class Owner(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    api_version: str = ""


class FieldManager(msgspec.Struct, rename="camel", frozen=True):
    """One entry of managedFields: who wrote which fields last."""

    manager: str = ""
    subresource: str = ""
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b""))


class OwnedMeta(ObjectMeta, rename="camel", frozen=True):
    owner_references: list[Owner] = []
    deletion_grace_period_seconds: int = 0
    managed_fields: list[FieldManager] = []

    @property
    def deleting_since(self) -> datetime | None:
        """When deletion was asked for: the API's timestamp is when the grace period ends."""
        if self.deletion_timestamp is None:
            return None
        try:
            return self.deletion_timestamp - timedelta(seconds=self.deletion_grace_period_seconds)
        except OverflowError:  # any number of seconds can be asked for
            return self.deletion_timestamp

    @property
    def controller(self) -> Owner | None:
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def suspend_writer(self) -> str:
        """Who last wrote the suspend field. The API server moves a field to the entry of its last writer."""
        for entry in self.managed_fields:
            if not entry.subresource and b'"f:suspend"' in bytes(entry.fields):
                return entry.manager
        return ""


class VolumeMount(msgspec.Struct, rename="camel", frozen=True):
    name: str
    mount_path: str
    sub_path: str = ""


class Mounts(msgspec.Struct, rename="camel", frozen=True):
    """What we read of a container; the whole is kept raw, since lists are patched whole."""

    volume_mounts: list[VolumeMount] = []


class Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class Term(msgspec.Struct, rename="camel", frozen=True):
    match_expressions: list[Requirement] = []


class RequiredTerms(msgspec.Struct, rename="camel", frozen=True):
    node_selector_terms: list[Term] = []


class NodeAffinity(msgspec.Struct, rename="camel", frozen=True):
    required: RequiredTerms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(msgspec.Struct, rename="camel", frozen=True):
    """Read for what it keeps out; written from the raw mapping, so that nothing of it is lost."""

    node_affinity: NodeAffinity | None = None


class PullSecret(msgspec.Struct, frozen=True):
    name: str = ""


class PodSpec(msgspec.Struct, rename="camel", frozen=True):
    containers: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    security_context: dict[str, Any] = {}
    tolerations: list[dict[str, Any]] = []
    affinity: dict[str, Any] = {}
    image_pull_secrets: list[PullSecret] = []


class PodTemplate(msgspec.Struct, frozen=True):
    spec: PodSpec = PodSpec()


def template_of(spec: PodSpec) -> Template:
    return Template(
        volumes=volumes_of(spec),
        security_context=spec.security_context,
        tolerations=tuple(spec.tolerations),
        image_pull_secrets=tuple(secret.name for secret in spec.image_pull_secrets),
        containers=tuple(spec.containers),
        affinity=spec.affinity,
        avoided=_avoided(msgspec.convert(spec.affinity, Affinity)),
    )


def volumes_of(spec: PodSpec) -> tuple[Volume, ...]:
    """The volumes with where the containers mount them."""
    found = []
    mounts = [m for c in msgspec.convert(spec.containers, list[Mounts]) for m in c.volume_mounts]
    for volume in spec.volumes:
        name = str(volume.get("name", ""))
        kind = next((k for k in VolumeKind if k.value in volume), VolumeKind.OTHER)
        source = volume.get(kind.value)
        places = {Mount(m.mount_path, m.sub_path) for m in mounts if m.name == name}
        found.append(
            Volume(
                name=name,
                kind=kind,
                source=source if isinstance(source, Mapping) else {},
                mounts=tuple(sorted(places)),
            )
        )
    return tuple(found)


def _avoided(affinity: Affinity) -> tuple[str, ...]:
    if affinity.node_affinity is None or affinity.node_affinity.required is None:
        return ()
    return tuple(
        sorted(
            {
                value
                for term in affinity.node_affinity.required.node_selector_terms
                for requirement in term.match_expressions
                if requirement.key == HOSTNAME and requirement.operator == "NotIn"
                for value in requirement.values
            }
        )
    )


def mark_of(annotations: Mapping[str, str]) -> Mark | None:
    """Our mark on a job. One that people have garbled counts as none: the next write replaces it."""
    try:
        return msgspec.json.decode(annotations.get(MARK, ""), type=Mark)
    except msgspec.MsgspecError:
        return None


def foreign_owner(meta: OwnedMeta) -> str:
    """Who else decides when this job runs; empty if nobody."""
    queue = meta.labels.get(_KUEUE_QUEUE)
    if queue is not None:
        return f"Kueue (queue {queue})"
    owner = meta.controller
    return f"{owner.kind} {owner.name}" if owner is not None else ""


def gang_of(
    raw: bytes,
    meta: OwnedMeta,
    resource: Resource,
    *,
    suspended: bool,
    terminal: Terminal | None,
    size: int,
    templates: Mapping[str, PodSpec],
    failures: int = 0,
    done_ranks: str = "",
) -> Gang:
    """The Gang of a job, from what its framework's own fields say."""
    return Gang(
        ref=GangRef(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        ),
        resource=resource,
        version=meta.resource_version,
        labels=meta.labels,
        annotations=meta.annotations,
        created=meta.creation_timestamp,
        deleting=meta.deletion_timestamp is not None,
        suspended=suspended,
        suspend_writer=meta.suspend_writer,
        terminal=terminal,
        failures=failures,
        done_ranks=done_ranks,
        size=size,
        foreign_owner=foreign_owner(meta),
        mark=mark_of(meta.annotations),
        templates={name: template_of(spec) for name, spec in templates.items()},
        definition=_definition(raw, resource) if may_recreate(meta.annotations) else b"",
    )


def _definition(raw: bytes, resource: Resource) -> bytes:
    """What people wrote of the job, without what a server or a framework filled in."""
    whole = msgspec.json.decode(raw)
    told = {name: whole["metadata"][name] for name in _OWN_METADATA if name in whole["metadata"]}
    wrote = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": told,
        "spec": whole["spec"],
    }
    return msgspec.json.encode(wrote)


def gang_patch(gang: Gang, what: str, spec: dict[str, Any], mark: Mark) -> Patch:
    """One patch with the change and the mark, on exactly the object that was seen."""
    annotation = msgspec.json.encode(mark).decode()
    return Patch(
        what=what,
        resource=gang.resource,
        namespace=gang.ref.namespace,
        name=gang.ref.name,
        uid=gang.ref.uid,
        version=gang.version,
        body={"metadata": {"annotations": {MARK: annotation}}, "spec": spec},
    )


def made_anew(gang: Gang, patches: Iterable[Patch]) -> dict[str, Any]:
    """What people wrote of the job, with what a start changes."""
    changed: dict[str, Any] = msgspec.json.decode(gang.definition)
    for patch in patches:
        changed = merged(changed, patch.body)
    return changed


def environment_name(gang: Gang) -> str:
    """The ConfigMap that carries the environment of the next attempt to the gang's containers."""
    return f"{shortened(gang.ref.name, 244)}-rekindle"


def reading_environment(containers: tuple[Mapping[str, Any], ...], gang: Gang) -> list[dict[str, Any]]:
    """The containers, each reading our ConfigMap through an optional envFrom.

    A variable that the template sets itself wins over envFrom: we never override what people wrote.
    """
    ours = {"configMapRef": {"name": environment_name(gang), "optional": True}}
    return [
        {
            **container,
            "envFrom": [*(e for e in container.get("envFrom", []) if not _same_map(e, ours)), ours],
        }
        for container in containers
    ]


def _same_map(source: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    return bool(source.get("configMapRef", {}).get("name") == ours["configMapRef"]["name"])


def avoiding(affinity: Mapping[str, Any], gang: Gang, mark: Mark) -> dict[str, Any]:
    """The affinity that keeps out the nodes of the new mark, and no longer those of the mark before.

    Required terms are ORed, so the exclusion goes into each of them. What people excluded themselves stays.
    """
    before = set(gang.mark.avoided) if gang.mark else set()
    result = _copy(affinity)
    node_affinity = result.setdefault("nodeAffinity", {})
    required = node_affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", []) or [{}]
    required["nodeSelectorTerms"] = terms
    for term in terms:
        expressions = term.get("matchExpressions", [])
        others = [e for e in expressions if not _excludes_hosts(e)]
        hosts = {v for e in expressions if _excludes_hosts(e) for v in e.get("values", [])}
        hosts = (hosts - before) | set(mark.avoided)
        if hosts:
            others.append({"key": HOSTNAME, "operator": "NotIn", "values": sorted(hosts)})
        term["matchExpressions"] = others
    # A term without any requirement matches no node at all.
    required["nodeSelectorTerms"] = [t for t in terms if t.get("matchExpressions") or t.get("matchFields")]
    if not required["nodeSelectorTerms"]:
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = None
    return result


def changes_affinity(gang: Gang, mark: Mark) -> bool:
    return bool(mark.avoided or (gang.mark and gang.mark.avoided))


def _excludes_hosts(expression: Mapping[str, Any]) -> bool:
    return expression.get("key") == HOSTNAME and expression.get("operator") == "NotIn"


def _copy(value: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return copied


class ConditionView(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


def terminal_of(
    conditions: list[ConditionView], *, succeeded: str, failed: Collection[str]
) -> Terminal | None:
    for condition in conditions:
        if condition.status == "True" and (condition.type == succeeded or condition.type in failed):
            return Terminal(condition.type == succeeded, condition.reason, condition.message)
    return None
