"""Checks that the controller does not decide before the necessary time has passed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import gang_uid, phase
from recover.k8s.kinds import INCIDENTS, RECOVERIES

__all__ = ["AllRanksRunBeforeProof", "GraceInPlace"]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class AllRanksRunBeforeProof(Check):
    """A recovery waits for the proof of its start only once all ranks have run since that start.

    Harm if missed: a gang that waits for its last rank is reported as recovered.
    """

    def violations(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if write.resource != RECOVERIES or old is None or new is None:
            return
        if (phase(old), phase(new)) != ("Resuming", "Verifying"):
            return
        uid, truth = gang_uid(new), self.facts.truth
        life = truth.lives.get(uid)
        if life is None:
            return
        since = truth.resumed_at.get(uid, _LONG_AGO)
        have_run = sum(1 for at in life.started.values() if at >= since)
        if have_run < life.gang.job.ranks:
            yield (
                f"Rekindle declared the start of the job complete when only {have_run} of "
                f"{life.gang.job.ranks} ranks had run"
            )


class GraceInPlace(Check):
    """An Incident reports a rank that restarts in place as lost only after the rank's grace.

    Harm if missed: an elastic job that repairs itself is stopped.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.by_controller or write.resource != INCIDENTS or write.new is None:
            return
        if (write.old or {}).get("status", {}).get("evidence"):
            return
        evidence = write.new.get("status", {}).get("evidence", [])
        texts = [e.get("text", "").partition(";")[0] for e in evidence]
        if not write.new["spec"].get("gang") or texts != ["restarted in place"]:
            return
        if self.facts.truth.is_ahead(evidence[0].get("node", "")):
            return
        ended_at = datetime.fromisoformat(evidence[0]["at"])
        waited = write.at - ended_at
        grace = timedelta(seconds=self.facts.settings.timing.in_place_grace_s - 0.5)
        # A time with fractions of a second is the controller's own: no kubelet has reported when the rank
        # ended. A clock that is ahead makes the wait seem negative.
        if not ended_at.microsecond and timedelta(0) <= waited < grace:
            yield (
                f"Rekindle declared a rank lost {waited.total_seconds():g} s after its end, although the "
                "rank restarts in place"
            )
