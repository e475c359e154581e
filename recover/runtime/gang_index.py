"""Indexes the jobs that the caches keep (kept.py), and their recoveries, by the keys that decisions use for
lookups. changes.py updates the indexes."""

from __future__ import annotations

from recover.api import Recovery
from recover.model import Gang, Pod
from recover.runtime.kept import is_of_a_repair

__all__ = ["GangIndex"]


class GangIndex:
    """The indexes of the gangs, as World has them. `namespace` is the namespace of the release: the Jobs of
    repairs are in it."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.gangs: dict[str, Gang] = {}
        self.parts_of: dict[str, dict[str, Gang]] = {}
        self.repair_jobs: dict[str, Gang] = {}
        self.recoveries_of: dict[str, dict[str, Recovery]] = {}
        self.active: dict[str, Recovery] = {}

    # --- what changes ---------------------------------------------------------------------------------------

    def change(self, old: Gang | None, new: Gang | None) -> tuple[Gang | None, Gang | None]:
        """Takes a change of a job. Returns the old and the new view; a Job of a repair is no gang, and its
        views are None."""
        if old is not None and is_of_a_repair(old.ref.namespace, old.labels, self._namespace):
            self.repair_jobs.pop(old.ref.name, None)
            old = None
        if new is not None and is_of_a_repair(new.ref.namespace, new.labels, self._namespace):
            self.repair_jobs[new.ref.name] = new
            new = None
        if old is not None:
            self.gangs.pop(old.ref.uid, None)
            siblings = self.parts_of.get(old.part_of, {})
            siblings.pop(old.ref.uid, None)
            if not siblings:
                self.parts_of.pop(old.part_of, None)
        if new is not None and new.part_of:
            self.parts_of.setdefault(new.part_of, {})[new.ref.uid] = new
        elif new is not None:
            self.gangs[new.ref.uid] = new
        return old, new

    def change_recovery(self, key: str, old: Recovery | None, new: Recovery | None) -> None:
        if old is not None:
            for uid in {old.spec.gang.uid, old.gang_uid}:
                siblings = self.recoveries_of.get(uid, {})
                siblings.pop(key, None)
                if not siblings:
                    self.recoveries_of.pop(uid, None)
            self.active.pop(key, None)
        if new is not None and new.active:
            self.active[key] = new
        if new is not None:
            for uid in (new.spec.gang.uid, new.gang_uid):
                self.recoveries_of.setdefault(uid, {})[key] = new

    # --- what is asked --------------------------------------------------------------------------------------

    def is_to_run(self, uid: str) -> bool:
        gang = self.gangs.get(uid)
        return gang is not None and not (gang.suspended or gang.deleting or gang.terminal)

    def is_at_home(self, pod: Pod) -> bool:
        """Whether the pod is in its gang's namespace. Anybody who knows a gang's uid can name the gang as the
        owner of pods in another namespace. Such pods would push the gang's own pods out of the limited list
        of remembered pods."""
        gang = self.gangs.get(pod.owner_uid)
        return gang is not None and gang.ref.namespace == pod.namespace

    def is_recovering(self, uid: str) -> bool:
        return any(r.active for r in self.recoveries_of.get(uid, {}).values())

    def has_mark(self, recovery: Recovery) -> bool:
        """Whether the job carries the recovery's mark: then this recovery was the last to stop or start the
        job."""
        gang = self.gangs.get(recovery.gang_uid)
        return gang is not None and gang.mark is not None and gang.mark.recovery == recovery.metadata.name

    def kin(self, recovery: Recovery) -> set[str]:
        """Returns the uids of all gangs whose history may contain the recovery. A job that was created again
        has the history of the job before it."""
        found, todo = set(), [recovery.spec.gang.uid, recovery.gang_uid]
        while todo:
            uid = todo.pop()
            if uid not in found:
                found.add(uid)
                of_uid = self.recoveries_of.get(uid, {}).values()
                todo += [other for r in of_uid for other in (r.spec.gang.uid, r.gang_uid)]
        return found
