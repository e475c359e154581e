"""What the frameworks' job objects have in common, as the API gives it: owners, pod templates, conditions.

Only what a decision or a patch needs is read. base.py makes a Gang of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from detectors.contract import ObjectMeta
from recover.model import Mount, Template, Terminal, Volume, VolumeKind

__all__ = [
    "HOSTNAME",
    "ConditionView",
    "OwnedMeta",
    "Owner",
    "PodSpec",
    "PodTemplate",
    "queue_words",
    "template_of",
    "terminal_of",
    "volumes_of",
]

HOSTNAME = "kubernetes.io/hostname"


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
    sub_path_expr: str = ""


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
    node_selector: dict[str, str] = {}
    priority_class_name: str = ""


class PodTemplate(msgspec.Struct, frozen=True):
    spec: PodSpec = PodSpec()


def queue_words(parallelism: int, completions: int | None) -> str:
    """Why a batch/v1 Job is no gang, after its name: its pods do not all live at once. Empty if they do."""
    if completions is None or completions <= parallelism:
        return ""
    return f"works off {completions} completions, {parallelism} at a time, and is no gang"


def template_of(spec: PodSpec, count: int = 0) -> Template:
    return Template(
        volumes=volumes_of(spec),
        security_context=spec.security_context,
        tolerations=tuple(spec.tolerations),
        image_pull_secrets=tuple(secret.name for secret in spec.image_pull_secrets),
        containers=tuple(spec.containers),
        affinity=spec.affinity,
        avoided=_avoided(msgspec.convert(spec.affinity, Affinity)),
        count=count,
        node_selector=spec.node_selector,
        priority_class=spec.priority_class_name,
    )


def volumes_of(spec: PodSpec) -> tuple[Volume, ...]:
    """The volumes with where the containers mount them."""
    found = []
    mounts = [m for c in msgspec.convert(spec.containers, list[Mounts]) for m in c.volume_mounts]
    for volume in spec.volumes:
        name = str(volume.get("name", ""))
        kind = next((k for k in VolumeKind if k.value in volume), VolumeKind.OTHER)
        source = volume.get(kind.value)
        places = {Mount(m.mount_path, m.sub_path, m.sub_path_expr) for m in mounts if m.name == name}
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


class ConditionView(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    changed_at: datetime | None = msgspec.field(default=None, name="lastTransitionTime")


def terminal_of(
    conditions: list[ConditionView], *, succeeded: Collection[str], failed: Collection[str]
) -> Terminal | None:
    for condition in conditions:
        if condition.status == "True" and (condition.type in succeeded or condition.type in failed):
            return Terminal(condition.type in succeeded, condition.reason, condition.message)
    return None
