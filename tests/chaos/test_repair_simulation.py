"""Random scripts in mode repair, in virtual time, and the checks of repairs: each must be able to fail."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chaos.simulate import lines
from chaos.simulate.drawing import repair_script_of, run_seed
from chaos.simulate.jobs import Job
from chaos.simulate.play import play
from chaos.simulate.world import CONTROLLER, Setup, Simulation
from recover.decode import QUARANTINE
from recover.modes import Mode
from recover.repair.state import RepairPhase
from recover.resources import INCIDENTS, JOBS, NODES
from recover.settings import Settings
from tests.chaos.seeds import asked_or

SEEDS = range(12)
"""More of them by `REKINDLE_SEEDS=1000-2000`."""


@pytest.mark.parametrize("seed", asked_or(SEEDS))
def test_no_script_of_faults_breaks_an_invariant_of_repairs_and_every_run_comes_to_rest(seed: int) -> None:
    run_seed(seed, repair_script_of)


# --- the checks see what they are for ---------------------------------------------------------------------


async def quarantined(sim: Simulation) -> str:
    """A node whose reset is awaited: a pod with a GPU is in its way. Returns its Incident's name."""
    await sim.submit(Job(ranks=1, opted_in=False))
    await sim.passes(65)
    node = sim.pods()[0]["spec"]["nodeName"]
    sim.kernel(node, lines.DOUBLE_BIT_ERROR)
    await sim.until(lambda: any(i.status.repair is not None for i in sim.incidents()), within_s=60)
    (incident,) = sim.incidents()
    return incident.metadata.name


def misdeed(act: Callable[[Simulation, str], Awaitable[Any]]) -> str:
    """What is said of a write in the controller's name, after the begin of a repair."""
    said: list[str] = []

    async def story(sim: Simulation) -> None:
        name = await quarantined(sim)
        sim.kill_controller()
        assert sim.invariants.violations == []
        await act(sim, name)
        said.extend(sim.invariants.violations)
        sim.invariants.violations.clear()

    play(story, Setup(settings=Settings(mode=Mode.REPAIR)))
    return "; ".join(said)


async def _job(sim: Simulation, incident: str, name: str) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "none"}]}
    labels = {"rekindle.dev/repair": incident}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    await sim.cluster.client(CONTROLLER).create(JOBS, body, "rekindle-system")


def test_a_reset_over_a_pod_that_holds_a_gpu_is_seen() -> None:
    async def act(sim: Simulation, incident: str) -> None:
        await sim.passes(100)
        await _job(sim, incident, "repair-1-reset-1")

    said = misdeed(act)

    assert "made before its step was written" in said
    assert "ran on its node" in said


def test_the_return_of_a_node_that_nobody_has_validated_is_seen() -> None:
    async def act(sim: Simulation, incident: str) -> None:
        body = {
            "metadata": {
                "annotations": {"rekindle.dev/quarantined-by": None},
                "labels": {"rekindle.dev/health": None},
            },
            "spec": {"taints": None, "unschedulable": None},
        }
        await sim.cluster.client(CONTROLLER).patch(NODES, sim.incidents()[0].spec.node, body)

    assert "given back without a validation" in misdeed(act)


def test_a_return_that_leaves_our_taint_behind_is_seen() -> None:
    async def act(sim: Simulation, incident: str) -> None:
        body = {"metadata": {"annotations": {"rekindle.dev/quarantined-by": None}}}
        await sim.cluster.client(CONTROLLER).patch(NODES, sim.incidents()[0].spec.node, body)

    assert "was not given back as it was" in misdeed(act)


def test_more_nodes_under_repair_than_the_limit_are_seen() -> None:
    async def act(sim: Simulation, incident: str) -> None:
        api = sim.cluster.client(CONTROLLER)
        for number in (1, 2):
            name = f"copy-{number}"
            spec = {"fault": "driver", "node": f"n{number}", "detectedAt": "2026-11-21T09:00:00Z"}
            kind = {"apiVersion": INCIDENTS.api_version, "kind": INCIDENTS.kind}
            await api.create(INCIDENTS, {**kind, "metadata": {"name": name}, "spec": spec})
            working = {"status": {"repair": {"phase": "Validating"}}}
            await api.patch(INCIDENTS, name, working, subresource="status")

    assert "2 nodes are under repair, the limit is 1" in misdeed(act)


# --- killed at any instant --------------------------------------------------------------------------------


class AllGoesWell(random.Random):
    """For steps that neither fail nor take long."""

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
    """Before each of its writes is sent, and after it was applied but not answered; then the next begins."""
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
