"""Chooses which containers are followed if a node has more than its agent follows. Pure; pod_logs.py calls
it.

Containers have priority if the kubelet has given devices to their pod, or the controller has named the pod:
many small pods must not cost the ranks of a training their places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from detectors.rules.facts import PodRef

__all__ = ["gives_way", "told"]


def gives_way(
    ref: PodRef,
    followed: Sequence[PodRef],
    priority_uids: frozenset[str],
    is_silent: Callable[[PodRef], bool],
) -> PodRef:
    """Returns the container that is not followed: `ref`, or one of `followed`, which are oldest first. `ref`
    is left out unless its pod is in `priority_uids` and the pod of another container is not. Among these
    others a silent container is left out before one that has published something, and a late one before
    an early one."""
    if ref.uid not in priority_uids:
        return ref
    others = [other for other in reversed(followed) if other.uid not in priority_uids]
    return max(others, key=is_silent, default=ref)


def told(left_out: Collection[PodRef], priority_uids: frozenset[str], containers_max: int) -> str:
    """Returns the reason why not all logs are read; empty if all are. It contains no number of containers
    that are left out: each change of the number would be a write."""
    if not left_out:
        return ""
    who = "that hold devices" if any(ref.uid in priority_uids for ref in left_out) else "without devices"
    return f"more than {containers_max} containers run: the logs of some pods {who} are not read"
