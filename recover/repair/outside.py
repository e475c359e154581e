"""A reboot by a machine outside the cluster, in place of a Job: asked by a webhook, or by an object that its
own controller acts on. Pure.

Both can reboot a node that no longer answers. Either way the new boot id is the proof, and nothing else is
asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from detectors.wire.resource import Resource
from recover.api import Incident
from recover.api.marks import REPAIR_OF
from recover.api.repair_state import Repair, RepairStep, StepKind
from recover.model.actions import Ask, Create, Delete
from recover.policy.settings import Repairs
from recover.repair import step_jobs

__all__ = ["Maintenance", "Means", "ask", "is_set", "take_back"]


class Maintenance(msgspec.Struct, frozen=True):
    """An object of somebody else's kind, as the settings give it."""

    resource: Resource
    body: Mapping[str, Any]
    """With `{node}`, `{id}`, `{incident}` and `{fault}` in its texts."""
    namespace: str = ""


class Means(msgspec.Struct, frozen=True):
    """What the steps of a repair are made of."""

    templates: Mapping[StepKind, Mapping[str, Any]]
    """The pod template of each kind of step."""
    maintenance: Maintenance | None = None


def is_set(rules: Repairs, means: Means) -> bool:
    return bool(rules.webhook.url) or means.maintenance is not None


def ask(incident: Incident, repair: Repair, step: RepairStep, means: Means, boot_id: str) -> Ask | Create:
    """One of the two is set."""
    told = step_jobs.variables(incident, repair)
    if means.maintenance is None:
        fields = {name.removeprefix("REKINDLE_").lower(): value for name, value in told.items()}
        body = {"action": str(step.kind), "id": step.job, **fields, "bootId": boot_id}
        return Ask(what="ask-for-reboot", id=step.job, body=body)
    made = means.maintenance
    words = {
        "{node}": incident.spec.node,
        "{id}": step.job,
        "{incident}": incident.metadata.name,
        "{fault}": str(incident.fault),
    }
    body = _filled(made.body, words)
    metadata = body.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), REPAIR_OF: step_jobs.label_of(incident.metadata.name)}
    # Whoever deletes the Incident takes away what tells us its name: then Kubernetes deletes it.
    owner = {
        "apiVersion": incident.api_version,
        "kind": incident.kind,
        "name": incident.metadata.name,
        "uid": incident.metadata.uid,
    }
    body["metadata"] = {**metadata, "name": step.job, "labels": labels, "ownerReferences": [owner]}
    return Create(
        what="ask-for-reboot",
        resource=made.resource,
        name=step.job,
        namespace=made.namespace,
        body=body,
        strict=True,
    )


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for placeholder, word in words.items():
            value = value.replace(placeholder, word)
        return value
    if isinstance(value, Mapping):
        return {name: _filled(inner, words) for name, inner in value.items()}
    return [_filled(inner, words) for inner in value] if isinstance(value, list) else value


def take_back(before: Repair, after: Repair, means: Means) -> Delete | None:
    """The object goes when its reboot is over, or nobody waits for it any more: a machine outside may hold
    the node in maintenance until then. Also one that no note tells of: a crash may have come before that."""
    step = before.step
    if means.maintenance is None or step is None or step.kind is not StepKind.REBOOT:
        return None
    if after.step is not None:
        return None
    made = means.maintenance
    return Delete(
        what="take-reboot-back", resource=made.resource, name=step.job, namespace=made.namespace, uid=""
    )
