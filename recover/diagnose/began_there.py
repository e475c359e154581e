"""Tells whether two failures of a gang in a row began on the same node. Pure; for gang_faults.py.

A program with an error fails on any node. A node with a fault that no source of the agent shows fails every
gang in the same place. One failure does not tell these apart, so the first restart keeps the nodes. If the
next failure begins on the same node, the restart prefers other nodes: a program that is the cause then fails
there, too, and a gang that a node brings down trains again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detectors.wire.contract import Fault
from recover.api import Blame, Cause, Phase, Recovery
from recover.diagnose.diagnosis import JOB_FAILED, Loss
from recover.diagnose.first_loss import follows
from recover.model import Gang, World
from recover.policy.settings import Timing

__all__ = ["began_there_before"]

_OWN = (Fault.APPLICATION, Fault.UNKNOWN)


def began_there_before(
    world: World, gang: Gang, incident: str, first: Loss, timing: Timing, now: datetime
) -> bool:
    """Whether the gang's failure before this one began on the node of this failure's first loss. `incident`
    is the name of the Incident of this failure, which may have a Recovery already."""
    earlier = (r for r in reversed(world.history(gang.ref.uid)) if _is_earlier(r, incident))
    last = next(earlier, None)
    if last is None or not first.node or last.status.attempt - 1 in last.status.uncounted:
        return False
    causes = last.status.causes or last.spec.causes
    of_last = [cause for cause in causes if cause.attempt == last.status.attempt]
    since = now - timedelta(seconds=timing.recovery_window_s)
    if not of_last or not all(_is_own(cause) and cause.at >= since for cause in of_last):
        return False
    witness = next(iter(last.witnesses), None)  # of the gang's own failure: the rank that was lost first
    return witness is not None and witness.node == first.node


def _is_earlier(recovery: Recovery, incident: str) -> bool:
    has_acted = recovery.status.phase is not Phase.FAILED
    return has_acted and incident not in recovery.cause_names


def _is_own(cause: Cause) -> bool:
    """Whether the cause is a failure of the first lost rank itself, as far as anybody knows."""
    names_a_rank = cause.error != JOB_FAILED  # only the status of the job showed that failure
    is_of_the_rank = cause.fault in _OWN and not follows("failed", cause.error)
    return cause.blame is not Blame.NODE and names_a_rank and is_of_the_rank
