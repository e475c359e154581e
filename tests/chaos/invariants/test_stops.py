"""A gang that trains is stopped only for broken hardware under one of its ranks."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from chaos.cluster.containers import Exit
from chaos.invariants.base import Check
from chaos.invariants.stops import StoppedAgainForItsOwn, StopsForACause
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.setup import Setup
from recover.k8s.kinds import PYTORCHJOBS
from tests.chaos.invariants.misdeeds import (
    act_of,
    found_after_recovery,
    found_of,
    incident,
    on_job,
    on_recovery,
    stopped,
)

CAUGHT = [StopsForACause]


def test_the_stop_of_a_gang_that_trains_on_sound_nodes_is_caught() -> None:
    assert found_of(stopped).rules == CAUGHT


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        (lines.FALLEN_OFF_THE_BUS, []),
        (lines.CONTAINED, CAUGHT),
        (lines.RETIRED_CODE, CAUGHT),
        (lines.MMU_FAULT, CAUGHT),
    ],
)
def test_only_broken_hardware_under_a_rank_is_a_cause_to_stop_it(
    line: lines.KernelText, rules: list[type[Check]]
) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", line)
        await sim.passes(25)
        await stopped(sim)

    assert found_of(act).rules == rules


def test_broken_hardware_where_none_of_its_ranks_runs_is_no_cause_to_stop_it() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.FALLEN_OFF_THE_BUS)
        await stopped(sim)

    assert found_of(act).rules == CAUGHT


@pytest.mark.parametrize(("saves_after_s", "rules"), [(-5, CAUGHT), (20, [])])
def test_a_degraded_node_is_a_cause_once_the_gang_has_saved_since(
    saves_after_s: float, rules: list[type[Check]]
) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.CONTAINED)
        (life,) = sim.truth.lives.values()
        life.saved_at = sim.clock.now() + timedelta(seconds=saves_after_s)
        await sim.passes(25)
        await stopped(sim)

    assert found_of(act).rules == rules


def test_a_degraded_node_is_a_cause_after_the_grace() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.CONTAINED)
        await sim.passes(sim.settings.timing.checkpoint_grace_s + 20)
        await stopped(sim)

    assert found_of(act).rules == []


@pytest.mark.parametrize(("nodes", "is_caught"), [(2, True), (3, False)])
def test_the_move_off_a_degraded_node_to_no_better_place_is_caught(nodes: int, is_caught: bool) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.CONTAINED)
        await sim.passes(sim.settings.timing.checkpoint_grace_s + 20)
        await stopped(sim)

    assert found_of(act, Setup(nodes=nodes)).rules == (CAUGHT if is_caught else [])


def test_what_was_seen_before_the_mode_began_is_no_cause_to_stop_it() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.NVLINK_ERROR)
        await sim.passes(1)
        sim.truth.acting_since = sim.clock.now()
        await stopped(sim)

    assert found_of(act).rules == CAUGHT


def test_a_gang_that_has_lost_a_rank_may_be_stopped() -> None:
    async def act(sim: Simulation) -> None:
        sim.crash_rank(1, Exit(1))
        await stopped(sim)

    assert found_of(act).rules == []


def test_a_gang_that_nobody_reads_may_be_stopped_for_a_lost_rank_but_not_again_after_its_start() -> None:
    async def act(sim: Simulation, *, resumed: bool = False) -> None:
        uid = sim.cluster.store.read(PYTORCHJOBS, "llm", "ml").body["metadata"]["uid"]
        await sim.passes(300)
        sim.truth.lives[uid].lost_at = sim.clock.now() - timedelta(seconds=250)
        if resumed:
            sim.truth.resumed_at[uid] = sim.clock.now() - timedelta(seconds=200)
        await stopped(sim)

    unread = Setup(without_agent=tuple(f"n{number}" for number in range(1, 9)))
    assert found_of(act, unread).rules == []
    assert found_of(act).rules == CAUGHT
    assert found_of(partial(act, resumed=True), unread).rules == CAUGHT


@pytest.mark.parametrize(("for_s", "rules"), [(10.0, []), (120.0, CAUGHT), (400.0, [])])
def test_the_stop_of_a_gang_that_trains_while_a_brake_is_in_force_is_caught(
    for_s: float, rules: list[type[Check]]
) -> None:
    async def act(sim: Simulation) -> None:
        await incident(sim, "fleet-brake-device-lost-0a1b2c3d", {"fault": "device-lost"})
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(for_s)
        await stopped(sim)

    assert found_of(act).rules == rules


@pytest.mark.parametrize(
    ("node", "attempt", "is_caught"), [("n2", 2, True), ("n1", 2, False), ("n2", 1, False)]
)
def test_a_gang_that_is_stopped_again_for_a_node_that_it_does_not_use_is_caught(
    node: str, attempt: int, is_caught: bool
) -> None:
    async def act(sim: Simulation) -> None:
        cause = {"incident": "i", "fault": "device-lost", "attempt": attempt, "at": "2026-11-21T09:00:00Z"}
        cause |= {"node": node, "blame": "node"}
        name = sim.recovery().metadata.name
        await on_recovery(sim, {"phase": "Stopping", "attempt": attempt, "causes": [cause]})
        await on_job(sim, act_of(name, attempt, "stopped"))

    found = found_after_recovery(act)
    assert (StoppedAgainForItsOwn in found.rules) == is_caught
