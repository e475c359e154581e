"""The safety invariants of a run, checked after every write to the simulated API.

They read the plain objects and the truth of the simulation, and nothing of the controller's own views: a
mistake in how the controller reads the world is not made twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from chaos.cluster.kinds import Object
from chaos.cluster.store import Audit, MemoryCluster
from chaos.simulate.budgets import BudgetChecks
from chaos.simulate.choices import ChoiceChecks
from chaos.simulate.freed import FreedChecks
from chaos.simulate.haste import HasteChecks
from chaos.simulate.loops import LoopChecks
from chaos.simulate.reading import (
    GANGS,
    MARK,
    OURS,
    OVER,
    OWN_KINDS,
    RECREATES,
    gang_uid,
    has_consented,
    is_closed,
    is_cordoned,
    is_suspended,
    lives,
    made_by_set,
    not_ours,
    note,
    others_taints,
    our_taint,
    owner,
    phase,
    without_ours,
)
from chaos.simulate.repairs import RepairChecks, is_repair_job
from chaos.simulate.rooms import RoomChecks
from chaos.simulate.spares import SpareChecks
from chaos.simulate.starts import StartChecks
from chaos.simulate.stops import StopChecks
from chaos.simulate.truth import Truth
from recover.modes import Mode
from recover.reasons import Reason
from recover.resources import INCIDENTS, JOBS, JOBSETS, NODEHEALTHS, NODES, PODS, RECOVERIES
from recover.settings import Settings

__all__ = ["Invariants", "Write"]


class Write(msgspec.Struct, frozen=True):
    """One applied change and who made it. `old` is None for a creation, `new` for a removal."""

    audit: Audit
    old: Object | None
    new: Object | None

    @property
    def what(self) -> str:
        audit = self.audit
        return f"{audit.at:%H:%M:%S.%f} {audit.user} {audit.verb} {audit.resource.plural}/{audit.name}"


class Invariants:
    """Collects `violations`, each a sentence that names the write."""

    def __init__(self, store: MemoryCluster, truth: Truth, settings: Settings, *, controller: str) -> None:
        self.violations: list[str] = []
        self.last_write_at: datetime | None = None
        """Of the controller, Events included."""
        self._store = store
        self._truth = truth
        self.settings = settings
        self._controller = controller
        self._seen = store.version
        self._acts: set[tuple[str, str, int, str]] = set()
        self._spares = SpareChecks()
        self._starts = StartChecks(truth)
        self._rooms = RoomChecks(store)
        self._haste = HasteChecks(truth)
        self._stops = StopChecks(truth, self._rooms, store.now, self._has_health)
        self._choices = ChoiceChecks(truth)
        self._freed = FreedChecks(store, truth)
        self._loops = LoopChecks(truth)
        self.budgets = BudgetChecks()
        self._repairs = RepairChecks(store, settings.namespace)
        self._has_status: set[str] = set()
        self._orphans: set[str] = set()
        """Jobs that were being made anew when a person deleted the Recovery: a creation may be under way."""

    def _has_health(self, node: str) -> bool:
        """The controller makes the object, and an agent its status."""
        written = (h for h in self._store.objects(NODEHEALTHS) if h.get("status"))
        return any(health["metadata"]["name"] == node for health in written)

    async def saw(self, audit: Audit) -> None:
        """To be called after every write, with its audit entry."""
        if not audit.changed:
            return
        changes = self._store.history(audit.resource).since(self._seen)
        self._seen = self._store.version
        for change in changes:
            write = Write(
                audit, change.old.body if change.old else None, change.new.body if change.new else None
            )
            self.violations += [f"{write.what}: {found}" for found in self._check(write)]

    def _check(self, write: Write) -> Iterator[str]:
        if write.audit.resource == RECOVERIES:
            yield from self._one_active_recovery(write)
        if write.audit.resource == NODES:
            self._spares.saw(write.old, write.new, write.audit.at)
            self._rooms.saw(write.old, write.new, write.audit.at)
        if write.audit.resource == NODEHEALTHS and write.new is not None:
            is_broken = self._starts.saw(write.new, write.audit.at)
            self._spares.shows(write.audit.name, write.audit.at, is_broken=is_broken)
        if write.audit.user.startswith("agent:"):
            yield from _agent_stays_in_its_room(write)
        if write.audit.user != self._controller:
            return
        self.last_write_at = write.audit.at
        if self._needs_version(write):
            yield "the write names no version of what it changes"
        if self.settings.mode is Mode.OBSERVE and write.audit.resource not in OWN_KINDS:
            yield "a write on something that is not ours, in observe mode"
        if write.audit.resource == NODES:
            yield from self._node(write)
        elif write.audit.resource == INCIDENTS:
            yield from self._repairs.incident(self.settings.repair)
            yield from self.budgets.refused(write.new, self._truth)
            if write.new is not None and not (write.old or {}).get("status", {}).get("evidence"):
                yield from self._haste.blamed(write.new, write.audit.at, self.settings.timing)
        elif is_repair_job(write.new or write.old or {"metadata": {}}, self.settings.namespace):
            yield from self._repairs.job(write.old, write.new, write.audit.at)
        elif write.audit.resource in GANGS:
            yield from self._gang(write)
        elif write.audit.resource == PODS:
            yield from self._freed.wrote(write.audit, write.old, write.new, self.settings.timing)

    def _needs_version(self, write: Write) -> bool:
        """Others write to it too, or decisions have changed it. A new object gets its first status
        without."""
        if write.audit.verb != "patch" or write.old is None:
            return False
        uid = write.old["metadata"]["uid"]
        is_first_status = write.audit.subresource == "status" and uid not in self._has_status
        self._has_status.add(uid)
        is_shared = write.audit.resource in (NODES, RECOVERIES, INCIDENTS, *GANGS)
        return is_shared and not is_first_status and not write.audit.versioned

    # --- recoveries ---------------------------------------------------------------------------------------

    def _one_active_recovery(self, write: Write) -> Iterator[str]:
        if write.audit.user != self._controller and write.new is not None:
            yield "only the controller writes a Recovery"
        if write.new is None and write.old is not None and write.old.get("status", {}).get("recreation"):
            self._orphans.add(write.old["spec"]["gang"]["name"])
        active: dict[str, int] = {}
        for recovery in self._store.objects(RECOVERIES):
            uid = gang_uid(recovery)
            active[uid] = active.get(uid, 0) + (phase(recovery) not in OVER)
        if any(count > 1 for count in active.values()):
            yield "two active recoveries of one gang"
        old, new = write.old, write.new
        if old is not None and new is not None and phase(old) in OVER and phase(new) != phase(old):
            yield f"a recovery that had ended as {phase(old)} became {phase(new)}"
        if new is not None and phase(new) == "Verifying" and old is not None and phase(old) == "Resuming":
            yield from self._haste.called_good(new)
        is_given_up = new is not None and new.get("status", {}).get("reason") == Reason.CRASH_LOOP
        if old is not None and new is not None and phase(old) not in OVER and is_given_up:
            yield from self._loops.given_up(new, self.settings.budgets)

    # --- nodes --------------------------------------------------------------------------------------------

    def _node(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if old is None or new is None:
            yield "the controller neither creates nor deletes nodes"
            return
        yield from _foreign_things_stay(old, new)
        if others_taints(old) != others_taints(new):
            yield f"foreign taints changed: {others_taints(old)} -> {others_taints(new)}"
        if is_cordoned(old) and not is_cordoned(new) and not note(old).get("cordoned"):
            yield "a cordon that is not ours was undone"
        if our_taint(new) is not None and our_taint(new) != our_taint(old):
            yield from self._quarantine(write, new)
        yield from self._repairs.given_back(old, new)
        nodes, at = self._store.objects(NODES), write.audit.at
        shown = self._starts.shown(new, self._store.objects(INCIDENTS), at)
        yield from self._spares.lifted(old, new, nodes, shown, at)
        if is_cordoned(new) and not is_cordoned(old) and our_taint(new) is None:
            yield "a cordon without our taint"

    def _quarantine(self, write: Write, node: Object) -> Iterator[str]:
        name, boot_id = node["metadata"]["name"], node["status"]["nodeInfo"]["bootID"]
        taint = our_taint(node)
        cordons = taint is not None and taint["effect"] == "NoSchedule"
        is_closed_for_repair = (
            self.settings.mode is Mode.REPAIR and write.old is not None and our_taint(write.old) is not None
        )
        grounds = [
            fault
            for fault in self._truth.faults.get(name, [])
            if fault.boot_id == boot_id and (fault.cordons or not cordons or is_closed_for_repair)
        ]
        if not grounds:
            yield f"{name} was taken out without hardware evidence of this boot"
        elif all(fault.told_at < self._truth.acting_since for fault in grounds):
            yield f"{name} was taken out for what was seen before the mode began"
        elif (
            cordons
            and not is_closed_for_repair
            and all(fault.settles and write.audit.at < fault.at + self._settling() for fault in grounds)
        ):
            yield f"{name} was taken out before the next lines could soften the verdict"
        if write.old is not None and write.old["metadata"].get("annotations", {}).get(OURS + "hold"):
            yield f"{name} was taken out although people hold it"
        released = node["metadata"]["annotations"].get(OURS + "released-at")
        if released and all(fault.at <= datetime.fromisoformat(released) for fault in grounds):
            yield f"{name} was taken out again for what a person had released it from"
        if write.old is None or not is_closed(write.old):
            nodes, incidents = self._store.objects(NODES), self._store.objects(INCIDENTS)
            yield from self.budgets.quarantined(node, nodes, incidents, self.settings.budgets, write.audit.at)

    def _settling(self) -> timedelta:
        """Less a second: where a node's clock is ahead, its line counts from the Incident's whole second."""
        return timedelta(seconds=self.settings.timing.settle_s - 1)

    # --- gangs --------------------------------------------------------------------------------------------

    def _gang(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if old is None or new is None or "deletionTimestamp" in new["metadata"]:
            yield from self._made_anew(write)
            return
        yield from _foreign_things_stay(old, new)
        if of_set := made_by_set(new):
            yield from self._part_of_set(old, new, of_set)
            return
        if not has_consented(new):
            yield "a job that did not opt in was touched"
        if write.audit.subresource == "status":
            yield from _jobs_are_made_again(old, new)
            return
        if without_ours(old) != without_ours(new):
            yield "more than suspend, affinity and envFrom of the job was changed"
        if is_suspended(old) == is_suspended(new):
            if not self._is_taken_back(old, new):
                yield "a job was written without being stopped or started"
            return
        did = "stopped" if is_suspended(new) else "resumed"
        yield from self._act_is_the_first(new, did)
        if old["metadata"].get("annotations", {}).get(OURS + "hold"):
            yield f"a held job was {did}"
        if did == "resumed":
            self._truth.resumed_at[new["metadata"]["uid"]] = write.audit.at
            yield from self._nothing_old_lives(new)
            nodes, incidents = self._store.objects(NODES), self._store.objects(INCIDENTS)
            parts = [job for job in self._store.objects(JOBS) if made_by_set(job) == new["metadata"]["uid"]]
            yield from self._starts.started(parts or [new], nodes, incidents, write.audit.at)
            yield from self._starts.prefers(new, self._recovery_of(new), nodes, write.audit.at)
            yield from self._choices.started(new, self._recovery_of(new))
            yield from self._loops.started(new, self.settings.budgets)
            if (life := self._truth.lives.get(new["metadata"]["uid"])) is not None:
                yield from self._rooms.started(new, life.gang.job.ranks, write.audit.at)
        else:
            nodes, incidents = self._store.objects(NODES), self._store.objects(INCIDENTS)
            yield from self._stops.stopped(new, nodes, incidents, self.settings)

    def _part_of_set(self, old: Object, new: Object, of_set: str) -> Iterator[str]:
        """A Job of a JobSet takes the node affinity of the next start, and nothing else."""
        sets = [s for s in self._store.objects(JOBSETS) if s["metadata"]["uid"] == of_set]
        if not all(has_consented(jobset) and is_suspended(jobset) for jobset in sets):
            yield "a Job of a JobSet was touched that is not stopped, or did not opt in"
        if without_ours(old) != without_ours(new) or is_suspended(old) != is_suspended(new):
            yield "more than the affinity of a Job of a JobSet was changed"

    def _is_taken_back(self, old: Object, new: Object) -> bool:
        """What a recovery has put into the job is taken out again, once that is over or gone. A job whose
        framework does not let go of it yet is marked for that."""
        before, after = (body["metadata"].get("annotations", {}).get(MARK) for body in (old, new))
        left = msgspec.json.decode(after) if after else {}
        is_marked = left.get("did") in ("left", "left-stopped")
        if before is None or ((left.get("avoided") or left.get("suspected")) and not is_marked):
            return False
        name = msgspec.json.decode(before)["recovery"]
        namespace = new["metadata"]["namespace"]
        found = [r for r in self._store.objects(RECOVERIES, namespace) if r["metadata"]["name"] == name]
        return all(phase(recovery) in OVER for recovery in found)

    def _made_anew(self, write: Write) -> Iterator[str]:
        """Deleted and created only with consent, as a Recovery's definition says, and over nothing alive."""
        body = write.new or write.old
        assert body is not None
        meta = body["metadata"]
        if not has_consented(body) or meta.get("annotations", {}).get(RECREATES) != "recreate":
            yield "a job was deleted or created that is not to be made anew"
        for recovery in self._store.objects(RECOVERIES, meta["namespace"]):
            kept = recovery.get("status", {}).get("recreation", {}).get("definition")
            if kept and phase(recovery) == "Resuming" and recovery["spec"]["gang"]["name"] == meta["name"]:
                break
        else:
            if write.old is not None or meta["name"] not in self._orphans:
                yield "a job was deleted or created whose definition no Recovery holds"
            return
        if not_ours(body, "annotations") != not_ours(msgspec.json.decode(kept), "annotations"):
            yield "a job was made anew without what people had written"
        if self._truth.running(gang_uid(recovery)):
            yield "a job was made anew over pods that run"

    def _act_is_the_first(self, gang: Object, did: str) -> Iterator[str]:
        """By the mark that is written in the same patch: whose act it is, and that it was not done before."""
        mark = msgspec.json.decode(gang["metadata"]["annotations"][MARK])
        recovery = self._recovery_of(gang)
        # By uid: where a person has deleted a Recovery, the next one may have its name.
        act = (gang["metadata"]["uid"], recovery["metadata"]["uid"], mark["attempt"], did)
        if mark["did"] != did:
            yield f"the mark says {mark['did']}, but the job was {did}"
        if act in self._acts:
            yield f"attempt {mark['attempt']} of {mark['recovery']} {did} the gang twice"
        self._acts.add(act)
        allowed = ("Stopping",) if did == "stopped" else ("Resuming",)
        if gang_uid(recovery) != gang["metadata"]["uid"]:
            yield f"{mark['recovery']} is not about this gang"
        if phase(recovery) not in allowed:
            yield f"{did} by {mark['recovery']}, which is {phase(recovery)}"
        if recovery["status"].get("attempt", 1) != mark["attempt"]:
            yield f"{did} for attempt {mark['attempt']}, while {recovery['status'].get('attempt', 1)} runs"

    def _recovery_of(self, gang: Object) -> Object:
        """Whose mark it carries."""
        mark = msgspec.json.decode(gang["metadata"]["annotations"][MARK])
        return self._store.read(RECOVERIES, mark["recovery"], gang["metadata"]["namespace"]).body

    def _nothing_old_lives(self, gang: Object) -> Iterator[str]:
        uid = gang["metadata"]["uid"]
        if running := self._truth.running(uid):
            yield f"resumed while {len(running)} old pod(s) still run"
        left = [p["metadata"]["name"] for p in self._store.objects(PODS) if owner(p) == uid and lives(p)]
        if left:
            yield f"resumed while {', '.join(left)} had not ended"


def _jobs_are_made_again(old: Object, new: Object) -> Iterator[str]:
    """The status of a job: of a JobSet the number of restarts may grow by one while it is stopped, of a Job
    the start time of before may go."""
    before, after = dict(old.get("status", {})), dict(new.get("status", {}))
    counted = (before.pop("restarts", 0), after.pop("restarts", 0))
    before.pop("startTime", None)
    after.pop("startTime", None)
    if before != after or not is_suspended(new) or counted[1] - counted[0] not in (0, 1):
        yield f"the status of a job was changed: restarts {counted[0]} -> {counted[1]}"


def _agent_stays_in_its_room(write: Write) -> Iterator[str]:
    audit = write.audit
    if audit.resource != NODEHEALTHS or audit.subresource != "status" or audit.user != f"agent:{audit.name}":
        yield "an agent may only write the status of its own NodeHealth"


def _foreign_things_stay(old: Object, new: Object) -> Iterator[str]:
    for field in ("labels", "annotations"):
        before, after = not_ours(old, field), not_ours(new, field)
        if before != after:
            yield f"foreign {field} changed: {before} -> {after}"
