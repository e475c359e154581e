"""Turns our structs into API bodies, and builds references to objects for Events. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from detectors.wire.resource import Resource

__all__ = ["body", "builtins", "merge_diff", "merged", "regarding", "shortened", "without_nulls"]


def builtins(value: msgspec.Struct) -> dict[str, Any]:
    """Returns a JSON-ready dict; times become RFC 3339 strings."""
    converted: dict[str, Any] = msgspec.to_builtins(value)
    return converted


def body(
    resource: Resource,
    name: str,
    namespace: str = "",
    *,
    labels: dict[str, str] | None = None,
    **parts: msgspec.Struct,
) -> dict[str, Any]:
    """Returns a whole object to create: `body(RECOVERIES, name, namespace, spec=...)`."""
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        **{part: builtins(value) for part, value in parts.items()},
    }


def regarding(api_version: str, kind: str, name: str, uid: str, namespace: str = "") -> dict[str, str]:
    """Returns the reference to the object that an Event is about."""
    found = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return {**found, "namespace": namespace} if namespace else found


def merge_diff(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Returns the merge patch that turns `old` into `new`: removed fields become null, lists are replaced as
    a whole."""
    patch: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            inner = merge_diff(before, value)
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of applying a merge patch (RFC 7386) to `target`."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            before = result.get(name)
            result[name] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def without_nulls(value: Any) -> Any:
    """Returns the object that a merge patch creates if no object exists."""
    if isinstance(value, Mapping):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return value


def shortened(name: str, chars_max: int) -> str:
    """Returns the name if it fits, otherwise its beginning and a hash of the whole name: the result is valid
    and still unique."""
    if len(name) <= chars_max:
        return name
    whole = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: chars_max - 9].rstrip('-.')}-{whole}"
