"""Random scripts of mode repair in virtual time, and a controller that is killed at any write of a repair."""

from __future__ import annotations

import random

import pytest

from chaos.simulate.drawing import repair_script_of, run_seed
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.setup import Setup
from recover.api.marks import QUARANTINE
from recover.api.repair_state import RepairPhase
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chaos.simulate.seeds import asked_or

SEEDS = range(12)
"""Seeds of the random scripts. `REKINDLE_SEEDS=1000-2000` chooses other seeds."""


@pytest.mark.parametrize("seed", asked_or(SEEDS))
def test_no_script_of_faults_breaks_an_invariant_of_repairs_and_every_run_comes_to_rest(seed: int) -> None:
    run_seed(seed, repair_script_of)


def test_a_fault_that_was_reset_after_a_person_ended_an_earlier_quarantine_is_not_left_there() -> None:
    async def story(sim: Simulation) -> None:
        sim.step_ends = AllGoesWell()
        await sim.passes(30)
        sim.kernel("n2", lines.DOUBLE_BIT_ERROR)
        await sim.until(lambda: sim.cordoned() == ["n2"], within_s=10)
        await sim.person.uncordon("n2")
        await sim.passes(90)
        sim.kernel("n2", lines.DOUBLE_BIT_ERROR)
        await sim.until(lambda: returned(sim), within_s=900)
        await comes_to_rest(sim)

    play(story, Setup(nodes=3, settings=Settings(mode=Mode.REPAIR)))


# --- killed at any instant --------------------------------------------------------------------------------


class AllGoesWell(random.Random):
    """Random numbers by which steps neither fail nor take long."""

    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        (lines.DOUBLE_BIT_ERROR, ["reset-1", "validate-1"]),
        (lines.FALLEN_OFF_THE_BUS, ["reboot-1", "validate-1"]),
    ],
)
def test_a_controller_killed_at_any_write_of_a_repair_repeats_no_step_and_gives_the_node_back(
    line: lines.KernelText, steps: list[str]
) -> None:
    """The controller is killed before each of its writes is sent, and after the write was applied but not
    answered. Then the next controller begins."""
    place, was_struck = 0, True
    while was_struck:
        place += 1
        struck: list[bool] = []

        async def story(sim: Simulation, place: int = place, struck: list[bool] = struck) -> None:
            sim.step_ends = AllGoesWell()
            await sim.passes(30)
            sim.crashes.crash_in, sim.crashes.down_s = place, 3.0
            sim.kernel("n2", line)
            await sim.until(lambda: returned(sim), within_s=900)
            struck.append(sim.crashes.crash_in is None)
            made = [write for write in sim.writes() if write.startswith("create jobs/repair-")]
            assert [name.split("-", 2)[2] for name in made] == steps
            assert QUARANTINE not in sim.node("n2")["metadata"].get("annotations", {})
            assert not sim.node("n2")["spec"].get("taints")

        play(story, Setup(nodes=3, settings=Settings(mode=Mode.REPAIR)))
        was_struck = struck[0]
    assert place > 20, "the crash points were not reached"


def returned(sim: Simulation) -> bool:
    repairs = [i.status.repair for i in sim.incidents()]
    is_over = any(r is not None and r.phase is RepairPhase.RETURNED for r in repairs)
    return is_over and not sim.cordoned()
