"""Limits how much the controller keeps of other people's objects, so that nobody who may write objects can
stop the controller. Pure.

An API server accepts objects of 1.5 MB, and one namespace may contain thousands of them. A parsed job takes
up to twelve times its bytes (60,000 tolerations: 16 MB for 1.3 MB), and the controller has 1 GiB for all
namespaces.
"""

from __future__ import annotations

from collections import Counter

__all__ = ["MAP_BYTES_MAX", "READ_BYTES_MAX", "CacheShare", "too_large"]

READ_BYTES_MAX = 512 * 1024
"""Maximum size of an object, as the API server sends it. A job of a hundred templates has 300 KB, its managed
fields included."""


def too_large(raw: bytes, bytes_max: int = READ_BYTES_MAX) -> str:
    """Returns why the object is not read, or an empty string if it is small enough."""
    if len(raw) <= bytes_max:
        return ""
    return f"it has {len(raw) // 1024} KiB, and Rekindle reads objects of up to {bytes_max // 1024} KiB"


MAP_BYTES_MAX = 1280 * 1024
"""Maximum size of a ConfigMap about 1,000 or 2,000 nodes. Kubernetes accepts 1 MiB of data, and JSON's
quotation marks make the data longer."""


class CacheShare:
    """The memory that each namespace may take for one kind of object. The limit is the same for all
    namespaces. `what` names the objects, in the plural."""

    def __init__(self, what: str, namespace_mib: int) -> None:
        self._what = what
        self._mib = namespace_mib
        self._taken: Counter[str] = Counter()

    def take(self, namespace: str, size: int) -> str:
        """Takes `size` bytes. Returns an empty string, or the reason if the namespace has fewer bytes
        left."""
        if self._taken[namespace] + size > self._mib * 1024 * 1024:
            return (
                f"the {self._what} of namespace {namespace} use up the {self._mib} MiB that "
                f"Rekindle caches of one namespace (setting room.{self._what}_mib); Rekindle reads "
                "this object soon after others are deleted"
            )
        self._taken[namespace] += size
        return ""

    def has_space(self, namespace: str) -> bool:
        """Whether a tenth or more of the namespace's memory is free."""
        return self._taken[namespace] <= self._mib * 1024 * 1024 * 9 // 10

    def give_back(self, namespace: str, size: int) -> None:
        self._taken[namespace] -= size
        if self._taken[namespace] <= 0:
            del self._taken[namespace]
