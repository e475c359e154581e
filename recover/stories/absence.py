"""Says why a job that a Recovery names is not shown: the job was deleted, or it could not be read. Pure."""

from __future__ import annotations

from enum import StrEnum

from recover.api import GangRef

__all__ = ["Absence"]


class Absence(StrEnum):
    DELETED = "deleted"
    FORBIDDEN = "forbidden"
    """The reader has no permission to list jobs of that kind."""
    NOT_SERVED = "not-served"
    """The cluster does not know the kind: its CRD was removed, and with it each job of the kind."""
    UNANSWERED = "unanswered"
    """The API server failed to list that kind."""
    UNDECODABLE = "undecodable"
    """The job exists, and this version cannot read it."""
    UNKNOWN_KIND = "unknown-kind"
    """This version of Rekindle does not read jobs of that kind."""

    def of(self, ref: GangRef) -> str:
        """Returns one sentence about the job."""
        kind = f"{ref.kind} ({ref.api_version})"
        match self:
            case Absence.DELETED:
                return "The job no longer exists."
            case Absence.FORBIDDEN:
                return (
                    "The job is not shown because you have no permission to list jobs of kind "
                    f"{ref.kind} there. The job may exist."
                )
            case Absence.NOT_SERVED:
                return (
                    f"This cluster does not serve {kind}: the CRD is not installed, so the job no "
                    "longer exists."
                )
            case Absence.UNANSWERED:
                return (
                    "The job is not shown because the API server failed to list jobs of kind "
                    f"{ref.kind}. The job may exist."
                )
            case Absence.UNDECODABLE:
                return "The job exists, and is not shown because this version cannot read it."
            case Absence.UNKNOWN_KIND:
                return f"The job is not shown because this version reads no jobs of kind {kind}."
