"""Random scripts in virtual time, and the checks themselves: each must be able to fail."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from chaos.cluster.kinds import Object
from chaos.simulate import lines
from chaos.simulate.drawing import run_seed
from chaos.simulate.jobs import Job, Kind, Storage
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.reading import is_ready
from chaos.simulate.world import CONTROLLER, Setup, Simulation
from detectors.kubeapi import Resource
from recover.api import Phase
from recover.modes import Mode
from recover.objects import body
from recover.resources import NODES, PODS, PYTORCHJOBS, RECOVERIES
from recover.settings import Settings
from tests.chaos.seeds import asked_or
from tests.rights import not_granted

SEEDS = range(8, 48)
"""Of every kind of cluster; more of them by `REKINDLE_SEEDS=1000-2000`, or `rekindle chaos simulate`."""


@pytest.mark.parametrize("seed", asked_or(SEEDS))
def test_no_script_of_faults_breaks_an_invariant_and_every_run_comes_to_rest(seed: int) -> None:
    sim = run_seed(seed)
    writes = [audit for audit in sim.cluster.store.audit if audit.user == CONTROLLER]
    assert not {right for audit in writes if (right := not_granted(audit))}


def test_the_same_seed_makes_the_same_run_byte_for_byte_in_any_process() -> None:
    program = (
        "import hashlib; from chaos.simulate.drawing import run_seed; "
        "print(hashlib.sha256(run_seed(3).log()).hexdigest())"
    )

    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert digest("1") == digest("2") != ""


# --- the checks see what they are for ---------------------------------------------------------------------

Misdeed = Callable[[Simulation], Awaitable[Any]]
MARKED = '{"recovery": "%s", "attempt": %d, "did": "%s"}'


async def recovered(sim: Simulation, **job: Any) -> str:
    """A gang that was stopped and resumed once. Returns the recovery's name."""
    await sim.submit(Job(**job))
    await sim.passes(65)
    sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
    await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=60)
    return sim.recovery().metadata.name


def caught(sim: Simulation) -> list[str]:
    """Takes the violations away, so that the run itself is judged by the test alone."""
    found = [violation.partition(": ")[2] for violation in sim.invariants.violations]
    sim.invariants.violations.clear()
    return found


def misdeed(act: Misdeed, setup: Setup | None = None, **job: Any) -> str:
    """What is said of a write in the controller's name, after a recovery."""
    said: list[str] = []

    async def story(sim: Simulation) -> None:
        await recovered(sim, **job)
        sim.kill_controller()
        assert caught(sim) == []
        await act(sim)
        said.extend(caught(sim))

    play(story, setup)
    return "; ".join(said)


def as_seen(sim: Simulation, resource: Resource, name: str, body: Object, namespace: str = "") -> Object:
    """The patch for the version that is there."""
    version = sim.cluster.store.read(resource, name, namespace).body["metadata"]["resourceVersion"]
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}


async def on_node(sim: Simulation, node: str, body: Object) -> None:
    await sim.cluster.client(CONTROLLER).patch(NODES, node, as_seen(sim, NODES, node, body))


async def on_job(sim: Simulation, body: Object) -> None:
    seen = as_seen(sim, PYTORCHJOBS, "llm", body, "ml")
    await sim.cluster.client(CONTROLLER).patch(PYTORCHJOBS, "llm", seen, namespace="ml")


def quarantine(**note: Any) -> Object:
    annotation = {"incident": "i", "fault": "nvlink", "at": "2026-11-21T09:00:00Z", "cordoned": True, **note}
    return {
        "metadata": {
            "annotations": {"rekindle.dev/quarantined-by": msgspec.json.encode(annotation).decode()}
        },
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "rekindle.dev/unhealthy", "value": "nvlink", "effect": "NoSchedule"}],
        },
    }


def stop(recovery: str, attempt: int, did: str, *, suspend: bool) -> Object:
    return {
        "metadata": {"annotations": {"rekindle.dev/recovery": MARKED % (recovery, attempt, did)}},
        "spec": {"runPolicy": {"suspend": suspend}},
    }


