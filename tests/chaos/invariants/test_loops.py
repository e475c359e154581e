"""Rekindle gives up a job after as many failures of its program as the limit allows."""

from __future__ import annotations

import pytest

from chaos.cluster.containers import Exit
from chaos.invariants.base import Check
from chaos.invariants.loops import CrashLoopsEnd, GivenUpAtTheLimit
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Gang, Job
from chaos.simulated.truth import Life
from tests.chaos.invariants.misdeeds import (
    facts,
    found_by,
    found_of,
    on_recovery,
    start_of,
    stopped,
)


@pytest.mark.parametrize(
    ("failures", "error", "rules"),
    [
        (3, "exit-1", [GivenUpAtTheLimit]),
        (4, "exit-1", []),
        (3, "deleted", []),
    ],
)
def test_a_program_is_given_up_only_after_as_many_failures_as_the_limit_allows(
    failures: int, error: str, rules: list[type[Check]]
) -> None:
    async def act(sim: Simulation) -> None:
        sim.crash_rank(1, Exit(1))
        await stopped(sim)
        for _ in range(failures - 1):
            sim.gangs["llm"].record_failure()
        cause = {"incident": "i", "fault": "application", "attempt": 1, "error": error}
        cause |= {"at": "2026-11-21T09:00:00Z"}
        end = {"phase": "Escalated", "reason": "CrashLoop", "message": "a test", "causes": [cause]}
        await on_recovery(sim, end)

    assert found_of(act).rules == rules


def test_a_program_that_cannot_start_is_given_up_and_one_that_made_a_step_has_all_its_restarts_again() -> (
    None
):
    laid, program = facts(), Gang(Job())
    laid.truth.lives["uid"] = Life(program)
    check = CrashLoopsEnd(laid)
    program.crashes_at_start = True

    def started() -> list[str]:
        said = found_by(check, start_of("uid"))
        program.crashed += 1
        return said

    ended_by_others = [found_by(check, start_of("uid")) for _ in range(7)]
    said = [started() for _ in range(7)]
    program.training.furthest += 1
    again = started()

    assert ended_by_others == [[]] * 7
    assert said[:6] == [[]] * 6
    assert ["6" in violation for violation in said[6]] == [True]
    assert again == []


@pytest.mark.parametrize(("broke", "is_caught"), [(1, True), (3, True), (4, False), (0, False)])
def test_a_gang_that_is_given_up_for_a_node_that_seldom_broke_is_caught(broke: int, is_caught: bool) -> None:
    async def act(sim: Simulation) -> None:
        for _ in range(broke):
            sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await stopped(sim)
        cause = {"incident": "i", "fault": "device-lost", "at": "2026-11-21T09:00:00Z", "blame": "node"}
        causes = [{**cause, "attempt": 1, "node": "n1"}, {**cause, "attempt": 2, "node": "n2"}]
        end = {"phase": "Escalated", "reason": "CrashLoop", "message": "a test", "causes": causes}
        await on_recovery(sim, end)

    assert (GivenUpAtTheLimit in found_of(act).rules) == is_caught
