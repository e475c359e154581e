"""The checks of room, of a brake in force, of soft taints, and of what a recovery leaves behind: each must be
able to fail, and must be content with what is right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chaos.cluster.kinds import Object
from chaos.simulate import lines
from chaos.simulate.jobs import Job
from chaos.simulate.leftovers import left_behind
from chaos.simulate.play import play
from chaos.simulate.world import CONTROLLER, Setup, Simulation
from recover.api import Phase
from recover.resources import CONFIGMAPS, INCIDENTS, PYTORCHJOBS
from tests.chaos.test_checks_by_truth import said_of, stopped


async def incident(sim: Simulation, name: str, spec: Object, actions: list[Object]) -> None:
    kind = {"apiVersion": INCIDENTS.api_version, "kind": INCIDENTS.kind}
    body = {**kind, "metadata": {"name": name}, "spec": {"detectedAt": sim.clock.now().isoformat(), **spec}}
    api = sim.cluster.client(CONTROLLER)
    await api.create(INCIDENTS, body)
    await api.patch(INCIDENTS, name, {"status": {"actions": actions}}, subresource="status")


# --- while it runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("for_s", "said"),
    [(10.0, ""), (120.0, "llm was training when it was stopped, although a brake was in force"), (400.0, "")],
)
def test_the_stop_of_a_gang_that_trains_while_a_brake_is_in_force_is_caught(for_s: float, said: str) -> None:
    async def act(sim: Simulation) -> None:
        await incident(sim, "fleet-brake-device-lost", {"fault": "device-lost"}, [])
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(for_s)
        await stopped(sim)

    assert said_of(act) == said


@pytest.mark.parametrize(
    ("line", "said"), [(lines.CONTAINED, "a limit kept a soft taint off n3"), (lines.NVLINK_ERROR, "")]
)
def test_a_limit_that_keeps_a_soft_taint_off_a_node_is_caught(line: lines.KernelText, said: str) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", line)
        refusal = {"action": "quarantine-node", "target": "n3", "outcome": "refused"}
        refusal |= {"reason": "BudgetExhausted", "at": sim.clock.now().isoformat()}
        await incident(sim, "n3-nvlink-1", {"fault": "nvlink", "node": "n3"}, [refusal])

    assert said_of(act) == said


@pytest.mark.parametrize(("for_s", "is_caught"), [(30.0, False), (120.0, True)])
def test_the_start_of_a_gang_that_cannot_fit_is_caught(for_s: float, is_caught: bool) -> None:
    async def act(sim: Simulation) -> None:
        await stopped(sim)
        await sim.person.cordon("n2")
        await sim.passes(for_s)
        await stopped(sim, of_phase="Resuming", start=True)

    said = said_of(act, Setup(nodes=2))

    assert ("llm was started although its 2 ranks find 1 places" in said) is is_caught


@pytest.mark.parametrize(("nodes", "is_caught"), [(2, True), (3, False)])
def test_the_move_off_a_degraded_node_to_no_better_place_is_caught(nodes: int, is_caught: bool) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.CONTAINED)
        await sim.passes(sim.settings.timing.checkpoint_grace_s + 20)
        await stopped(sim)

    said = said_of(act, Setup(nodes=nodes))

    assert said == ("llm was stopped for a degraded node, and there is no better place" if is_caught else "")


# --- at the end -------------------------------------------------------------------------------------------


def left(body: Object) -> list[str]:
    """What is said of a gang that was recovered, and where somebody then writes this."""
    found: list[str] = []

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        await sim.passes(60)
        assert list(left_behind(sim)) == []
        sim.kill_controller()
        await _write(sim, body)
        found.extend(left_behind(sim))

    play(story)
    return found


async def _write(sim: Simulation, body: dict[str, Any]) -> None:
    api = sim.cluster.client("person")
    if "data" in body:
        await api.patch(CONFIGMAPS, "llm-rekindle-pytorchjob", body, namespace="ml")
        return
    recovery = sim.recovery().metadata.name
    mark = {"recovery": recovery, "attempt": 1, "did": "resumed", "avoided": ["n2"]}
    annotations = {"annotations": {"rekindle.dev/recovery": msgspec.json.encode(mark).decode()}}
    await api.patch(PYTORCHJOBS, "llm", {"metadata": annotations}, namespace="ml")


def test_a_checkpoint_that_is_not_taken_back_is_caught() -> None:
    (said,) = left({"data": {"REKINDLE_RESUME_STEP": "40"}})
    assert said == "the recoveries of llm are over, and its ranks are still told to begin at step 40"


def test_an_affinity_that_is_not_taken_back_is_caught() -> None:
    (said,) = left({})
    assert said == "the recoveries of llm are over, and its job is still kept off n2"
