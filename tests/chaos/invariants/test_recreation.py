"""A job is deleted and created again only with consent, in the form that its Recovery has kept, and only
after its pods have ended."""

from __future__ import annotations

import msgspec
import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.recreation import RecreatedAsItWas
from chaos.simulate.play import START
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated.jobs import Gang, Job
from chaos.simulated.truth import Life
from recover.k8s.kinds import JOBS, NAMESPACES, PYTORCHJOBS, RECOVERIES
from tests.chaos.invariants.misdeeds import facts, found_after_recovery, found_by, made, written


@pytest.mark.parametrize(("word", "missing"), [({}, 2), ({"rekindle.dev/on-terminal": "recreate"}, 1)])
def test_a_job_that_is_deleted_without_consent_or_definition_is_caught(
    word: dict[str, str], missing: int
) -> None:
    async def act(sim: Simulation) -> None:
        await sim.cluster.client(CONTROLLER).delete(PYTORCHJOBS, "llm", namespace="ml")

    assert found_after_recovery(act, annotations=word).rules == [RecreatedAsItWas] * missing


@pytest.mark.parametrize(
    ("keeps", "runs", "is_caught"),
    [("people's word", False, False), ("another word", False, True), ("people's word", True, True)],
)
def test_a_job_that_comes_back_otherwise_than_it_was_or_too_early_is_caught(
    keeps: str, runs: bool, is_caught: bool
) -> None:
    laid = facts()
    laid.store.create(NAMESPACES, {"metadata": {"name": "ml"}})
    spec = {"gang": {"name": "llm", "uid": "uid"}}
    laid.store.create(RECOVERIES, made(RECOVERIES, "r", spec), "ml")
    definition = msgspec.json.encode(job(keeps)).decode()
    status = {"phase": "Resuming", "recreation": {"definition": definition}}
    laid.store.patch(RECOVERIES, "r", {"status": status}, namespace="ml", subresource="status")
    if runs:
        laid.truth.lives["uid"] = Life(Gang(Job()), running={"pod": ("n1", START)})

    assert len(found_by(RecreatedAsItWas(laid), written(JOBS, job("people's word")))) == is_caught


def job(word: str) -> Object:
    words = {"rekindle.dev/on-terminal": "recreate", "note": word}
    labels = {"rekindle.dev/auto-recovery": "enabled"}
    meta = {"name": "llm", "namespace": "ml", "annotations": words, "labels": labels}
    return {"kind": "Job", "metadata": meta, "spec": {}}
