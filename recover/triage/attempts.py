"""Counts how often a gang was restarted for one cause without progress. The count ends a crash loop. Pure.

A cause is the class and the culprit node of a node's fault, or the first error of the gang's own failure.
Four GPUs that die on four nodes are four causes, even if no agent can read the job's steps. An attempt counts
only if all ranks have run, or a rank failed soon after the start while no rank waited for room
(recovery/again.py): a gang that found no room has proved nothing. A gang whose pod was taken away,
for example by a drain, a reclaimed machine or a gang of higher priority, has proved nothing either: such
restarts are limited only by the number of recoveries of a gang.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from detectors.wire.contract import Fault, key
from detectors.wire.fitting import fitted
from recover.api import Blame, Cause, Phase, Recovery, RecoveryStatus
from recover.model import Gang
from recover.policy.settings import Budgets

__all__ = [
    "annotated",
    "attempts_limit",
    "attempts_without_progress",
    "began",
    "cause_key",
    "cause_words",
    "reached",
    "restarts_limit",
]

_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_TAKEN_AWAY = {("crash", "deleted"), ("crash", "made-way")}
"""Keys of causes that took a pod away: somebody other than the gang's recovery ended the rank, or the rank
ended with its machine."""
_OF_NODES = frozenset(Fault) - {Fault.RESOURCES, Fault.APPLICATION, Fault.HANG, Fault.UNKNOWN}


def attempts_without_progress(
    history: Sequence[Recovery], recovery: Recovery, status: RecoveryStatus, since: datetime
) -> int:
    """Returns how often the gang was restarted since `since`, the present restart included, for the present
    cause and without progress of the gang's steps.

    `status` is the status of `recovery`, with the checkpoint that was just chosen. A restart that began from
    the same step as the present restart, or from a later step, made no progress. An unknown step counts as no
    progress. Without a known checkpoint the last step of the gang takes its place. That last step is compared
    only with earlier recoveries: within the present recovery the gang has made no step, or the recovery would
    have succeeded. Recoveries that ended Failed are left out. Most of them, for example because of a hold,
    have restarted nothing.
    """
    now = recovery.status.attempt
    wanted = _counted(recovery, now)
    earlier = [
        r for r in history if r.status.phase is not Phase.FAILED and r.spec.number < recovery.spec.number
    ]
    restarts = [(recovery, range(now - 1, 0, -1))]
    restarts += [(r, range(r.status.attempt, 0, -1)) for r in reversed(earlier) if began(r) >= since]
    count = 1
    for one, attempts in restarts:
        step = _chosen(status) if one is recovery else reached(status)
        for attempt in attempts:
            before = _began_from(one, attempt)
            if step is not None and before is not None and step > before:
                return count
            is_counted = attempt not in one.status.uncounted
            count += is_counted and bool(_keys(one, attempt) & wanted)
    return count


def cause_key(cause: Cause) -> tuple[str, str]:
    """Returns the key of a cause. Two causes with the same key are the same cause. Whether a crash could be
    blamed on the application depends on the coverage at that moment, and does not make the crash a different
    cause."""
    if cause.blame is Blame.NODE or (cause.node and cause.fault in _OF_NODES):
        return str(cause.fault), cause.node
    if cause.fault is Fault.HANG:
        return str(Fault.HANG), ""
    return "crash", cause.error


def cause_words(recovery: Recovery) -> str:
    """Returns the cause of the present attempt, in a few words."""
    kind, what = sorted(_counted(recovery, recovery.status.attempt))[0]
    return f"{kind} ({what})" if what else kind


def reached(status: RecoveryStatus) -> int | None:
    """Returns the step from which a restart begins, or the last step that was seen if no checkpoint is
    known."""
    chosen = _chosen(status)
    return status.last_step if chosen is None else chosen


def _chosen(status: RecoveryStatus) -> int | None:
    return status.checkpoint.step if status.checkpoint else None


def attempts_limit(gang: Gang, limits: Budgets) -> int:
    return annotated(gang.annotations, "attempts-per-cause", limits.attempts_per_cause_max)


def restarts_limit(recovery: Recovery, gang: Gang, limits: Budgets) -> int:
    """Returns how many restarts are allowed for the cause that now restarts the gang."""
    if _counted(recovery, recovery.status.attempt) <= _TAKEN_AWAY:
        return annotated(gang.annotations, "max-recoveries", limits.recoveries_per_gang_max)
    return attempts_limit(gang, limits)


def annotated(annotations: Mapping[str, str], name: str, default: int) -> int:
    """Returns the positive number in the annotation, or `default` for any other value."""
    value = annotations.get(key(name), "")
    return int(value) if _COUNT.fullmatch(value) else default


def _began_from(recovery: Recovery, attempt: int) -> int | None:
    """Returns the step from which the attempt began, as the phase Resuming recorded it. If the last attempt
    has no such record, returns the step that the Recovery has `reached`."""
    entered = (e for e in reversed(recovery.status.phases) if e.phase is Phase.RESUMING)
    step = next((e.step for e in entered if e.attempt == attempt), None)
    is_last = attempt == recovery.status.attempt
    return reached(recovery.status) if step is None and is_last else step


def _counted(recovery: Recovery, attempt: int) -> set[tuple[str, str]]:
    """Returns the keys of the causes of the attempt. The loss of a pod that was taken away counts only if the
    attempt has no other cause."""
    keys = _keys(recovery, attempt)
    return keys - _TAKEN_AWAY or keys


def _keys(recovery: Recovery, attempt: int) -> set[tuple[str, str]]:
    """Returns the keys of the causes that began or joined the attempt. An attempt that was begun for better
    places continues with the causes of the attempt before."""
    known = [cause for cause in recovery.status.causes if cause.attempt <= attempt]
    last = max((cause.attempt for cause in known), default=attempt)
    causes = [cause for cause in known if cause.attempt == last]
    return {cause_key(cause) for cause in causes or recovery.spec.causes[:1] or _kept_nowhere(recovery)}


def _kept_nowhere(recovery: Recovery) -> list[Cause]:
    """Returns the first cause of a recovery whose own lists no longer contain the cause."""
    spec = recovery.spec
    return [
        fitted(
            Cause,
            incident=spec.incident,
            fault=spec.fault,
            attempt=1,
            at=spec.detected_at,
            node=spec.avoid_node,
        )
    ]


def began(recovery: Recovery) -> datetime:
    return recovery.metadata.creation_timestamp or recovery.spec.detected_at
