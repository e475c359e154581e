"""Builds JSON Patches (RFC 6902) for an API server: tests of what was seen, then the change. Pure.

A test with the value null succeeds if only the field itself is missing. If the parent of the field is missing
as well, the test fails. If one test fails, nothing is changed, and the answer is 422 Invalid without the name
of the test. A patch that names no version is applied to the newest version, even if others write at the same
time. (Kubernetes 1.36.3, measured.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from recover.k8s.bodies import without_nulls

__all__ = ["Operations", "Path", "changes", "expecting", "path_of"]

Operations = list[dict[str, Any]]
Path = tuple[str, ...]


def path_of(*steps: str) -> str:
    """Returns the JSON Pointer (RFC 6901) to a field."""
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def expecting(seen: Mapping[str, Any]) -> Operations:
    """Returns the tests. The keys of `seen` are pointers; None means that the field did not exist."""
    return [{"op": "test", "path": path, "value": value} for path, value in seen.items()]


def changes(body: Mapping[str, Any], there: Collection[Path]) -> Operations:
    """Returns the merge patch as operations. Objects whose path is in `there` exist, and are changed field by
    field; every other value of the body is added as a whole. Raises ValueError for a null in an existing
    object, since an operation cannot remove a field that may be missing."""
    return list(_changes(body, there, ()))


def _changes(body: Mapping[str, Any], there: Collection[Path], at: Path) -> Iterator[dict[str, Any]]:
    for name, value in body.items():
        path = (*at, name)
        if value is None:
            raise ValueError(f"{path_of(*path)}: nothing tells whether there is something to remove")
        if path in there and isinstance(value, Mapping):
            yield from _changes(value, there, path)
        else:
            yield {"op": "add", "path": path_of(*path), "value": without_nulls(value)}
