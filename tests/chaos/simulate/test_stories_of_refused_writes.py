"""The API server refuses one write, because of an admission policy, a webhook or a quota. Every other write
for the same fault is made, and the Incident reports the refused write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.apiserver.disturbance import StandingRefusal
from chaos.cluster.containers import Exit
from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job, Storage
from chaos.simulated.setup import Setup
from detectors.client.kubeapi import ApiError
from recover.api import Act, ActionRecord, Outcome, Phase
from recover.api.reasons import Reason
from recover.k8s.kinds import CONFIGMAPS, NODES, RECOVERIES
from tests.chaos.simulate.telling import nodes_of

DENIED = 'admission webhook "nodes.example.com" denied the request'


def records(sim: Simulation, action: str) -> list[ActionRecord]:
    return [r for i in sim.incidents() for r in i.status.actions if r.action == action]


@pytest.mark.parametrize("status", [403, 500])
def test_a_gang_is_restarted_although_its_broken_node_cannot_be_written(status: int) -> None:
    """This happens if a policy forbids the write, or an admission webhook for nodes is down."""
    refused: list[ActionRecord] = []
    tries = 0

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2))
        await sim.passes(65)
        real = sim.client.patch

        async def patch(resource: Any, name: str, *args: Any, **kwargs: Any) -> bytes:
            nonlocal tries
            if resource == NODES:
                tries += 1
                raise ApiError(status, "Forbidden", DENIED)
            return await real(resource, name, *args, **kwargs)

        sim.client.patch = patch  # type: ignore[method-assign]
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=300)
        assert "n2" not in nodes_of(sim)
        await sim.passes(600)
        refused.extend(records(sim, Act.QUARANTINE_NODE))
        assert [i.status.cordoned_at for i in sim.incidents()] == [None], "it counts in no budget"
        sim.client.patch = real  # type: ignore[method-assign]
        await sim.until(lambda: sim.cordoned() == ["n2"], within_s=30)
        await sim.passes(5)
        assert [r.outcome for r in records(sim, Act.QUARANTINE_NODE)] == [Outcome.DONE]

    play(story)
    (record,) = refused
    assert (record.target, record.outcome, record.reason) == ("n2", Outcome.REFUSED, Reason.WRITE_REFUSED)
    assert DENIED in record.message
    assert tries < 4 * 70, "a try every 10 s, of up to four requests each"


def test_a_gang_is_restarted_although_the_recovery_of_another_one_on_its_node_is_refused() -> None:
    """This happens in a namespace that is being deleted, or with a quota on the number of Recoveries."""
    said: list[ActionRecord] = []

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(name="aaa", ranks=2))
        await sim.submit(Job(name="llm", ranks=2))
        await sim.passes(65)
        real = sim.client.create

        async def create(resource: Any, body: Any, *args: Any, **kwargs: Any) -> bytes:
            if resource == RECOVERIES and "aaa" in body["metadata"]["name"]:
                raise ApiError(403, "Forbidden", "exceeded quota: recoveries")
            return await real(resource, body, *args, **kwargs)

        sim.client.create = create  # type: ignore[method-assign]
        sim.kernel(min(nodes_of(sim, "aaa") & nodes_of(sim, "llm")), lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: bool(sim.recoveries("llm")), within_s=120)
        await sim.passes(600)
        said.extend(records(sim, Act.RESTART_GANG))
        sim.client.create = real  # type: ignore[method-assign]
        await sim.until(lambda: bool(sim.recoveries("aaa")), within_s=30)
        await sim.passes(5)
        assert {r.outcome for r in records(sim, Act.RESTART_GANG)} == {Outcome.DONE}

    play(story, Setup(nodes=2, gpus_per_node=2))
    outcomes = {r.target.rpartition("/")[2]: (r.outcome, r.reason) for r in said}
    assert outcomes == {"aaa": (Outcome.REFUSED, Reason.WRITE_REFUSED), "llm": (Outcome.DONE, "")}
    assert any("quota: recoveries" in r.message for r in said)


def test_a_write_that_a_webhook_keeps_waiting_delays_no_other_gang() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(name="aaa", ranks=2))
        await sim.submit(Job(name="llm", ranks=2))
        await sim.passes(65)
        slow = min(nodes_of(sim, "aaa") - nodes_of(sim, "llm"))
        real, waits = sim.client.patch, 0

        async def patch(resource: Any, name: str, *args: Any, **kwargs: Any) -> bytes:
            nonlocal waits
            if (resource, name) == (NODES, slow):
                waits += 1
                await asyncio.sleep(120)
            return await real(resource, name, *args, **kwargs)

        sim.client.patch = patch  # type: ignore[method-assign]
        sim.kernel(slow, lines.FALLEN_OFF_THE_BUS)
        await sim.passes(5)
        other = min(nodes_of(sim, "llm") - nodes_of(sim, "aaa"))
        sim.kernel(other, lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.cordoned() == [other] and bool(sim.recoveries("llm")), within_s=20)
        assert waits == 1
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED, "llm"), within_s=600)
        await sim.until(lambda: sorted(sim.cordoned()) == sorted([slow, other]), within_s=300)

    play(story, Setup(nodes=40))


def test_a_checkpoint_that_a_policy_keeps_in_the_environment_is_removed_once_the_policy_is_gone() -> None:
    """Otherwise a container that its framework starts weeks later resumes from that checkpoint."""

    def told(sim: Simulation) -> str:
        read = sim.cluster.store.read(CONFIGMAPS, "llm-rekindle-pytorchjob", "ml").body
        return str(read.get("data", {}).get("REKINDLE_RESUME_STEP", ""))

    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2, scanned=True, storage=Storage.CLAIM))
        await sim.until(lambda: sim.gangs["llm"].step > 12, within_s=200)
        sim.crash_rank(1, Exit(1))
        await sim.until(lambda: sim.recovery_is(Phase.VERIFYING), within_s=300)
        refusal = StandingRefusal(why=DENIED, verb="patch", resource=CONFIGMAPS)
        sim.client.disturbance.standing.append(refusal)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=600)
        await sim.passes(60)
        assert told(sim) == "10"
        sim.client.disturbance.standing.clear()
        await sim.until(lambda: not told(sim), within_s=660, every_s=10)
        await sim.passes(60)
        assert sim.writes()[-1] == "patch configmaps/llm-rekindle-pytorchjob"

    play(story, Setup(nodes=3))
