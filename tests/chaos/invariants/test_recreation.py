"""A job is deleted and created again only with consent, as its Recovery has kept it, and over nothing
alive."""

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
from tests.chaos.invariants.misdeeds import facts, found_by, made, said_after_recovery, written


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ({}, "a job was deleted or created that nobody may create again"),
        ({"rekindle.dev/on-terminal": "recreate"}, "whose definition no Recovery holds"),
    ],
)
def test_a_job_that_is_deleted_without_consent_or_definition_is_caught(
    word: dict[str, str], said: str
) -> None:
    async def act(sim: Simulation) -> None:
        await sim.cluster.client(CONTROLLER).delete(PYTORCHJOBS, "llm", namespace="ml")

    assert said in said_after_recovery(act, annotations=word)


@pytest.mark.parametrize(
    ("keeps", "runs", "said"),
    [
        ("people's word", False, ""),
        ("another word", False, "a job was created again without what people had written"),
        ("people's word", True, "a job was created again over pods that run"),
    ],
)
def test_a_job_that_comes_back_otherwise_than_it_was_or_too_early_is_caught(
    keeps: str, runs: bool, said: str
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

    assert found_by(RecreatedAsItWas(laid), written(JOBS, job("people's word"))) == said


def job(word: str) -> Object:
    words = {"rekindle.dev/on-terminal": "recreate", "note": word}
    labels = {"rekindle.dev/auto-recovery": "enabled"}
    meta = {"name": "llm", "namespace": "ml", "annotations": words, "labels": labels}
    return {"kind": "Job", "metadata": meta, "spec": {}}