def test_a_write_that_names_no_version_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        name = sim.recovery().metadata.name
        body = {"status": {"message": "what somebody else wrote meanwhile is lost"}}
        await sim.client.patch(RECOVERIES, name, body, namespace="ml", subresource="status")

    assert misdeed(act) == "the write names no version of what it changes"


def test_a_cordon_without_evidence_is_caught() -> None:
    assert "without hardware evidence" in misdeed(lambda sim: on_node(sim, "n3", quarantine()))


def lifted(instead_of: str) -> Object:
    kept = {"at": "2026-11-21T09:00:00Z", "laid": True, "node": instead_of}
    notes = {"spare-for": "i", "spare-kept": msgspec.json.encode(kept).decode()}
    annotations = {f"rekindle.dev/{name}": value for name, value in notes.items()}
    return {"metadata": {"annotations": annotations}, "spec": {"taints": None}}


async def in_reserve(sim: Simulation, node: str) -> None:
    await sim.person.label_spare(node, is_spare=True)
    await sim.person.taint_spare(node, is_spare=True)


def test_a_spare_that_is_let_in_for_a_node_in_service_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await in_reserve(sim, "n5")
        await on_node(sim, "n5", lifted("n4"))

    assert misdeed(act) == "n5 was let in for n4, which is not out"


def test_a_second_spare_for_one_node_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        for node in ("n4", "n5"):
            await in_reserve(sim, node)
            await on_node(sim, node, lifted("n2"))

    assert misdeed(act) == "n5 and n4 both stand in for n2"


def test_a_node_that_is_let_in_though_it_was_no_spare_is_caught() -> None:
    said = misdeed(lambda sim: on_node(sim, "n5", lifted("n2")))

    assert said == "n5 was let in without having been a spare in reserve"


def test_a_cordon_for_a_line_that_a_tenant_provokes_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.MMU_FAULT)
        await on_node(sim, "n3", quarantine())

    assert "without hardware evidence" in misdeed(act)


def test_a_cordon_for_what_was_before_the_boot_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.NVLINK_ERROR)
        await sim.crash_node("n3")
        await sim.boot_node("n3")
        await on_node(sim, "n3", quarantine())

    assert "without hardware evidence of this boot" in misdeed(act)


def test_a_second_quarantine_beyond_the_budget_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.FALLEN_OFF_THE_BUS)
        await on_node(sim, "n3", quarantine())

    assert misdeed(act) == "2 of 6 nodes are quarantined, the limit is 1"


def test_a_foreign_taint_that_goes_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_node("n3", {"spec": {"taints": [{"key": "a.b/c", "effect": "NoSchedule"}]}})
        await on_node(sim, "n3", {"spec": {"taints": None}})

    assert "foreign taints changed" in misdeed(act)


def test_a_foreign_label_that_changes_is_caught() -> None:
    assert "foreign labels changed" in misdeed(
        lambda sim: on_node(sim, "n3", {"metadata": {"labels": {"zone": "b"}}})
    )


def test_a_persons_cordon_that_is_undone_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.cordon("n3")
        await on_node(sim, "n3", {"spec": {"unschedulable": None}})

    assert "a cordon that is not ours was undone" in misdeed(act)


def test_a_second_stop_of_one_attempt_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await on_job(sim, stop(sim.recovery().metadata.name, 1, "stopped", suspend=True))

    said = misdeed(act)
    assert "stopped the gang twice" in said
    assert "which is Succeeded" in said


def test_a_resume_over_living_pods_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.suspend("llm", True)
        await on_job(sim, stop(sim.recovery().metadata.name, 2, "resumed", suspend=False))

    assert "old pod(s) still run" in misdeed(act)


@pytest.mark.parametrize("known_for_s", [1, 120])
def test_a_start_where_a_node_takes_pods_that_is_known_to_be_broken_is_caught(known_for_s: float) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.NVLINK_ERROR)
        await sim.person.suspend("llm", True)
        await sim.passes(known_for_s)
        await on_job(sim, stop(sim.recovery().metadata.name, 2, "resumed", suspend=False))

    said = "started where n3 takes its pods, which has shown xid-74"
    assert (said in misdeed(act)) is (known_for_s == 120)


