"""The controller changes a job only with consent, and each attempt stops and starts its gang once."""

from __future__ import annotations

import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.jobs import EachActOnce, OnlyTheFieldsOfAStart
from chaos.simulate.world import Simulation
from recover.k8s.kinds import JOBS, JOBSETS, NAMESPACES, RECOVERIES
from tests.chaos.invariants.misdeeds import (
    act_of,
    facts,
    found_by,
    made,
    on_job,
    said_after_recovery,
    start_of,
    written,
)


def test_a_second_stop_of_one_attempt_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await on_job(sim, act_of(sim.recovery().metadata.name, 1, "stopped"))

    said = said_after_recovery(act)
    assert "stopped the gang twice" in said
    assert "which is Succeeded" in said


def test_a_write_to_a_job_without_consent_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_job({"metadata": {"labels": {"rekindle.dev/auto-recovery": None}}})
        await on_job(sim, act_of(sim.recovery().metadata.name, 2, "stopped"))

    assert "did not opt in" in said_after_recovery(act)


def test_a_stop_of_a_held_job_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/hold": "true"}}})
        await on_job(sim, act_of(sim.recovery().metadata.name, 2, "stopped"))

    assert "a held job was stopped" in said_after_recovery(act)


def test_a_change_of_the_jobs_own_fields_is_caught() -> None:
    assert "more than suspend" in said_after_recovery(
        lambda sim: on_job(sim, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    )


def test_an_act_by_a_recovery_of_another_gang_or_with_another_mark_is_caught() -> None:
    laid = facts()
    laid.store.create(NAMESPACES, {"metadata": {"name": "ml"}})
    laid.store.create(RECOVERIES, made(RECOVERIES, "r", {"gang": {"uid": "other"}}), "ml")
    laid.store.patch(RECOVERIES, "r", {"status": {"phase": "Resuming"}}, namespace="ml", subresource="status")
    mark = '{"recovery": "r", "attempt": 1, "did": "stopped"}'

    assert found_by(EachActOnce(laid), start_of("uid", **{"rekindle.dev/recovery": mark})) == (
        "the mark says stopped, but the job was resumed; r is not about this gang"
    )


def jobs_of_set(*, avoids: str = "", parallelism: int = 1) -> Object:
    """A Job that a JobSet has made of itself."""
    owner = {"kind": "JobSet", "uid": "set", "controller": True}
    pod: Object = {"containers": [], "affinity": {"any": avoids}}
    spec = {"suspend": True, "parallelism": parallelism, "template": {"spec": pod}}
    return {"kind": "Job", "metadata": {"uid": "part", "ownerReferences": [owner]}, "spec": spec}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (jobs_of_set(avoids="n2"), ""),
        (jobs_of_set(parallelism=2), "more than the affinity of a Job of a JobSet was changed"),
    ],
)
def test_in_a_job_of_a_jobset_only_the_affinity_may_change(changed: Object, said: str) -> None:
    assert found_by(OnlyTheFieldsOfAStart(facts()), written(JOBS, changed, old=jobs_of_set())) == said


@pytest.mark.parametrize(
    ("restarts", "said"), [(1, ""), (2, "the status of a job was changed: restarts 0 -> 2")]
)
def test_the_restarts_of_a_jobset_grow_by_one_at_a_start(restarts: int, said: str) -> None:
    labels = {"rekindle.dev/auto-recovery": "enabled"}
    old: Object = {"kind": "JobSet", "metadata": {"labels": labels}, "spec": {"suspend": True}, "status": {}}
    new = {**old, "status": {"restarts": restarts}}

    found = found_by(OnlyTheFieldsOfAStart(facts()), written(JOBSETS, new, old=old, subresource="status"))

    assert found == said
