"""A repair records each step before it begins the step, disturbs nobody, and validates the node before the
node returns to service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.facts import Facts
from chaos.invariants.repairs import FewAtOnce, GivenBackValidated, StepsAreWrittenFirst, StepsHarmNobody
from chaos.invariants.write import Write
from chaos.simulate.world import CONTROLLER, Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.setup import Setup
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODES
from recover.model.modes import Mode
from recover.policy.settings import Settings
from tests.chaos.invariants.misdeeds import Found, facts, found_by, incident, judged, made, written


async def quarantined(sim: Simulation) -> str:
    """Quarantines a node whose reset is pending, because a pod with a GPU blocks the reset. Returns the name
    of its Incident."""
    await sim.submit(Job(ranks=1, opted_in=False))
    await sim.passes(65)
    node = sim.pods()[0]["spec"]["nodeName"]
    sim.kernel(node, lines.DOUBLE_BIT_ERROR)
    await sim.until(lambda: any(i.status.repair is not None for i in sim.incidents()), within_s=60)
    (only,) = sim.incidents()
    return only.metadata.name


def found_in_repair(act: Callable[[Simulation, str], Awaitable[Any]]) -> Found:
    """Returns what the checks find in a write in the controller's name, after the begin of a repair."""

    async def story(sim: Simulation) -> None:
        name = await quarantined(sim)
        sim.kill_controller()
        assert sim.invariants.violations == []
        await act(sim, name)

    return judged(story, Setup(settings=Settings(mode=Mode.REPAIR)))


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

    assert found_in_repair(act).rules == [StepsAreWrittenFirst, StepsHarmNobody]


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

    assert found_in_repair(act).rules.count(GivenBackValidated) == 1


def test_a_return_that_leaves_our_taint_behind_is_seen() -> None:
    async def act(sim: Simulation, repaired: str) -> None:
        body = {"metadata": {"annotations": {"rekindle.dev/quarantined-by": None}}}
        await sim.cluster.client(CONTROLLER).patch(NODES, sim.incidents()[0].spec.node, body)

    assert found_in_repair(act).rules.count(GivenBackValidated) == 2, "nor is it as it was"


def test_more_nodes_under_repair_than_the_limit_are_seen() -> None:
    async def act(sim: Simulation, repaired: str) -> None:
        for number in (1, 2):
            working = {"repair": {"phase": "Validating"}}
            await incident(sim, f"copy-{number}", {"fault": "driver", "node": f"n{number}"}, working)

    found = found_in_repair(act)
    assert FewAtOnce in found.rules
    assert "2" in found.said[found.rules.index(FewAtOnce)]


# --- the Job of a step ------------------------------------------------------------------------------------


def of_step(name: str) -> Write:
    """Returns the write by which the controller creates this Job for the Incident i."""
    return written(JOBS, step_job("i", name), of_repair=True)


def with_incident(*steps: str) -> Facts:
    """Returns the facts of a cluster with an Incident whose node n1 is not quarantined."""
    laid = facts()
    laid.store.create(NODES, {"metadata": {"name": "n1"}})
    laid.store.create(INCIDENTS, made(INCIDENTS, "i", {"node": "n1"}))
    repair = {"phase": "Resetting", "steps": [{"job": step} for step in steps]}
    laid.store.patch(INCIDENTS, "i", {"status": {"repair": repair}}, subresource="status")
    return laid


def test_a_step_that_is_made_twice_is_caught() -> None:
    check = StepsAreWrittenFirst(with_incident("repair-1-reset-1"))

    assert found_by(check, of_step("repair-1-reset-1")) == []
    (said,) = found_by(check, of_step("repair-1-reset-1"))
    assert "repair-1-reset-1" in said


def test_a_step_of_no_incident_is_caught() -> None:
    (said,) = found_by(StepsAreWrittenFirst(facts()), of_step("repair-1-reset-1"))

    assert "repair-1-reset-1" in said


@pytest.mark.parametrize(("name", "is_caught"), [("repair-1-reboot-1", True), ("repair-1-validate-1", False)])
def test_a_step_beside_one_that_runs_is_caught_unless_it_only_looks(name: str, is_caught: bool) -> None:
    laid = with_incident("repair-1-reset-1", name)
    laid.store.create(NAMESPACES, {"metadata": {"name": "rekindle-system"}})
    running = step_job("i", "repair-1-reset-1")
    laid.store.create(JOBS, running, "rekindle-system")

    found = found_by(StepsAreWrittenFirst(laid), of_step(name))
    assert [name in said and "repair-1-reset-1" in said for said in found] == [True] * is_caught


@pytest.mark.parametrize(("name", "is_caught"), [("repair-1-reset-1", True), ("repair-1-validate-1", False)])
def test_a_step_on_a_node_in_service_is_caught_unless_it_only_looks(name: str, is_caught: bool) -> None:
    assert len(found_by(StepsHarmNobody(with_incident(name)), of_step(name))) == is_caught
