"""Checks the controller's writes to existing jobs: what the controller may change in which job, and that each
attempt of a Recovery stops and starts its gang once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.reading import (
    HOLD,
    MARK,
    gang_uid,
    has_consented,
    is_active,
    is_suspended,
    made_by_set,
    phase,
    without_ours,
)
from recover.k8s.kinds import JOBSETS, RECOVERIES

__all__ = ["EachActOnce", "OnlyTheFieldsOfAStart"]


class OnlyTheFieldsOfAStart(Check):
    """In a job that has opted in, the controller changes suspend, affinity and envFrom, and only together
    with a stop or a start, or to undo its own changes. In a status it only adds one to the restarts of a
    stopped JobSet, or removes the start time of a stopped Job. A mark may count one more write, which wakes
    the framework's controller.

    Harm if missed: Rekindle changes a job whose owner has not consented, or changes what the job does.
    """

    def violations(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if not write.of_job or old is None or new is None:
            return
        if "deletionTimestamp" in new["metadata"]:
            return
        yield from write.foreign_changes()
        if of_set := made_by_set(new):
            yield from self._part_of_set(old, new, of_set)
            return
        if not has_consented(new):
            yield "the controller changed a job without consent"
        if write.audit.subresource == "status":
            yield from _only_restarts_changed(old, new)
            return
        if without_ours(old) != without_ours(new):
            yield "the controller changed more of a job than suspend, affinity and envFrom"
        is_done = _is_woken(old, new) or self._is_taken_back(old, new)
        if is_suspended(old) == is_suspended(new) and not is_done:
            yield "the controller changed a job without a stop or start of the job"

    def _part_of_set(self, old: Object, new: Object, of_set: str) -> Iterator[str]:
        """Checks a Job of a JobSet, which takes the node affinity of the next start and nothing else."""
        sets = [s for s in self.facts.store.objects(JOBSETS) if s["metadata"]["uid"] == of_set]
        if not all(has_consented(jobset) and is_suspended(jobset) for jobset in sets):
            yield "the controller changed a Job of a JobSet that is not stopped, or has no consent"
        if without_ours(old) != without_ours(new) or is_suspended(old) != is_suspended(new):
            yield "the controller changed more of a Job of a JobSet than its affinity"

    def _is_taken_back(self, old: Object, new: Object) -> bool:
        """Whether the write removes the changes that a recovery made in the job, after that recovery is over
        or gone. If the job's framework does not allow the removal yet, the mark records that."""
        before, after = (body["metadata"].get("annotations", {}).get(MARK) for body in (old, new))
        left = msgspec.json.decode(after) if after else {}
        is_marked = left.get("did") in ("left", "left-stopped")
        if before is None or ((left.get("avoided") or left.get("suspected")) and not is_marked):
            return False
        name = msgspec.json.decode(before)["recovery"]
        found = self.facts.store.objects(RECOVERIES, new["metadata"]["namespace"])
        return not any(is_active(recovery) for recovery in found if recovery["metadata"]["name"] == name)


def _is_woken(old: Object, new: Object) -> bool:
    """Whether the write changed the mark alone, and the mark counts one more write."""
    before, after = (body["metadata"].get("annotations", {}).get(MARK) for body in (old, new))
    if before is None or after is None or old["spec"] != new["spec"]:
        return False
    mark = msgspec.json.decode(before)
    expected = mark | {"woken": mark.get("woken", 0) + 1}
    return bool(msgspec.json.decode(after) == expected)


class EachActOnce(Check):
    """The mark that is written in the same patch names the Recovery and the attempt that stop or start the
    gang. That Recovery is about this gang, is in the matching phase, and has not done it before. A held job
    is not changed.

    Harm if missed: a decision is carried out twice, or after it was given up.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._acts: set[tuple[str, str, int, str]] = set()
        """Uid of the job, uid of the Recovery, attempt, and action. The uid is necessary because after a
        person has deleted a Recovery, the next one may have the same name."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.stops_gang and not write.starts_gang:
            return
        job, did = write.body, "stopped" if write.stops_gang else "resumed"
        mark = msgspec.json.decode(job["metadata"]["annotations"][MARK])
        recovery, name = self.facts.recovery_of(job), mark["recovery"]
        attempt = recovery.get("status", {}).get("attempt", 1)
        act = (job["metadata"]["uid"], recovery["metadata"]["uid"], mark["attempt"], did)
        if mark["did"] != did:
            yield f"the mark says {mark['did']}, but the job was {did}"
        if act in self._acts:
            yield f"attempt {mark['attempt']} of {name} {did} the gang twice"
        self._acts.add(act)
        if gang_uid(recovery) != job["metadata"]["uid"]:
            yield f"{name} is not about this gang"
        announced = (
            {"Resuming"} if did == "resumed" else {"Stopping"} | ({"Planned"} if attempt == 1 else set())
        )
        if phase(recovery) not in announced:
            yield f"{did} by {name}, which is {phase(recovery)}"
        if attempt != mark["attempt"]:
            yield f"the job was {did} for attempt {mark['attempt']}, but the current attempt is {attempt}"
        if write.old is not None and write.old["metadata"].get("annotations", {}).get(HOLD):
            yield f"a held job was {did}"


def _only_restarts_changed(old: Object, new: Object) -> Iterator[str]:
    """Yields a violation unless the change is allowed: in the status of a stopped JobSet the number of
    restarts may grow by one, and in the status of a stopped Job the old start time may be removed."""
    before, after = dict(old.get("status", {})), dict(new.get("status", {}))
    counted = (before.pop("restarts", 0), after.pop("restarts", 0))
    before.pop("startTime", None)
    after.pop("startTime", None)
    if before != after or not is_suspended(new) or counted[1] - counted[0] not in (0, 1):
        yield f"the status of a job was changed: restarts {counted[0]} -> {counted[1]}"
