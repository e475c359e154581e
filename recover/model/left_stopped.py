"""Finds jobs that a recovery has stopped and whose Recovery is gone: nothing starts them again. Pure.

A person has deleted the Recovery, so a person decides about the job: it may be meant to stay as it is.
"""

from __future__ import annotations

from recover.model import Gang, Mark

__all__ = ["TOLD", "is_left_stopped", "words"]

_STOPPED, TOLD = "stopped", "left-stopped"
"""Values of `did` in the job's mark: our stop, and the note that an Event on the job has said that nothing
starts the job again."""


def is_left_stopped(gang: Gang) -> bool:
    """Whether the job's mark shows that Rekindle has stopped it. The caller must know that its Recovery does
    not exist."""
    is_over = gang.deleting or gang.terminal is not None
    return gang.suspended and not is_over and gang.mark is not None and gang.mark.did in (_STOPPED, TOLD)


def words(gang: Gang, mark: Mark) -> str:
    return (
        f"Rekindle has stopped {gang.ref}, and somebody deleted Recovery {mark.recovery}, which "
        "would have started the job again. The job stays suspended until a person starts it"
    )
