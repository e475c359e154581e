"""Checks that a gang is started only where it can train: on no node that is known to be broken, off the
suspect of its own failure, with a place for each rank, and after all old pods have ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import (
    MARK,
    hosts_avoided,
    is_cordoned,
    lives,
    made_by_set,
    note,
    owner,
    released_at,
    takes_pods,
    tolerates_all,
)
from recover.k8s.kinds import JOBS, PODS

__all__ = ["NoOldPods", "OffBrokenNodes", "OffSuspects", "RoomForAllRanks"]

_FRESH = timedelta(seconds=60)


class NoOldPods(Check):
    """Harm if missed: two generations of ranks write to one checkpoint."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.starts_gang:
            return
        uid = write.body["metadata"]["uid"]
        if running := self.facts.truth.running(uid):
            yield f"a gang was resumed while {len(running)} old pod(s) still ran"
        pods = [pod for pod in self.facts.store.objects(PODS) if owner(pod) == uid and lives(pod)]
        if left := [pod["metadata"]["name"] for pod in pods]:
            yield f"a gang was resumed while {', '.join(left)} had not ended"


class OffBrokenNodes(Check):
    """Harm if missed: the gang fails again on the same dead GPU."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.starts_gang:
            return
        uid, incidents = write.body["metadata"]["uid"], self.facts.incidents()
        jobs_of_set = [job for job in self.facts.store.objects(JOBS) if made_by_set(job) == uid]
        parts = jobs_of_set or [write.body]
        avoided = set.intersection(*map(hosts_avoided, parts))
        tolerant = any(map(tolerates_all, parts))
        for node in self.facts.nodes():
            name = node["metadata"]["name"]
            is_closed = is_cordoned(node) and not tolerant
            if is_closed or name in avoided or _is_let_go(node):
                continue
            for code in self.facts.reports.known(node, incidents, write.at):
                yield f"a gang was started although node {name}, which takes its pods, has shown {code}"


class OffSuspects(Check):
    """The first start of a recovery prefers other nodes than the suspect of a recent cause. A job that is
    created again has no preference for nodes.

    Harm if missed: the gang fails again on a node that is broken in a way that no source shows.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.starts_gang:
            return
        status = self.facts.recovery_of(write.body)["status"]
        if status.get("attempt", 1) != 1 or status.get("recreation"):
            return
        mark = msgspec.json.decode(write.body["metadata"]["annotations"][MARK])
        left = {*mark.get("suspected", ()), *mark.get("avoided", ())}
        open_ones = {n["metadata"]["name"] for n in self.facts.nodes() if takes_pods(n)}
        open_ones -= {n["metadata"]["name"] for n in self.facts.nodes() if released_at(n) is not None}
        for cause in status.get("causes", []):
            node, told_at = cause.get("node", ""), datetime.fromisoformat(cause["at"])
            if node not in open_ones or node in left or told_at <= write.at - _FRESH:
                continue
            # If a node's clock is ahead, the steps before the loss seem to come after it.
            truth = self.facts.truth
            if not truth.is_ahead(node) and not truth.has_trained(node, told_at):
                yield f"a gang was started without avoiding {node}, the suspect of its cause"


class RoomForAllRanks(Check):
    """Harm if missed: a gang that cannot fit takes GPUs and waits for the rest without end."""

    def violations(self, write: Write) -> Iterator[str]:
        if not write.starts_gang:
            return
        job = write.body
        life = self.facts.truth.lives.get(job["metadata"]["uid"])
        if life is None:
            return
        ranks, count = life.gang.job.ranks, self.facts.places.count(job, write.at)
        if count < ranks:
            yield f"{job['metadata']['name']} was started although its {ranks} ranks find {count} places"


def _is_let_go(node: Object) -> bool:
    """Whether a person has just uncordoned the node, and the controller has not completed the release yet."""
    return bool(note(node).get("cordoned")) and not is_cordoned(node)
