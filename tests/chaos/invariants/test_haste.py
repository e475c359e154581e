"""No verdict comes before enough time has passed for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.haste import AllRanksRunBeforeProof, GraceInPlace
from chaos.simulate.play import START
from chaos.simulated.jobs import Gang, Job
from chaos.simulated.truth import Life
from recover.k8s.kinds import INCIDENTS, RECOVERIES
from tests.chaos.invariants.misdeeds import (
    facts,
    found_by,
    written,
)


@pytest.mark.parametrize(
    ("waited_s", "text", "is_caught"),
    [(2, "restarted in place", True), (5, "restarted in place", False), (2, "", False)],
)
def test_a_rank_that_restarts_in_place_has_its_grace(waited_s: int, text: str, is_caught: bool) -> None:
    evidence = [{"at": START.isoformat(), "code": "exit-1", "text": text}]
    incident: Object = {"spec": {"gang": {"name": "llm"}}, "status": {"evidence": evidence}}

    found = found_by(GraceInPlace(facts()), written(INCIDENTS, incident, after_s=waited_s))
    assert ["2 s" in said for said in found] == [True] * is_caught


def test_a_start_is_good_once_all_ranks_have_run_since() -> None:
    laid = facts()
    life = laid.truth.lives["uid"] = Life(Gang(Job(ranks=2)))
    laid.truth.resumed_at["uid"] = START
    old, new = (
        {"spec": {"gang": {"uid": "uid"}}, "status": {"phase": phase}} for phase in ("Resuming", "Verifying")
    )
    step = written(RECOVERIES, new, old=old)
    life.started = {"old": START - timedelta(seconds=60), "a": START + timedelta(seconds=1)}

    check = AllRanksRunBeforeProof(laid)
    assert ["1 of 2" in said for said in found_by(check, step)] == [True]
    life.started["b"] = START + timedelta(seconds=2)
    assert found_by(check, step) == []
