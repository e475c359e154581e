"""A gang starts from a complete checkpoint, and from an older one only if the newer one does not load."""

from __future__ import annotations

import re
from functools import partial

import pytest

from chaos.cluster.containers import Exit
from chaos.invariants.choices import NewestCheckpointThatLoads
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Gang, Job
from chaos.simulated.truth import Life
from tests.chaos.invariants.misdeeds import (
    facts,
    found_by,
    found_of,
    start_of,
    started,
    stopped,
)


@pytest.mark.parametrize(
    ("chosen", "steps"),
    [
        pytest.param(20, [], id="the newest complete one"),
        pytest.param(30, ["30"], id="not complete"),
        pytest.param(10, ["10", "20"], id="older than one that is untried"),
    ],
)
def test_a_choice_that_is_incomplete_or_older_than_need_be_is_caught(chosen: int, steps: list[str]) -> None:
    async def act(sim: Simulation) -> None:
        await sim.passes(100)
        sim.crash_rank(1, Exit(1))
        sim.gangs["llm"].training.checkpoints.complete = {10: True, 20: True, 30: False}
        await stopped(sim)
        await sim.passes(60)
        choice = {"attempt": 1, "verified": True, "step": chosen, "path": f"/checkpoints/step-{chosen}"}
        await started(sim, checkpoint=choice)

    found = found_of(act)
    assert found.rules == ([NewestCheckpointThatLoads] if steps else [])
    assert [re.findall(r"\d+", said) for said in found.said] == ([steps] if steps else [])


def test_a_newer_checkpoint_that_loads_is_not_passed_over_after_one_attempt() -> None:
    async def act(sim: Simulation, *, tried: int, damaged: bool = False) -> None:
        await sim.passes(100)
        sim.crash_rank(1, Exit(1))
        checkpoints = sim.gangs["llm"].training.checkpoints
        checkpoints.complete = {10: True, 20: True}
        checkpoints.damaged = {20} if damaged else set()
        await stopped(sim)
        await sim.passes(60)
        checkpoints.tried[20] = tried
        choice = {"attempt": 1, "verified": True, "step": 10, "path": "/checkpoints/step-10"}
        await started(sim, checkpoint=choice)

    assert found_of(partial(act, tried=2)).rules == [NewestCheckpointThatLoads]
    assert found_of(partial(act, tried=2, damaged=True)).rules == []
    assert found_of(partial(act, tried=4)).rules == []


@pytest.mark.parametrize(
    ("ranks", "damaged", "is_caught"), [((2, 2), True, True), ((2, 1), True, False), ((2, 2), False, False)]
)
def test_a_checkpoint_that_does_not_load_is_not_chosen_again_and_again(
    ranks: tuple[int, ...], damaged: bool, is_caught: bool
) -> None:
    laid, program = facts(), Gang(Job(ranks=2))
    laid.truth.lives["uid"] = Life(program)
    checkpoints = program.training.checkpoints
    checkpoints.complete, checkpoints.damaged = {20: True}, {20} if damaged else set()
    laid.recovery_of = lambda _: {"status": {"checkpoint": {"verified": True, "step": 20}}}  # type: ignore[method-assign]
    check = NewestCheckpointThatLoads(laid)

    assert found_by(check, start_of("uid")) == []
    for begun in ranks:
        checkpoints.tried[20] += begun
        found = found_by(check, start_of("uid"))

    assert ["20" in said for said in found] == [True] * is_caught
