"""Tests recover/cli/undo_command.py against a served API, and the controller's reaction to its changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from chaos.apiserver.store import MemoryCluster
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.people import PERSON
from chaos.simulated.setup import Setup
from detectors.wire.contract import Fault, NodeHealth
from recover.api import Incident, Phase, Recovery
from recover.cli.undo_command import undo
from recover.cli.undo_of_incident import TakenBack, taken_back
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES, RECOVERIES
from recover.model import Quarantine, decode
from tests.facts import missing

THEIRS = {"key": "example.com/theirs", "value": "x", "effect": "NoSchedule"}


@pytest.fixture
def incident(store: MemoryCluster) -> str:
    """Returns the name of the open Incident, for which its node is cordoned and tainted."""
    (found,) = store.objects(INCIDENTS)
    name = str(found["metadata"]["name"])
    quarantine(store, "node-3", name, cordoned=True)
    return name


def quarantine(store: MemoryCluster, node: str, incident: str, *, cordoned: bool) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    note = Quarantine(incident=incident, fault=Fault.DEVICE_LOST, at=at, cordoned=cordoned)
    annotations = {"rekindle.dev/quarantined-by": msgspec.json.encode(note).decode(), "theirs": "x"}
    taint = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}
    body = {
        "metadata": {"annotations": annotations, "labels": {"rekindle.dev/health": "faulted"}},
        "spec": {"unschedulable": True, "taints": [THEIRS, taint]},
    }
    store.patch(NODES, node, body)


def node(store: MemoryCluster, name: str = "node-3") -> Any:
    return store.read(NODES, name).body


def ended(store: MemoryCluster, phase: str) -> None:
    (recovery,) = store.objects(RECOVERIES)
    name = recovery["metadata"]["name"]
    store.patch(RECOVERIES, name, {"status": {"phase": phase}}, namespace="team", subresource="status")


def test_it_is_a_dry_run_first_and_then_takes_back_exactly_the_quarantine(
    incident: str, store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(store, "Succeeded")
    before = node(store)
    assert undo([incident, "--kubeconfig", kubeconfig]) == 0
    assert node(store) == before
    told = capsys.readouterr().out
    assert not missing(told, "node-3", "uncordoned", "(dry run)", f"rekindle undo {incident} --yes")
    assert undo([incident, "--yes", "--dry-run", "--kubeconfig", kubeconfig]) == 0
    assert node(store) == before

    assert undo([f"incident/{incident}", "--yes", "--kubeconfig", kubeconfig]) == 0
    after = node(store)
    assert after["spec"] == {"taints": [THEIRS]}
    notes = after["metadata"]["annotations"]
    assert notes.keys() - {"rekindle.dev/released-findings"} == {"theirs", "rekindle.dev/released-at"}
    assert "rekindle.dev/health" not in after["metadata"].get("labels", {})

    capsys.readouterr()
    assert undo([incident, "--yes", "--kubeconfig", kubeconfig]) == 0
    assert "Nothing that Rekindle did" in capsys.readouterr().out


def test_a_persons_cordon_and_the_quarantine_for_another_incident_stay(
    incident: str, store: MemoryCluster, kubeconfig: str
) -> None:
    ended(store, "Succeeded")
    quarantine(store, "node-3", incident, cordoned=False)
    quarantine(store, "node-4", "another-incident", cordoned=True)
    other = node(store, "node-4")

    assert undo([incident, "--yes", "--kubeconfig", kubeconfig]) == 0
    assert node(store)["spec"] == {"unschedulable": True, "taints": [THEIRS]}
    assert node(store, "node-4") == other


@pytest.mark.parametrize(("word", "holds"), [("true", True), ("false", False)])
def test_only_a_hold_that_is_in_force_is_said_to_stay(
    incident: str,
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    word: str,
    holds: bool,
) -> None:
    ended(store, "Succeeded")
    store.patch(NODES, "node-3", {"metadata": {"annotations": {"rekindle.dev/hold": word}}})

    assert undo([incident, "--kubeconfig", kubeconfig]) == 0

    assert ("the hold stays" in capsys.readouterr().out) == holds


def test_nothing_is_changed_while_a_recovery_or_a_repair_is_under_way(
    incident: str, store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = node(store)
    ended(store, "Choosing")
    assert undo([incident, "--yes", "--kubeconfig", kubeconfig]) == 1
    told = capsys.readouterr().err
    assert not missing(told, "nothing is changed", "Choosing", "rekindle why -n team job/llm")

    ended(store, "Succeeded")
    phases = [{"phase": "Rebooting", "at": "2026-01-01T00:00:00Z"}]
    repair = {"phase": "Rebooting", "phases": phases}
    store.patch(INCIDENTS, incident, {"status": {"repair": repair}}, subresource="status")
    assert undo([incident, "--yes", "--kubeconfig", kubeconfig]) == 1
    assert "The repair of node-3 is under way (Rebooting)" in capsys.readouterr().err
    assert node(store) == before


def test_a_node_that_another_open_incident_keeps_out_is_not_released(
    incident: str, store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(store, "Succeeded")
    first = store.read(INCIDENTS, incident).body
    other = {"apiVersion": first["apiVersion"], "kind": "Incident", "metadata": {"name": "second"}}
    store.create(INCIDENTS, {**other, "spec": first["spec"]})
    before = node(store)

    assert undo([incident, "--yes", "--kubeconfig", kubeconfig]) == 1
    assert not missing(capsys.readouterr().err, "Incident second", "kubectl uncordon node-3")
    assert node(store) == before


def test_an_unknown_incident_is_named_with_the_nearest(
    incident: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert undo([incident[:-1], "--kubeconfig", kubeconfig]) == 3
    assert not missing(capsys.readouterr().err, incident[:-1], f"did you mean {incident}?")


def planned(sim: Simulation, name: str) -> TakenBack:
    store = sim.cluster.store
    nodes = [
        decode.node(store.read(NODES, n["metadata"]["name"]).raw, ("nvidia.com/gpu",))
        for n in store.objects(NODES)
    ]
    return taken_back(
        next(i for i in sim.incidents() if i.metadata.name == name),
        {one.name: one for one in nodes},
        {h["metadata"]["name"]: msgspec.convert(h, NodeHealth) for h in store.objects(NODEHEALTHS)},
        [msgspec.convert(i, Incident) for i in store.objects(INCIDENTS)],
        [msgspec.convert(r, Recovery) for r in store.objects(RECOVERIES)],
        sim.clock.now(),
    )


def test_what_is_undone_is_not_done_again_until_the_fault_is_shown_again_and_the_spare_returns() -> None:
    async def story(sim: Simulation) -> None:
        await sim.person.label_spare("n3", is_spare=True)
        await sim.passes(5)
        await sim.submit(Job(ranks=2, lingers_s=5.0))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(
            lambda: sim.recovery_is(Phase.CHOOSING) or sim.is_suspended(), within_s=60, every_s=0.01
        )
        await sim.until(lambda: bool(sim.incidents()), within_s=1, every_s=0.01)
        (incident,) = (i.metadata.name for i in sim.incidents())
        assert "is under way" in planned(sim, incident).obstacles[0]
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)

        plan = planned(sim, incident)
        assert plan.obstacles == ()
        assert [one.patch.name for one in plan.undos] == ["n2", "n3"]
        assert any("was restarted" in line for line in plan.stays)
        for one in plan.undos:
            metadata = {**one.patch.body["metadata"], "resourceVersion": one.patch.version}
            await sim.cluster.client(PERSON).patch(
                NODES, one.patch.name, {**one.patch.body, "metadata": metadata}
            )
        writes = len(sim.recoveries())
        await sim.passes(300)
        assert sim.cordoned() == []
        assert sim.tainted() == []
        assert len(sim.recoveries()) == writes
        notes = sim.node("n3")["metadata"]["annotations"]
        assert json.loads(notes["rekindle.dev/spare-kept"])["declined"] == incident

        sim.kernel("n2", lines.DOUBLE_BIT_ERROR)
        await sim.until(lambda: sim.cordoned() == ["n2"], within_s=60)
        await comes_to_rest(sim)

    play(story, Setup(nodes=3))
