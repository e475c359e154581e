"""Checks which account writes which objects, and how."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.reading import GANGS, OWN_KINDS
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES, RECOVERIES
from recover.model.modes import Mode

__all__ = ["NamesTheVersion", "ObserveModeOnlyObserves", "OwnObjectsOnly"]

_WISHES = frozenset(
    f"/metadata/{field}"
    for field in ("uid", "generation", "deletionTimestamp", "ownerReferences", "labels", "annotations")
)
"""Fields of a job that a patch must test. Each change of the job's spec changes the generation."""


class OwnObjectsOnly(Check):
    """An agent writes only the status of its own NodeHealth, and only the controller writes a Recovery.

    Harm if missed: a pod that breaks out of its node reports about other nodes, and two writers stop one
    gang.
    """

    def violations(self, write: Write) -> Iterator[str]:
        audit = write.audit
        if audit.resource == RECOVERIES and not write.by_controller and write.new is not None:
            yield "only the controller writes a Recovery"
        if not audit.user.startswith("agent:"):
            return
        is_status = audit.resource == NODEHEALTHS and audit.subresource == "status"
        if not is_status or audit.user != f"agent:{audit.name}":
            yield "an agent may only write the status of its own NodeHealth"


class NamesTheVersion(Check):
    """The controller names the version on which it has decided, if people write to the object too, or if the
    object contains the controller's own earlier decisions. The first status of a new object needs no version.
    A patch of a job needs none either if it tests each field by which somebody may have expressed a wish.

    Harm if missed: a decision about an outdated object overwrites a person's decision, or is carried out
    twice.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._have_status: set[str] = set()
        """Uids of the objects that have a status."""

    def violations(self, write: Write) -> Iterator[str]:
        audit = write.audit
        if not write.by_controller or audit.verb != "patch" or write.old is None:
            return
        uid = write.old["metadata"]["uid"]
        is_first_status = audit.subresource == "status" and uid not in self._have_status
        self._have_status.add(uid)
        is_shared = audit.resource in (NODES, RECOVERIES, INCIDENTS, *GANGS)
        is_tested = audit.resource in GANGS and _WISHES.issubset(audit.tested)
        if is_shared and not is_first_status and not audit.versioned and not is_tested:
            yield "the write names no version of the object that it changes"


class ObserveModeOnlyObserves(Check):
    """Harm if missed: Rekindle acts in a cluster whose owners wanted to watch it first."""

    def violations(self, write: Write) -> Iterator[str]:
        is_observing = self.facts.settings.mode is Mode.OBSERVE
        if write.by_controller and is_observing and write.resource not in OWN_KINDS:
            yield "a write to an object of others, in mode observe"
