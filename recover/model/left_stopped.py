"""Jobs that a recovery has stopped, and whose Recovery is gone: nothing starts them again. Pure.

A person has deleted it, and so a person decides: the job may be meant to stay as it is.
"""

from __future__ import annotations

from recover.model import Gang, Mark

__all__ = ["TOLD", "is_left_stopped", "words"]

_STOPPED, TOLD = "stopped", "left-stopped"
"""What the job's mark says: our stop, and that the job was told that nobody starts it again."""


def is_left_stopped(gang: Gang) -> bool:
    """Its mark says so, if there is no such Recovery."""
    is_over = gang.deleting or gang.terminal is not None
    return gang.suspended and not is_over and gang.mark is not None and gang.mark.did in (_STOPPED, TOLD)


def words(gang: Gang, mark: Mark) -> str:
    return (
        f"Rekindle has stopped {gang.ref}, and somebody deleted Recovery {mark.recovery}, which "
        "would have started the job again. The job stays suspended until a person starts it"
    )
