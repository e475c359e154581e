"""The rules of metadata, the same for every kind: names, labels, preconditions, fields that only the server
sets. Called by store.py on each write; raises the refusal."""

from __future__ import annotations

import re
from typing import Any

from chaos.apiserver import refusals
from detectors.wire.resource import Resource

__all__ = ["SERVER_OWNED", "check_identity", "check_kind", "validate", "without_empty"]

SERVER_OWNED = (
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def validate(resource: Resource, meta: dict[str, Any]) -> None:
    name = meta.get("name", "")
    if not _NAME.fullmatch(name):
        raise refusals.invalid(
            resource, name, f'metadata.name: Invalid value: "{name}": must be a lowercase RFC 1123 subdomain'
        )
    for key, value in meta.get("labels", {}).items():
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            raise refusals.invalid(resource, name, f'metadata.labels: Invalid value: "{value}" of {key}')
    for key, value in meta.get("annotations", {}).items():
        if not isinstance(value, str):
            raise refusals.bad_request(f"metadata.annotations.{key}: expected a string")


def check_kind(resource: Resource, new: dict[str, Any]) -> None:
    """Checks apiVersion and kind. A custom resource must name both; for a built-in kind the path names
    them."""
    for field, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if not new.get(field):
            raise refusals.bad_request(f"the object provided is unrecognized: Object '{field}' is missing")
        if new[field] != wanted:
            name = new["metadata"].get("name", "")
            why = f'{field}: Invalid value: "{new[field]}": must be {wanted}'
            raise refusals.invalid(resource, name, why)


def check_identity(resource: Resource, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Checks the preconditions (a version, a uid) and the fields that a patch may not change, and restores
    the fields that the server owns."""
    before, after = old["metadata"], new["metadata"]
    if after.get("uid", before["uid"]) != before["uid"]:
        raise refusals.invalid(resource, before["name"], "metadata.uid: Invalid value: field is immutable")
    if after.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
        raise refusals.conflict(resource, before["name"])
    for field in ("name", "namespace"):
        if after.get(field) != before.get(field):
            raise refusals.bad_request(f"metadata.{field} of the object does not match the URL")
    for field in SERVER_OWNED:
        after.pop(field, None)
        if field in before:
            after[field] = before[field]
    added = set(after.get("finalizers", [])) - set(before.get("finalizers", []))
    if "deletionTimestamp" in before and added:
        why = "no new finalizers can be added if the object is being deleted"
        raise refusals.invalid(resource, before["name"], f"metadata.finalizers: Forbidden: {why}")


def without_empty(meta: dict[str, Any]) -> dict[str, Any]:
    """Returns the metadata without empty maps and lists. They are not stored, so setting one changes
    nothing."""
    return {key: value for key, value in meta.items() if value not in ({}, [])}
