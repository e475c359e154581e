"""JSON Patch (RFC 6902) as an API server takes it: tests of what was seen, then the change. Pure.

A test with the value null holds where the object has no such field, and fails where the parent of the field
is missing, too. If one test fails, nothing is changed, and the answer is 422 Invalid without the name of the
test. A patch that names no version is applied to the newest one, whoever writes at the same time. (Kubernetes
1.36.3, measured.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from recover.k8s.bodies import without_nulls

__all__ = ["Operations", "Path", "changes", "expecting", "path_of"]

Operations = list[dict[str, Any]]
Path = tuple[str, ...]


def path_of(*steps: str) -> str:
    """The JSON Pointer (RFC 6901) to a field."""
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def expecting(seen: Mapping[str, Any]) -> Operations:
    """`seen` is by pointer; None stands for a field that was not there."""
    return [{"op": "test", "path": path, "value": value} for path, value in seen.items()]


def changes(body: Mapping[str, Any], there: Collection[Path]) -> Operations:
    """The merge patch as operations: what is `there` is gone into, and all else that the body names is put
    there whole. A null below what is there is no change that can be made so: raises ValueError."""
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
