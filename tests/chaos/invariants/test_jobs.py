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
    found_after_recovery,
    found_by,
    made,
    on_job,
    start_of,
    written,
)


def test_a_second_stop_of_one_attempt_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await on_job(sim, act_of(sim.recovery().metadata.name, 1, "stopped"))

    found = found_after_recovery(act)
    of_acts = [said for rule, said in zip(found.rules, found.said, strict=True) if rule is EachActOnce]
    assert ["attempt 1" in said for said in of_acts] == [True, False]
    assert ["Succeeded" in said for said in of_acts] == [False, True]


def test_a_write_to_a_job_without_consent_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_job({"metadata": {"labels": {"rekindle.dev/auto-recovery": None}}})
        await on_job(sim, act_of(sim.recovery().metadata.name, 2, "stopped"))

    assert OnlyTheFieldsOfAStart in found_after_recovery(act).rules


@pytest.mark.parametrize("is_held", [False, True])
def test_a_stop_of_a_held_job_is_caught(is_held: bool) -> None:
    laid = facts()
    laid.store.create(NAMESPACES, {"metadata": {"name": "ml"}})
    laid.store.create(RECOVERIES, made(RECOVERIES, "r", {"gang": {"uid": "uid"}}), "ml")
    status = {"phase": "Stopping", "attempt": 1}
    laid.store.patch(RECOVERIES, "r", {"status": status}, namespace="ml", subresource="status")
    mark = '{"recovery": "r", "attempt": 1, "did": "stopped"}'
    meta = {"uid": "uid", "name": "llm", "namespace": "ml"}
    old, new = (
        {"metadata": {**meta, "annotations": annotations}, "spec": {"suspend": suspend}}
        for suspend, annotations in (
            (False, {"rekindle.dev/hold": "true"} if is_held else {}),
            (True, {"rekindle.dev/recovery": mark}),
        )
    )

    assert len(found_by(EachActOnce(laid), written(JOBS, new, old=old))) == is_held


def test_a_change_of_the_jobs_own_fields_is_caught() -> None:
    found = found_after_recovery(
        lambda sim: on_job(sim, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    )
    assert found.rules == [OnlyTheFieldsOfAStart] * 2


def test_an_act_by_a_recovery_of_another_gang_or_with_another_mark_is_caught() -> None:
    laid = facts()
    laid.store.create(NAMESPACES, {"metadata": {"name": "ml"}})
    laid.store.create(RECOVERIES, made(RECOVERIES, "r", {"gang": {"uid": "other"}}), "ml")
    laid.store.patch(RECOVERIES, "r", {"status": {"phase": "Resuming"}}, namespace="ml", subresource="status")
    mark = '{"recovery": "r", "attempt": 1, "did": "stopped"}'

    of_mark, of_gang = found_by(EachActOnce(laid), start_of("uid", **{"rekindle.dev/recovery": mark}))
    assert "stopped" in of_mark
    assert "resumed" in of_mark
    assert "r" in of_gang.split()


def jobs_of_set(*, avoids: str = "", parallelism: int = 1) -> Object:
    """Returns a Job that a JobSet has created."""
    owner = {"kind": "JobSet", "uid": "set", "controller": True}
    pod: Object = {"containers": [], "affinity": {"any": avoids}}
    spec = {"suspend": True, "parallelism": parallelism, "template": {"spec": pod}}
    return {"kind": "Job", "metadata": {"uid": "part", "ownerReferences": [owner]}, "spec": spec}


@pytest.mark.parametrize(
    ("changed", "is_caught"), [(jobs_of_set(avoids="n2"), False), (jobs_of_set(parallelism=2), True)]
)
def test_in_a_job_of_a_jobset_only_the_affinity_may_change(changed: Object, is_caught: bool) -> None:
    found = found_by(OnlyTheFieldsOfAStart(facts()), written(JOBS, changed, old=jobs_of_set()))

    assert len(found) == is_caught


@pytest.mark.parametrize(("restarts", "is_caught"), [(1, False), (2, True)])
def test_the_restarts_of_a_jobset_grow_by_one_at_a_start(restarts: int, is_caught: bool) -> None:
    labels = {"rekindle.dev/auto-recovery": "enabled"}
    old: Object = {"kind": "JobSet", "metadata": {"labels": labels}, "spec": {"suspend": True}, "status": {}}
    new = {**old, "status": {"restarts": restarts}}

    found = found_by(OnlyTheFieldsOfAStart(facts()), written(JOBSETS, new, old=old, subresource="status"))

    assert ["0 -> 2" in said for said in found] == [True] * is_caught
