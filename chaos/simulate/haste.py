"""The safety invariants of haste, a part of invariants.py: no verdict before time has told. A rank that
restarts in place has its grace, and a start is called good only once all ranks have run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from chaos.cluster.kinds import Object
from chaos.simulate.reading import gang_uid
from chaos.simulate.truth import Truth
from recover.settings import Timing

__all__ = ["HasteChecks"]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class HasteChecks:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def called_good(self, recovery: Object) -> Iterator[str]:
        """What is wrong with this step from the start to its proof."""
        uid = gang_uid(recovery)
        life = self._truth.lives.get(uid)
        if life is None:
            return
        since = self._truth.resumed_at.get(uid, _LONG_AGO)
        have_run = sum(1 for at in life.started.values() if at >= since)
        if have_run < life.gang.job.ranks:
            yield f"its start was called good after {have_run} of {life.gang.job.ranks} ranks had run"

    def blamed(self, incident: Object, at: datetime, timing: Timing) -> Iterator[str]:
        """What is wrong with the first words of this Incident. A time with fractions is not its kubelet's,
        and one of a clock that is ahead counts as now."""
        evidence = incident.get("status", {}).get("evidence", [])
        if not incident["spec"].get("gang") or [e.get("text") for e in evidence] != ["restarted in place"]:
            return
        if self._truth.is_ahead(evidence[0].get("node", "")):
            return
        ended_at = datetime.fromisoformat(evidence[0]["at"])
        waited = at - ended_at
        grace = timedelta(seconds=timing.in_place_grace_s - 0.5)
        if not ended_at.microsecond and timedelta(0) <= waited < grace:
            yield f"a rank that restarts in place was called lost after {waited.total_seconds():g} s"
