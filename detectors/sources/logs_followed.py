"""Who is followed where a node has more containers than its agent follows. Pure; pod_logs.py asks.

First come those whose pod the kubelet has given devices, or the controller has named: a crowd of small pods
must not cost the ranks of a training their places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from detectors.rules.facts import PodRef

__all__ = ["gives_way", "told"]


def gives_way(
    ref: PodRef, followed: Sequence[PodRef], first: frozenset[str], is_silent: Callable[[PodRef], bool]
) -> PodRef:
    """Who is not followed of `followed`, oldest first, and one more: that one itself, unless its pod comes
    first and another's does not. Of the others a silent one goes before one that has published something, and
    a late one before an early one. `first` are uids of pods."""
    if ref.uid not in first:
        return ref
    others = [other for other in reversed(followed) if other.uid not in first]
    return max(others, key=is_silent, default=ref)


def told(left_out: Collection[PodRef], first: frozenset[str], containers_max: int) -> str:
    """Why not all logs are read. It says no number: each change of it would be a write."""
    if not left_out:
        return ""
    who = "that hold devices" if any(ref.uid in first for ref in left_out) else "without devices"
    return f"more than {containers_max} containers run: the logs of some pods {who} are not read"
