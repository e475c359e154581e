"""Remembers ranks that vanished. For changes.py."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from recover.model import DEPARTED_MAX, Pod

__all__ = ["Departed"]


class Departed:
    """The ranks that vanished. A rank may vanish before it is clear that its job has not ended, and the pods
    of the other ranks do not show the loss. The ranks that vanished last are kept: those that vanished first
    may belong to a start that is long over, and an Incident keeps the name of the first loss.

    A restart of the controller loses this memory. The ranks that wait for their peer then show the loss by a
    hang.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.of_gang: dict[str, dict[str, Pod]] = {}
        """Uid of the gang -> uid of the pod -> the pod as it was last seen."""

    def remember(self, pod: Pod) -> None:
        if pod.deleting_since is None and not pod.ended:
            pod = msgspec.structs.replace(pod, deleting_since=self._now(), is_missed=True)
        departed = self.of_gang.setdefault(pod.owner_uid, {})
        departed[pod.uid] = pod
        if len(departed) > DEPARTED_MAX:
            del departed[next(iter(departed))]

    def forget(self, gang_uid: str) -> None:
        self.of_gang.pop(gang_uid, None)
