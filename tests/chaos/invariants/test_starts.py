"""A gang is started only if it can train."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from chaos.invariants.starts import NoOldPods, OffBrokenNodes, OffSuspects, RoomForAllRanks
from chaos.simulate.play import START
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.setup import Setup
from recover.k8s.kinds import NAMESPACES, NODES, RECOVERIES
from tests.chaos.invariants.misdeeds import (
    act_of,
    facts,
    found_after_recovery,
    found_by,
    found_of,
    made,
    on_job,
    start_of,
    started,
    stopped,
)


def test_a_resume_over_living_pods_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.suspend("llm", True)
        await on_job(sim, act_of(sim.recovery().metadata.name, 2, "resumed"))

    assert found_after_recovery(act).rules.count(NoOldPods) == 2, "one of containers, one of pods"


@pytest.mark.parametrize("known_for_s", [1, 120])
def test_a_start_where_a_node_takes_pods_that_is_known_to_be_broken_is_caught(known_for_s: float) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.NVLINK_ERROR)
        await sim.person.suspend("llm", True)
        await sim.passes(known_for_s)
        await on_job(sim, act_of(sim.recovery().metadata.name, 2, "resumed"))

    found = found_after_recovery(act)
    assert (OffBrokenNodes in found.rules) is (known_for_s == 120)
    assert any("n3" in said and "xid-74" in said for said in found.said) is (known_for_s == 120)


@pytest.mark.parametrize(
    ("suspected", "cause", "is_caught"),
    [
        ([], {}, True),
        (["n2"], {}, False),
        ([], {"node": ""}, False),
        ([], {"at": (START - timedelta(seconds=61)).isoformat()}, False),
    ],
)
def test_a_start_leaves_the_node_that_its_cause_suspects(
    suspected: list[str], cause: dict[str, str], is_caught: bool
) -> None:
    laid = facts()
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    laid.store.create(NODES, {"metadata": {"name": "n2"}, "status": ready})
    laid.store.create(NAMESPACES, {"metadata": {"name": "ml"}})
    status = {"causes": [{"node": "n2", "at": START.isoformat()} | cause]}
    laid.store.create(RECOVERIES, made(RECOVERIES, "r", {}), "ml")
    laid.store.patch(RECOVERIES, "r", {"status": status}, namespace="ml", subresource="status")
    mark = msgspec.json.encode({"recovery": "r", "suspected": suspected, "avoided": []}).decode()

    found = found_by(OffSuspects(laid), start_of("uid", **{"rekindle.dev/recovery": mark}))
    assert ["n2" in said for said in found] == [True] * is_caught


@pytest.mark.parametrize(("for_s", "is_caught"), [(30.0, False), (120.0, True)])
def test_the_start_of_a_gang_that_cannot_fit_is_caught(for_s: float, is_caught: bool) -> None:
    async def act(sim: Simulation) -> None:
        await stopped(sim)
        await sim.person.cordon("n2")
        await sim.passes(for_s)
        await started(sim)

    found = found_of(act, Setup(nodes=2))

    assert (RoomForAllRanks in found.rules) is is_caught
