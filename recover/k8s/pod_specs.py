"""What is read of pod templates, owners and conditions, as the API gives them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from detectors.wire.contract import ObjectMeta
from detectors.wire.sane import sane

__all__ = [
    "HOSTNAME",
    "Affinity",
    "ConditionView",
    "FieldManager",
    "Mounts",
    "NodeAffinity",
    "OwnedMeta",
    "Owner",
    "PodSpec",
    "PodTemplate",
    "PullSecret",
    "RequiredTerms",
    "Requirement",
    "Term",
    "VolumeMount",
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
        ends = self.deletion_timestamp
        if ends is None:
            return None
        try:  # any number of seconds can be asked for
            return sane(ends - timedelta(seconds=self.deletion_grace_period_seconds)) or ends
        except OverflowError:
            return ends

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


class ConditionView(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    changed_at: datetime | None = msgspec.field(default=None, name="lastTransitionTime")
