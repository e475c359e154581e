"""Tells which ranks of a job wait, and for what: the messages of the scheduler or of a kubelet on the job's
pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from detectors.text.printing import one_line
from recover.model import Gang, Pod, PodPhase
from recover.stories.around import Around
from recover.stories.groups import Group, largest
from recover.stories.words import Line, Tone, counted

__all__ = ["Ranks", "ranks_of"]

_PASSING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that is about to start."""


class Ranks(msgspec.Struct, frozen=True):
    """The ranks of one job. If the pods of the job were not read, nothing is known of its ranks."""

    size: int = 0
    running: int = 0
    unplaced: tuple[Group, ...] = ()
    """Ranks for which the scheduler finds no node, by its message."""
    others: tuple[Group, ...] = ()
    """Ranks that wait for something else."""

    @property
    def known(self) -> bool:
        return bool(self.size and (self.running or self.unplaced or self.others))

    @property
    def waits(self) -> str:
        """Returns the text for a headline; empty if the scheduler has a node for each rank."""
        if not self.unplaced:
            return ""
        first = self.unplaced[0]
        many = sum(len(group.names) for group in self.unplaced)
        return f"{counted(many, 'rank')} of {self.size} ({first.who}): {one_line(first.why).rstrip('.')}"

    @property
    def lines(self) -> tuple[Line, ...]:
        groups = [*self.unplaced, *self.others]
        if not groups:
            return ()
        head = Line(f"{self.running} of {counted(self.size, 'rank')} run", Tone.WAITING)
        return (head, *(Line(f"{group.who}: {one_line(group.why)}", Tone.BAD) for group in groups))


def ranks_of(gang: Gang | None, around: Around) -> Ranks:
    if gang is None:
        return Ranks()
    mine = [pod for pod in around.pods if pod.owner_uid == gang.ref.uid]
    pods = [pod for pod in mine if pod.deleting_since is None and not pod.ended]
    unplaced = [(f"no node fits: {pod.unschedulable}", pod.name) for pod in pods if _is_unplaced(pod)]
    return Ranks(
        size=gang.size,
        running=sum(1 for pod in pods if pod.phase is PodPhase.RUNNING),
        unplaced=tuple(largest(unplaced)),
        others=tuple(largest(said for pod in pods for said in _waits(pod))),
    )


def _is_unplaced(pod: Pod) -> bool:
    return bool(pod.unschedulable) and not pod.node and not pod.gated


def _waits(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yields what a pod waits for. A pod that was just created, or whose containers are being created, waits
    for nothing."""
    if pod.phase is not PodPhase.PENDING or _is_unplaced(pod):
        return
    if pod.gated:
        yield "the pod has a scheduling gate, which the controller that set the gate must remove", pod.name
    for container in pod.containers:
        waiting = container.waiting
        if waiting is not None and waiting.reason not in _PASSING:
            at = f" on {pod.node}" if pod.node else ""
            said = f": {waiting.message}" if waiting.message else ""
            yield f"{waiting.reason}{at}{said}", pod.name
            return
