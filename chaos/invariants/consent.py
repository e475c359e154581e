"""Checks that no recovery begins against the decision of people: neither for a job on hold, nor for a job
whose last stop or start people have undone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.reading import GANGS, HOLD, VIEW_MAX, gang_uid, phase
from recover.api.reasons import Reason
from recover.k8s.kinds import RECOVERIES

__all__ = ["HeldJobsAreLeft", "UndoneIsNotRepeated"]


class HeldJobsAreLeft(Check):
    """Harm if missed: people who hold a job see that Rekindle is about to stop it."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._held: dict[str, datetime] = {}
        """Time since which a job is on hold, by the uid of the job."""

    def violations(self, write: Write) -> Iterator[str]:
        if write.resource in GANGS:
            uid, is_held = (
                write.body["metadata"]["uid"],
                HOLD in write.body["metadata"].get("annotations", {}),
            )
            if not is_held:
                self._held.pop(uid, None)
            else:
                self._held.setdefault(uid, write.at)
        elif write.begins_recovery:
            since = self._held.get(gang_uid(write.body))
            if since is not None and write.at - since > VIEW_MAX:
                yield f"a recovery was begun for a job on which a person had put a hold at {since:%H:%M:%S}"


class UndoneIsNotRepeated(Check):
    """Harm if missed: Rekindle and people, or another controller, stop and start a job in turns."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._undone: dict[str, datetime] = {}
        """Time at which a Recovery ended because somebody undid its action, by the uid of the Recovery."""

    def violations(self, write: Write) -> Iterator[str]:
        if write.resource != RECOVERIES or write.new is None:
            return
        if (phase(write.new), write.new.get("status", {}).get("reason")) == (
            "Escalated",
            Reason.FOREIGN_OWNER,
        ):
            self._undone.setdefault(write.new["metadata"]["uid"], write.at)
        if not write.begins_recovery:
            return
        uid = gang_uid(write.new)
        earlier = [
            recovery
            for recovery in self.facts.store.objects(RECOVERIES)
            if gang_uid(recovery) == uid and recovery["metadata"]["uid"] != write.new["metadata"]["uid"]
        ]
        last = max(earlier, key=lambda recovery: int(recovery["spec"]["number"]), default=None)
        ended_at = self._undone.get(last["metadata"]["uid"]) if last is not None else None
        if last is not None and ended_at is not None and write.at - ended_at > VIEW_MAX:
            yield f"a recovery was begun although somebody had undone {last['metadata']['name']}"
