"""No verdict comes before time has told."""

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
    ("waited_s", "text", "said"),
    [
        (2, "restarted in place", "a rank that restarts in place was called lost after 2 s"),
        (5, "restarted in place", ""),
        (2, "", ""),
    ],
)
def test_a_rank_that_restarts_in_place_has_its_grace(waited_s: int, text: str, said: str) -> None:
    evidence = [{"at": START.isoformat(), "code": "exit-1", "text": text}]
    incident: Object = {"spec": {"gang": {"name": "llm"}}, "status": {"evidence": evidence}}

    assert found_by(GraceInPlace(facts()), written(INCIDENTS, incident, after_s=waited_s)) == said


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
    assert found_by(check, step) == "its start was called good after 1 of 2 ranks had run"
    life.started["b"] = START + timedelta(seconds=2)
    assert found_by(check, step) == ""
