"""Merge patch (RFC 7386), JSON patch (RFC 6902), and Kubernetes' strategic merge of conditions. Pure: the
result is a new document, and the old document is unchanged."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["PatchError", "json_patch", "merge_patch", "strategic_patch"]


class PatchError(ValueError):
    """The patch cannot be applied to this document; for JSON patch this includes a failed `test`."""


def merge_patch(document: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_patch(document: Any, patch: Any) -> Any:
    """Applies a merge patch, except that `status.conditions` is merged by type; `$patch: delete` removes a
    condition."""
    given = patch.get("status", {}).get("conditions") if isinstance(patch, dict) else None
    if given is None:
        return merge_patch(document, patch)
    status = {name: value for name, value in patch["status"].items() if name != "conditions"}
    merged = merge_patch(document, {**patch, "status": status})
    conditions = {one["type"]: one for one in merged["status"].get("conditions", [])}
    for one in given:
        if one.get("$patch") == "delete":
            conditions.pop(one["type"], None)
        else:
            conditions[one["type"]] = merge_patch(conditions.get(one["type"]), one)
    merged["status"]["conditions"] = list(conditions.values())
    return merged


def json_patch(document: Any, operations: Any) -> Any:
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    result = copy.deepcopy(document)
    for number, operation in enumerate(operations):
        try:
            result = _apply(result, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PatchError(f"operation {number} ({operation}): {error}") from error
    return result


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    name, path = operation["op"], _steps(operation["path"])
    if name == "test":
        if _tested(document, path) != operation["value"]:
            raise PatchError("test failed")
        return document
    if name == "remove":
        return _removed(document, path)
    if name == "replace":
        _read(document, path)
        return _added(_removed(document, path), path, operation["value"]) if path else operation["value"]
    if name == "add":
        return _added(document, path, operation["value"])
    source = _steps(operation["from"])
    value = copy.deepcopy(_read(document, source))
    if name == "copy":
        return _added(document, path, value)
    if name == "move":
        return _added(_removed(document, source), path, value)
    raise PatchError(f"unknown operation {name}")


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise PatchError(f"path {pointer!r} does not begin with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _read(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[_index(document, step)]
    return document


def _tested(document: Any, path: list[str]) -> Any:
    """Returns None for a missing member, as an API server does. The member's parent must exist."""
    if not path:
        return document
    parent = _read(document, path[:-1])
    return parent.get(path[-1]) if isinstance(parent, dict) else _read(parent, path[-1:])


def _index(container: Any, step: str) -> Any:
    if isinstance(container, list):
        index = int(step)
        if not 0 <= index < len(container):
            raise PatchError(f"index {index} is outside the list")
        return index
    if not isinstance(container, dict):
        raise PatchError(f"no member {step!r} in a plain value")
    return step


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _read(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if not 0 <= index <= len(parent):
            raise PatchError(f"index {index} is outside the list")
        parent.insert(index, copy.deepcopy(value))
    else:
        parent[last] = copy.deepcopy(value)
    return document


def _removed(document: Any, path: list[str]) -> Any:
    parent = _read(document, path[:-1])
    del parent[_index(parent, path[-1])]
    return document
