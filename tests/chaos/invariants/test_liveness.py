"""At the end of a run no healthy gang waits, no broken node serves, and the controller is at rest."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest

from chaos.cluster.containers import Exit
from chaos.simulate.liveness import left_in_service, wrongly_waiting
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job, Kind, Storage
from chaos.simulated.setup import Setup
from recover.api import Phase
from recover.api.reasons import Reason
from recover.policy.settings import Budgets
from tests.chaos.invariants.misdeeds import WIDE, Misdeed, incident, on_node, on_recovery, stopped, taken_out


def at_the_end(act: Misdeed, setup: Setup | None = None, job: Job | None = None) -> tuple[str, list[str]]:
    """Returns what the checks report about the gang and the nodes at the end of a run without a
    controller."""
    found: list[Any] = []

    async def story(sim: Simulation) -> None:
        await sim.submit(job or Job(ranks=2))
        await sim.passes(65)
        sim.kill_controller()
        await act(sim)
        await sim.passes(120)
        found.extend([wrongly_waiting(sim, "llm"), list(left_in_service(sim))])

    play(story, setup)
    return found[0], found[1]


def crash(sim: Simulation) -> None:
    sim.crash_rank(1, Exit(1))


def test_a_dead_gang_beside_free_places_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        crash(sim)

    said, _ = at_the_end(act)

    assert said.startswith("llm ")
    assert re.findall(r"\b\d+\b", said)[:2] == ["6", "2"], "free places, and ranks"


@pytest.mark.parametrize("how", ["cordoned by a person", "broken", "off", "taken by others"])
def test_a_place_that_is_no_place_does_not_count(how: str) -> None:
    async def act(sim: Simulation) -> None:
        crash(sim)
        for node in ("n2", "n3"):
            if how == "cordoned by a person":
                await sim.person.cordon(node)
            elif how == "broken":
                sim.kernel(node, lines.FALLEN_OFF_THE_BUS)
            elif how == "off":
                await sim.crash_node(node)
        if how == "taken by others":
            await sim.submit(Job(name="other", ranks=1))
            await sim.passes(30)
            await sim.person.cordon("n2")

    said, _ = at_the_end(act, Setup(nodes=3))

    assert said == ""


def test_a_weak_sign_closes_no_place() -> None:
    async def act(sim: Simulation) -> None:
        crash(sim)
        for node in ("n1", "n2"):
            sim.kernel(node, lines.RETIRED_CODE)
            sim.kernel(node, lines.CONTAINED)

    said, _ = at_the_end(act, Setup(nodes=2))

    assert "n1, n2" in said


def test_a_pod_that_may_still_write_from_a_dead_node_keeps_its_gang_waiting_until_that_is_proven() -> None:
    async def act(sim: Simulation) -> None:
        await sim.crash_node("n2")

    async def fenced(sim: Simulation) -> None:
        await act(sim)
        await sim.person.out_of_service("n2")

    job = Job(ranks=2, storage=Storage.CLAIM)
    assert at_the_end(act, job=job)[0] == ""
    assert "llm" in at_the_end(fenced, job=job)[0]


def test_a_program_that_fails_again_and_again_may_be_left_as_it_is_and_one_that_does_not_may_not() -> None:
    said: list[str] = []

    async def act(sim: Simulation) -> None:
        crash(sim)
        await stopped(sim)
        for _ in range(3):  # the other rank may have made a step since the crash
            sim.gangs["llm"].record_failure()
        given_up = {"phase": "Escalated", "reason": "CrashLoop", "message": "again and again", "lastStep": 1}
        await on_recovery(sim, given_up)
        said.append(wrongly_waiting(sim, "llm"))
        sim.gangs["llm"].training.furthest += 1
        said.append(wrongly_waiting(sim, "llm"))

    at_the_end(act)
    assert said[0] == ""
    assert Phase.ESCALATED in said[1]
    assert Reason.CRASH_LOOP in said[1]


def test_a_broken_node_that_takes_pods_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n4", lines.FALLEN_OFF_THE_BUS)
        sim.kernel("n5", lines.CONTAINED)

    _, nodes = at_the_end(act)

    (said,) = nodes
    assert all(name in said for name in ("n4", lines.FALLEN_OFF_THE_BUS.text[:40], "09:01:05"))


def test_a_limit_that_is_reached_is_a_reason_to_leave_a_broken_node_as_it_is() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n4", lines.FALLEN_OFF_THE_BUS)
        await taken_out(sim, "n5")
        sim.invariants.violations.clear()

    async def named(sim: Simulation) -> None:
        await act(sim)
        await incident(sim, "many", {"fault": "device-lost"}, {"members": ["n4"]})

    setup = Setup(settings=msgspec.structs.replace(WIDE, budgets=Budgets(quarantined_nodes_max=1)))
    assert at_the_end(named, setup)[1] == []
    (said,) = at_the_end(act, setup)[1]
    assert "n4" in said, "no open Incident names it"


@pytest.mark.parametrize("agents", ["all", "none"])
def test_nobody_is_asked_to_take_out_what_nobody_could_see(agents: str) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n4", lines.FALLEN_OFF_THE_BUS)

    without = () if agents == "all" else ("n4",)
    assert bool(at_the_end(act, Setup(without_agent=without))[1]) is (agents == "all")


def test_a_controller_that_never_stops_writing_is_caught() -> None:
    async def story(sim: Simulation) -> None:
        async def restless() -> None:
            for number in range(10_000):
                body = {"metadata": {"annotations": {"rekindle.dev/note": str(number)}}}
                await on_node(sim, "n3", body)
                await asyncio.sleep(60)

        noise = asyncio.create_task(restless())
        with pytest.raises(AssertionError, match="n3"):
            await comes_to_rest(sim, within_s=7200)
        noise.cancel()

    play(story)


def test_a_gang_that_stands_still_without_a_word_is_caught() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(kind=Kind.JOB))
        gang.silent = True
        with pytest.raises(AssertionError, match="llm"):
            await comes_to_rest(sim)

    play(story)
