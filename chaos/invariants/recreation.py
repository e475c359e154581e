"""Checks that a job is deleted and created again only with consent, with the definition that its Recovery has
kept, and only after all its old pods have ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.reading import RECREATES, gang_uid, has_consented, not_ours, phase
from recover.k8s.kinds import RECOVERIES

__all__ = ["RecreatedAsItWas"]


class RecreatedAsItWas(Check):
    """Harm if missed: a user's job is gone, or comes back without what the user has written."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._orphans: set[str] = set()
        """Names of jobs that were being created again when a person deleted the Recovery: the creation may
        still happen."""

    def violations(self, write: Write) -> Iterator[str]:
        if write.resource == RECOVERIES and write.new is None and write.old is not None:
            if write.old.get("status", {}).get("recreation"):
                self._orphans.add(write.old["spec"]["gang"]["name"])
        elif write.of_job and _deletes_or_creates(write):
            yield from self._recreated(write)

    def _recreated(self, write: Write) -> Iterator[str]:
        job, meta = write.body, write.body["metadata"]
        if not has_consented(job) or meta.get("annotations", {}).get(RECREATES) != "recreate":
            yield "the controller deleted or created a job that nobody may create again"
        recovery = self._recovery_that_keeps(meta)
        if recovery is None:
            if write.old is not None or meta["name"] not in self._orphans:
                yield "the controller deleted or created a job, and no Recovery has the job's definition"
            return
        kept = msgspec.json.decode(recovery["status"]["recreation"]["definition"])
        if not_ours(job, "annotations") != not_ours(kept, "annotations"):
            yield "the job that was created again lacks something that people had written"
        if self.facts.truth.running(gang_uid(recovery)):
            yield "a job was created again while its old pods still ran"

    def _recovery_that_keeps(self, meta: Object) -> Object | None:
        """Returns the Recovery that is about to start this job, and has its definition. Returns None if there
        is none."""
        for recovery in self.facts.store.objects(RECOVERIES, meta["namespace"]):
            has_kept = recovery.get("status", {}).get("recreation", {}).get("definition")
            is_of_job = recovery["spec"]["gang"]["name"] == meta["name"]
            if has_kept and is_of_job and phase(recovery) == "Resuming":
                return recovery
        return None


def _deletes_or_creates(write: Write) -> bool:
    return write.old is None or write.new is None or "deletionTimestamp" in write.new["metadata"]
