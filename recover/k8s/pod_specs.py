"""Decodes the parts of pods, pod templates, owners and conditions that Rekindle reads. Pure.

A struct defines what must be well-formed for its reader: one unexpected field makes the whole object
unreadable. Text that people write, and that the API server keeps unchecked, is therefore read by structs with
no more fields than the reader needs: `Mounts` here, `TrainingContainer` in model/containers.py, and the
structs of manifests in workloads/ and cli/. The API server checks pods, so one `Container` reads theirs.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from detectors.wire.contract import ObjectMeta
from detectors.wire.sane import sane

__all__ = [
    "HOSTNAME",
    "Affinity",
    "ConditionView",
    "Container",
    "EnvSource",
    "FieldManager",
    "Mounts",
    "NodeAffinity",
    "OwnedMeta",
    "Owner",
    "PodSpec",
    "PodTemplate",
    "Reference",
    "RequiredTerms",
    "Requirement",
    "Resources",
    "Term",
    "Variable",
    "VolumeMount",
]

HOSTNAME = "kubernetes.io/hostname"

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_OWNER = {
    "kind": re.compile(r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?"),
    "api_version": re.compile(rf"({_SUBDOMAIN}/)?[a-z]([-a-z0-9]*[a-z0-9])?"),
    "name": re.compile(_SUBDOMAIN),
    "uid": re.compile(r"[-.:_A-Za-z0-9]+"),
}
"""Patterns of an owner's fields. Source: Kubernetes, validation of CustomResourceDefinitions (kind, group and
version) and "Object Names and IDs". The API server creates uids; this pattern accepts more than those."""
_OWNER_CHARS_MAX = 320
"""Maximum length of a field: a group of 253 characters, a slash and a version of 63."""


class Owner(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    api_version: str = ""

    @property
    def may_exist(self) -> bool:
        """Whether such an owner can exist. The API server accepts any text as an owner."""
        words = (self.kind, self.name, self.uid, self.api_version)
        if any(len(word) > _OWNER_CHARS_MAX for word in words):  # a pattern would examine each character
            return False
        return _is_well_formed(self)


@lru_cache(maxsize=1024)
def _is_well_formed(owner: Owner) -> bool:
    """Whether the fields have the form of an owner's. All pods of a gang have one owner, and each change of a
    pod asks about the owner three times, so the answers are cached."""
    return all(form.fullmatch(getattr(owner, field)) is not None for field, form in _OWNER.items())


class FieldManager(msgspec.Struct, rename="camel", frozen=True):
    """One entry of managedFields: the last writer of some fields."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b""))


class OwnedMeta(ObjectMeta, rename="camel", frozen=True):
    owner_references: list[Owner] = []
    deletion_grace_period_seconds: int = 0
    managed_fields: list[FieldManager] = []

    @property
    def deleting_since(self) -> datetime | None:
        """Time at which the deletion was requested: the API's timestamp is the end of the grace period."""
        ends = self.deletion_timestamp
        if ends is None:
            return None
        try:  # a deletion may request any number of seconds
            return sane(ends - timedelta(seconds=self.deletion_grace_period_seconds)) or ends
        except OverflowError:
            return ends

    @property
    def controller(self) -> Owner | None:
        """The controller of the object. None also for an owner that cannot exist: our objects name owners,
        and people read these names."""
        return next((owner for owner in self.owner_references if owner.controller and owner.may_exist), None)

    def labelled_at(self, label: str) -> datetime | None:
        """Returns when the label, or another field that the same writer owns, was last written. None if
        unknown."""
        named = f'"f:{label}"'.encode()
        told = (sane(e.time) for e in self.managed_fields if not e.subresource and named in bytes(e.fields))
        return max((at for at in told if at is not None), default=None)

    @property
    def suspend_writer(self) -> str:
        """The last writer of the suspend field. The API server moves a field to the entry of its last
        writer."""
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
    """The fields of a container in a template that Rekindle reads. The whole container is kept raw, since
    lists are patched as a whole."""

    volume_mounts: list[VolumeMount] = []


class Variable(msgspec.Struct, frozen=True):
    """A variable of a container. A variable that takes its value from elsewhere has no value here."""

    name: str = ""
    value: str = ""


class Reference(msgspec.Struct, frozen=True):
    name: str = ""


class EnvSource(msgspec.Struct, rename="camel", frozen=True):
    config_map_ref: Reference = Reference()


class Resources(msgspec.Struct, frozen=True):
    """Quantities as the API server keeps them: texts, or whole numbers."""

    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


class Container(Mounts, rename="camel", frozen=True):
    """A container of a pod."""

    name: str = ""
    resources: Resources = Resources()
    env_from: list[EnvSource] = []

    @property
    def environments(self) -> set[str]:
        """Names of the ConfigMaps from which the container takes variables."""
        return {source.config_map_ref.name for source in self.env_from} - {""}


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
    """Affinity, decoded only to find what it excludes. Patches use the raw mapping, so that nothing of it is
    lost."""

    node_affinity: NodeAffinity | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True):
    containers: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    security_context: dict[str, Any] = {}
    tolerations: list[dict[str, Any]] = []
    affinity: dict[str, Any] = {}
    image_pull_secrets: list[Reference] = []
    node_selector: dict[str, str] = {}
    priority_class_name: str = ""


class PodTemplate(msgspec.Struct, frozen=True):
    spec: PodSpec = PodSpec()


class ConditionView(msgspec.Struct, frozen=True):
    """A condition of an object of Kubernetes or of a framework; `api.Condition` is what we write."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    changed_at: datetime | None = msgspec.field(default=None, name="lastTransitionTime")
