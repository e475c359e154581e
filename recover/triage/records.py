"""Makes the action records of Incidents. An action record is one line about an action that was done, would be
done, or was refused, and why. Pure."""

from __future__ import annotations

from datetime import datetime

from detectors.wire.fitting import fitted
from recover.api import Act, ActionRecord, Outcome
from recover.api.reasons import Reason
from recover.model import Refusal
from recover.triage.guard import Allowed, Denied, Verdict

__all__ = ["record_of", "write_refused"]


def record_of(action: Act, target: str, verdict: Verdict, words: str, now: datetime) -> ActionRecord:
    """Returns the record of an action. `words` describe the action and are used if the verdict allows it."""
    match verdict:
        case Allowed():
            return fitted(
                ActionRecord, at=now, action=action, target=target, outcome=Outcome.DONE, message=words
            )
        case Denied():
            return fitted(
                ActionRecord,
                at=now,
                action=action,
                target=target,
                outcome=Outcome.WOULD if verdict.would else Outcome.REFUSED,
                reason=verdict.reason,
                message=verdict.message,
            )


def write_refused(refusal: Refusal) -> Denied:
    """Returns the verdict on a write that the API server refuses. The verdict remains while Rekindle tries
    the write again."""
    words = (
        f"the API server refuses this write, and Rekindle tries the write again every {refusal.again_s:g} s"
    )
    return Denied(Reason.WRITE_REFUSED, f"{words}: {refusal.words}")
