"""A node is quarantined only for hardware that is broken in its present boot."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from chaos.invariants.quarantines import QuarantinedForACause
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from tests.chaos.invariants.misdeeds import (
    found_after_recovery,
    found_of,
    on_node,
    quarantine,
    taken_out,
)


def test_a_cordon_without_evidence_is_caught() -> None:
    found = found_after_recovery(lambda sim: on_node(sim, "n3", quarantine()))
    assert QuarantinedForACause in found.rules


def test_a_cordon_for_a_line_that_a_tenant_provokes_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.MMU_FAULT)
        await on_node(sim, "n3", quarantine())

    assert QuarantinedForACause in found_after_recovery(act).rules


def test_a_cordon_for_what_was_before_the_boot_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.NVLINK_ERROR)
        await sim.crash_node("n3")
        await sim.boot_node("n3")
        await on_node(sim, "n3", quarantine())

    assert QuarantinedForACause in found_after_recovery(act).rules


def test_what_was_seen_before_the_mode_began_is_no_cause_to_take_a_node_out() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.NVLINK_ERROR)
        await sim.passes(1)
        sim.truth.acting_since = sim.clock.now() + timedelta(seconds=1)
        await taken_out(sim, "n2")

    assert found_of(act).rules == [QuarantinedForACause]


def test_a_verdict_that_the_next_line_may_soften_is_waited_for() -> None:
    async def act(
        sim: Simulation, *lines_before: lines.KernelText, line: lines.KernelText, wait_s: float
    ) -> None:
        for before in lines_before:
            sim.kernel("n2", before)
        sim.kernel("n2", line)
        await sim.passes(wait_s)
        await taken_out(sim, "n2", shows=None)

    assert found_of(partial(act, line=lines.NVLINK_ERROR, wait_s=0.2)).rules == [QuarantinedForACause]
    assert found_of(partial(act, line=lines.NVLINK_ERROR, wait_s=3)).rules == []
    assert found_of(partial(act, line=lines.FALLEN_OFF_THE_BUS, wait_s=0.2)).rules == []
    worse = partial(act, line=lines.NVLINK_ERROR, wait_s=0.2)
    assert found_of(lambda sim: worse(sim, lines.MMU_FAULT)).rules == []


def test_a_node_that_people_hold_and_that_is_taken_out_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_node("n2", {"metadata": {"annotations": {"rekindle.dev/hold": "true"}}})
        await taken_out(sim, "n2")

    assert found_of(act).rules == [QuarantinedForACause]
