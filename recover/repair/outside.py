"""Requests a reboot by a system outside the cluster, in place of a Job: by a webhook, or by an object on
which another controller acts. Pure.

Both can reboot a node that no longer answers. In both cases the new boot id is the proof, and Rekindle checks
nothing else.
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
    """An object of another controller's kind, as the settings define it."""

    resource: Resource
    body: Mapping[str, Any]
    """The object, with the placeholders `{node}`, `{id}`, `{incident}` and `{fault}` in its texts."""
    namespace: str = ""


class Means(msgspec.Struct, frozen=True):
    """The templates and the maintenance object from which the steps of a repair are made."""

    templates: Mapping[StepKind, Mapping[str, Any]]
    """The pod template of each kind of step."""
    maintenance: Maintenance | None = None


def is_set(rules: Repairs, means: Means) -> bool:
    return bool(rules.webhook.url) or means.maintenance is not None


def ask(incident: Incident, repair: Repair, step: RepairStep, means: Means, boot_id: str) -> Ask | Create:
    """Returns the request for the reboot. Either the webhook or the maintenance object is set."""
    told = step_jobs.variables(incident, repair)
    if means.maintenance is None:
        fields = {name.removeprefix("REKINDLE_").lower(): value for name, value in told.items()}
        body = {"action": str(step.kind), "id": step.job, **fields, "bootId": boot_id}
        if repair.deadline is not None:  # a reboot that comes later may meet a node that people have repaired
            body["until"] = repair.deadline.isoformat()
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
    # If a person deletes the Incident, the only record of the object's name is lost, so Kubernetes then
    # deletes the object, too.
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
    """Returns the deletion of the maintenance object when its reboot is over, or is no longer awaited: a
    system outside may keep the node in maintenance until then. The deletion also covers an object without a
    note in the Incident, because a crash may have prevented the note."""
    step = before.step
    if means.maintenance is None or step is None or step.kind is not StepKind.REBOOT:
        return None
    if after.step is not None:
        return None
    made = means.maintenance
    return Delete(
        what="take-reboot-back", resource=made.resource, name=step.job, namespace=made.namespace, uid=""
    )
