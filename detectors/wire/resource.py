"""Defines the address of a kind in the Kubernetes API, and the kinds of patch that we send. Pure.

client/kubeapi.py calls these addresses; the decisions of the controller name them.
"""

from __future__ import annotations

import msgspec

__all__ = ["JsonPatch", "MergePatch", "PatchType", "Resource", "StrategicPatch"]

_NOT_IN_A_NAME = frozenset("/?#%\\ ")

PatchType = str
MergePatch: PatchType = "application/merge-patch+json"
JsonPatch: PatchType = "application/json-patch+json"
StrategicPatch: PatchType = "application/strategic-merge-patch+json"
"""Patch for lists of Kubernetes' own kinds that several writers share, such as the conditions of a Node: the
patch changes one item by its key, and keeps the items of other writers."""


class Resource(msgspec.Struct, frozen=True):
    """The address of one kind in the API, for example `Resource("batch", "v1", "jobs", "Job")`."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """Returns the path. Raises `ValueError` for a name that no object can have: the path would be another
        address."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        for part in (name, namespace):
            if part in (".", "..") or not _NOT_IN_A_NAME.isdisjoint(part) or not part.isprintable():
                raise ValueError(f"{self.kind} {part!r}: not a name that an object can have")
        return "/".join(parts)
