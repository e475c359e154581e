"""At the end of a run a recovery has removed everything that it had written into its job."""

from __future__ import annotations

from typing import Any

import msgspec

from chaos.apiserver.kinds import Object
from chaos.simulate.leftovers import left_behind
from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from recover.api import Phase
from recover.k8s.kinds import CONFIGMAPS, PYTORCHJOBS


def left(body: Object) -> list[str]:
    """Returns what the check reports about a gang that was recovered and into which somebody then writes this
    body."""
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
    assert "llm" in said
    assert "40" in said


def test_an_affinity_that_is_not_taken_back_is_caught() -> None:
    (said,) = left({})
    assert "llm" in said
    assert "n2" in said
