"""No recovery begins against the consent or the hold of people."""

from __future__ import annotations

import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.consent import HeldJobsAreLeft, UndoneIsNotRepeated
from chaos.simulate.world import CONTROLLER, Simulation
from recover.k8s.kinds import JOBS, RECOVERIES
from tests.chaos.invariants.misdeeds import facts, found_after_recovery, found_by, made, written


def _recovery(name: str = "r", number: int = 1) -> Object:
    return made(RECOVERIES, name, {"gang": {"uid": "u", "name": "llm"}, "number": number})


@pytest.mark.parametrize(
    ("after_s", "is_held", "is_caught"), [(100, True, True), (80, True, False), (100, False, False)]
)
def test_a_recovery_of_a_job_that_people_hold_for_a_while_is_caught(
    after_s: float, is_held: bool, is_caught: bool
) -> None:
    check = HeldJobsAreLeft(facts())
    held = {"metadata": {"uid": "u", "annotations": {"rekindle.dev/hold": "true"}}, "spec": {}}
    let_go = {"metadata": {"uid": "u"}, "spec": {}}

    assert found_by(check, written(JOBS, held)) == []
    assert found_by(check, written(JOBS, held if is_held else let_go, after_s=10)) == []
    found = found_by(check, written(RECOVERIES, _recovery(), after_s=after_s))

    assert ["hold" in said for said in found] == [True] * is_caught


@pytest.mark.parametrize(
    ("reason", "after_s", "rules"),
    [
        ("ForeignOwner", 100, [UndoneIsNotRepeated]),
        ("ForeignOwner", 20, []),
        ("CrashLoop", 100, []),
    ],
)
def test_a_recovery_after_one_that_somebody_has_undone_is_caught(
    reason: str, after_s: float, rules: list[type]
) -> None:
    async def act(sim: Simulation) -> None:
        spec = sim.cluster.store.read(RECOVERIES, sim.recovery().metadata.name, "ml").body["spec"]
        api = sim.cluster.client(CONTROLLER)
        await api.create(RECOVERIES, made(RECOVERIES, "undone", {**spec, "number": 2}), "ml")
        ended = {"status": {"phase": "Escalated", "reason": reason, "message": "a test"}}
        await api.patch(RECOVERIES, "undone", ended, namespace="ml", subresource="status")
        await sim.passes(after_s)
        await api.create(RECOVERIES, made(RECOVERIES, "next", {**spec, "number": 3}), "ml")

    assert found_after_recovery(act).rules == rules
