"""A repair writes each step before it begins the step, disturbs nobody, and validates the node before its
return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.facts import Facts
from chaos.invariants.repairs import StepsAreWrittenFirst, StepsHarmNobody
from chaos.invariants.write import Write
from chaos.simulate.play import play
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODES
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chaos.invariants.misdeeds import caught, facts, found_by, incident, made, written


async def quarantined(sim: Simulation) -> str:
    """A node whose reset is awaited: a pod with a GPU is in its way. Returns its Incident's name."""
    await sim.submit(Job(ranks=1, opted_in=False))
    await sim.passes(65)
    node = sim.pods()[0]["spec"]["nodeName"]
    sim.kernel(node, lines.DOUBLE_BIT_ERROR)
    await sim.until(lambda: any(i.status.repair is not None for i in sim.incidents()), within_s=60)
    (only,) = sim.incidents()
    return only.metadata.name


def said_in_repair(act: Callable[[Simulation, str], Awaitable[Any]]) -> str:
    """What is said of a write in the controller's name, after the begin of a repair."""
    said: list[str] = []

    async def story(sim: Simulation) -> None:
        name = await quarantined(sim)
        sim.kill_controller()
        assert sim.invariants.violations == []
        await act(sim, name)
        said.extend(caught(sim))

    play(story, Setup(settings=Settings(mode=Mode.REPAIR)))
    return "; ".join(said)


def step_job(about: str, name: str) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "none"}]}
    labels = {"rekindle.dev/repair": about}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def test_a_reset_over_a_pod_that_holds_a_gpu_is_seen() -> None:
    async def act(sim: Simulation, repaired: str) -> None:
        await sim.passes(100)
        reset = step_job(repaired, "repair-1-reset-1")
        await sim.cluster.client(CONTROLLER).create(JOBS, reset, "rekindle-system")

    said = said_in_repair(act)

    assert "made before its step was written" in said
    assert "ran on its node" in said


def test_the_return_of_a_node_that_nobody_has_validated_is_seen() -> None:
    async def act(sim: Simulation, repaired: str) -> None:
        body = {
            "metadata": {
                "annotations": {"rekindle.dev/quarantined-by": None},
                "labels": {"rekindle.dev/health": None},
            },
            "spec": {"taints": None, "unschedulable": None},
        }
        await sim.cluster.client(CONTROLLER).patch(NODES, sim.incidents()[0].spec.node, body)

    assert "given back without a validation" in said_in_repair(act)


def test_a_return_that_leaves_our_taint_behind_is_seen() -> None:
    async def act(sim: Simulation, repaired: str) -> None:
        body = {"metadata": {"annotations": {"rekindle.dev/quarantined-by": None}}}
        await sim.cluster.client(CONTROLLER).patch(NODES, sim.incidents()[0].spec.node, body)

    assert "was not given back as it was" in said_in_repair(act)


def test_more_nodes_under_repair_than_the_limit_are_seen() -> None:
    async def act(sim: Simulation, repaired: str) -> None:
        for number in (1, 2):
            working = {"repair": {"phase": "Validating"}}
            await incident(sim, f"copy-{number}", {"fault": "driver", "node": f"n{number}"}, working)

    assert "2 nodes are under repair, the limit is 1" in said_in_repair(act)


# --- the Job of a step ------------------------------------------------------------------------------------


def of_step(name: str) -> Write:
    """The controller makes this Job for the Incident i."""
    return written(JOBS, step_job("i", name), of_repair=True)


def with_incident(*steps: str) -> Facts:
    """Its node n1 is not quarantined."""
    laid = facts()
    laid.store.create(NODES, {"metadata": {"name": "n1"}})
    laid.store.create(INCIDENTS, made(INCIDENTS, "i", {"node": "n1"}))
    repair = {"phase": "Resetting", "steps": [{"job": step} for step in steps]}
    laid.store.patch(INCIDENTS, "i", {"status": {"repair": repair}}, subresource="status")
    return laid


def test_a_step_that_is_made_twice_is_caught() -> None:
    check = StepsAreWrittenFirst(with_incident("repair-1-reset-1"))

    assert found_by(check, of_step("repair-1-reset-1")) == ""
    assert found_by(check, of_step("repair-1-reset-1")) == "repair-1-reset-1 was made twice"


def test_a_step_of_no_incident_is_caught() -> None:
    said = found_by(StepsAreWrittenFirst(facts()), of_step("repair-1-reset-1"))

    assert said == "repair-1-reset-1 was made for no Incident"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("repair-1-reboot-1", "repair-1-reboot-1 was made while repair-1-reset-1 runs on the node"),
        ("repair-1-validate-1", ""),
    ],
)
def test_a_step_beside_one_that_runs_is_caught_unless_it_only_looks(name: str, said: str) -> None:
    laid = with_incident("repair-1-reset-1", name)
    laid.store.create(NAMESPACES, {"metadata": {"name": "rekindle-system"}})
    running = step_job("i", "repair-1-reset-1")
    laid.store.create(JOBS, running, "rekindle-system")

    assert found_by(StepsAreWrittenFirst(laid), of_step(name)) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("repair-1-reset-1", "repair-1-reset-1 was made for a node that was not taken out"),
        ("repair-1-validate-1", ""),
    ],
)
def test_a_step_on_a_node_in_service_is_caught_unless_it_only_looks(name: str, said: str) -> None:
    assert found_by(StepsHarmNobody(with_incident(name)), of_step(name)) == said
