"""The job that a story is about, as far as it could be read. Pure."""

from __future__ import annotations

import msgspec

from recover.api import GangRef
from recover.model import Gang
from recover.policy.commands import name_of
from recover.policy.consent import AUTO_RECOVERY, OptIn
from recover.stories.absence import Absence

__all__ = ["Job", "consent"]


class Job(msgspec.Struct, frozen=True):
    """The job of a story. `gang` is None if the job itself is not shown; its history remains."""

    ref: GangRef
    gang: Gang | None = None
    absence: Absence = Absence.DELETED
    """The reason why `gang` is None."""
    consent: OptIn | None = OptIn.DISABLED
    """Consent of the job; None if the job leaves the consent to its namespace, and the namespace may not be
    read."""
    misread: tuple[str, ...] = ()
    """Labels and annotations by people that have no effect, one sentence each."""

    @property
    def is_gone(self) -> bool:
        """Whether the job was deleted, or its kind is no longer served: nothing can be done for it."""
        return self.gang is None and self.absence in (Absence.DELETED, Absence.NOT_SERVED)


def consent(job: Job) -> str:
    match job.consent:
        case OptIn.ENABLED:
            ask = f"rekindle doctor {name_of(job.ref)}"
            return f"After a fault Rekindle restarts the job if mode and limits allow that; see `{ask}`."
        case OptIn.OBSERVE:
            return "After a fault Rekindle only reports what it would do: the job is set to observe."
        case OptIn.DISABLED:
            return (
                f"After a fault Rekindle does not restart the job: {AUTO_RECOVERY} is not enabled for "
                "the job."
            )
        case None:
            return (
                "This command cannot tell whether Rekindle restarts the job after a fault: the job "
                f"does not set {AUTO_RECOVERY}, and you have no permission to read the namespace "
                f"{job.ref.namespace}, which may set it."
            )