def test_a_write_to_a_job_without_consent_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_job({"metadata": {"labels": {"rekindle.dev/auto-recovery": None}}})
        await on_job(sim, stop(sim.recovery().metadata.name, 2, "stopped", suspend=True))

    assert "did not opt in" in misdeed(act)


def test_a_stop_of_a_held_job_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/hold": "true"}}})
        await on_job(sim, stop(sim.recovery().metadata.name, 2, "stopped", suspend=True))

    assert "a held job was stopped" in misdeed(act)


def test_a_change_of_the_jobs_own_fields_is_caught() -> None:
    assert "more than suspend" in misdeed(
        lambda sim: on_job(sim, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ({}, "a job was deleted or created that is not to be made anew"),
        ({"rekindle.dev/on-terminal": "recreate"}, "whose definition no Recovery holds"),
    ],
)
def test_a_job_that_is_deleted_without_consent_or_definition_is_caught(
    word: dict[str, str], said: str
) -> None:
    async def act(sim: Simulation) -> None:
        await sim.cluster.client(CONTROLLER).delete(PYTORCHJOBS, "llm", namespace="ml")

    assert said in misdeed(act, annotations=word)


def test_two_active_recoveries_of_one_gang_are_caught() -> None:
    async def act(sim: Simulation) -> None:
        spec = sim.recovery().spec
        for name in ("a", "b"):
            twin = body(RECOVERIES, name, spec=spec)
            await sim.cluster.client(CONTROLLER).create(RECOVERIES, twin, "ml")

    assert misdeed(act) == "two active recoveries of one gang"


def test_a_pod_that_is_taken_from_a_living_node_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        pod = sim.pods()[0]["metadata"]
        await sim.cluster.client(CONTROLLER).delete(PODS, pod["name"], namespace="ml", grace_s=0)

    said = misdeed(act, storage=Storage.CLAIM)
    assert "whose gang is not being recovered" in said
    assert "while its containers ran" in said
    assert "without a proof that its node is off" in said


@pytest.mark.parametrize(("after_s", "is_caught"), [(10.0, True), (310.0, False)])
def test_a_pod_that_is_freed_soon_after_its_node_fell_silent_is_caught(
    after_s: float, is_caught: bool
) -> None:
    async def act(sim: Simulation) -> None:
        pod = sim.pods()[0]
        node = pod["spec"]["nodeName"]
        await sim.crash_node(node)
        await sim.until(lambda: not is_ready(sim.node(node)), within_s=120)
        await sim.passes(after_s)
        await sim.cluster.client(CONTROLLER).delete(PODS, pod["metadata"]["name"], namespace="ml", grace_s=0)

    assert ("after its node fell silent, of 300 s" in misdeed(act)) is is_caught


def test_an_agent_that_leaves_its_room_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.cluster.client("agent:n1").patch(NODES, "n1", {"spec": {"unschedulable": True}})

    assert misdeed(act) == "an agent may only write the status of its own NodeHealth"


def test_a_write_on_a_node_in_observe_mode_is_caught() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        await on_node(sim, "n3", {"metadata": {"annotations": {"rekindle.dev/note": "seen"}}})
        assert caught(sim) == ["a write on something that is not ours, in observe mode"]

    play(story, Setup(settings=Settings(mode=Mode.OBSERVE)))


def test_a_controller_that_never_stops_writing_is_caught() -> None:
    async def story(sim: Simulation) -> None:
        async def restless() -> None:
            for number in range(10_000):
                body = {"metadata": {"annotations": {"rekindle.dev/note": str(number)}}}
                await on_node(sim, "n3", body)
                await asyncio.sleep(60)

        noise = asyncio.create_task(restless())
        with pytest.raises(AssertionError, match="writes on and on"):
            await comes_to_rest(sim, within_s=7200)
        noise.cancel()

    play(story)


def test_a_gang_that_stands_still_without_a_word_is_caught() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(kind=Kind.JOB))
        gang.silent = True
        with pytest.raises(AssertionError, match="stands still"):
            await comes_to_rest(sim)

    play(story)
