"""A person deletes an Incident while its node is quarantined: only the annotation on the node is left, and
the deletion returns no node to service."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault, Remedy
from recover.api import IncidentPhase, Outcome
from recover.api.reasons import EventReason
from recover.api.repair_state import RepairPhase
from recover.k8s.kinds import INCIDENTS
from recover.model import Container, Pod, PodPhase
from recover.model.actions import Emit
from recover.model.modes import Mode
from recover.triage.plan import plan
from tests.recover.repair.scene import Scene, broken, rebooting


def told(scene: Scene) -> list[Emit]:
    """Runs triage once and applies its plan. Returns the Events of the plan."""
    found = plan(scene.world.world(), scene.world.settings, scene.world.now)
    scene.triage()
    return [a for a in found.actions if isinstance(a, Emit)]


def test_an_incident_that_only_cannot_be_read_is_not_made_anew() -> None:
    scene = deleted(broken())
    note = scene.world.nodes["n1"].quarantine
    assert note is not None
    scene.world.unread[INCIDENTS] = {note.incident}

    assert told(evidence_has_gone(scene)) == []
    assert scene.world.incidents == {}


def deleted(scene: Scene) -> Scene:
    """Deletes the Incident some minutes after the node was quarantined."""
    scene.later(180)
    del scene.world.incidents[scene.incident.metadata.name]
    return scene


def evidence_has_gone(scene: Scene) -> Scene:
    """Restarts the machine: its agent has no findings of this boot."""
    return scene.node_boots()


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("stands", [True, False], ids=["evidence stands", "evidence has gone"])
def test_a_deleted_incident_is_made_anew_under_its_name_and_its_node_stays_out(
    mode: Mode, stands: bool
) -> None:
    scene = broken()
    note = scene.world.nodes["n1"].quarantine
    assert note is not None
    if not stands:
        evidence_has_gone(scene)
    deleted(scene).allows(mode).triage()

    assert list(scene.world.incidents) == [note.incident]
    incident = scene.incident
    assert (incident.status.phase, incident.spec.node, incident.spec.fault) == (
        IncidentPhase.OPEN,
        "n1",
        Fault.DEVICE_RESET,
    )
    assert incident.status.blamed_node == "n1"
    assert incident.spec.detected_at <= note.at, "it is as old as it was"
    assert scene.world.nodes["n1"].quarantine == note
    done = {r.action: r for r in incident.status.actions if r.outcome is Outcome.DONE}
    assert "quarantine-node" in done
    assert "n1" in done["remake-incident"].message
    before = dict(scene.world.incidents)
    scene.triage()
    scene.triage()
    assert scene.world.incidents == before, "it is said once"


def test_a_deleted_incident_is_told_of_on_the_node_with_what_releases_it() -> None:
    for scene in (broken(), evidence_has_gone(broken())):
        name = scene.incident.metadata.name
        (event,) = [e for e in told(deleted(scene)) if e.reason == EventReason.INCIDENT_REMADE]

        assert event.warning
        assert event.regarding["name"] == "n1"
        assert name in event.message
        assert "kubectl uncordon n1" in event.message
        assert told(scene) == [], "once"


def test_evidence_that_stands_joins_the_incident_of_the_note_whatever_it_would_be_called_by_itself() -> None:
    scene = broken()
    name = scene.incident.metadata.name
    health = scene.world.health["n1"]
    others = [msgspec.structs.replace(f, id="another", sequence=9) for f in health.status.findings]
    status = msgspec.structs.replace(health.status, findings=others)
    scene.world.health["n1"] = msgspec.structs.replace(health, status=status)

    deleted(scene).triage()

    assert list(scene.world.incidents) == [name]
    assert scene.incident.status.evidence != []


def test_in_mode_repair_the_node_is_repaired_from_the_beginning_and_returns_only_validated() -> None:
    scene = evidence_has_gone(rebooting())
    scene.settle()
    assert scene.repair.phase is RepairPhase.VALIDATING

    deleted(scene).settle()
    assert scene.world.repair_jobs == {}, "no step is left running for nobody"
    assert scene.world.nodes["n1"].quarantine is not None
    scene.triage()
    scene.settle()

    assert scene.repair.phase is not RepairPhase.RETURNED
    scene.repaired()
    assert scene.repair.phase is RepairPhase.RETURNED
    assert scene.world.nodes["n1"].quarantine is None


def test_a_reset_waits_until_the_pod_of_the_reset_before_it_has_ended() -> None:
    scene = broken()
    scene.settle()
    scene.agent_lets_go().settle()
    (job,) = scene.world.repair_jobs.values()
    pod = Pod(
        "rekindle-system",
        f"{job.ref.name}-x",
        "old-uid",
        "1",
        job.ref.uid,
        "Job",
        "n1",
        PodPhase.RUNNING,
        labels=job.labels,
        containers=(Container(name="reset", running=True),),
    )
    scene.world.pods[job.ref.uid] = {pod.uid: pod}

    deleted(scene).settle()
    scene.triage()
    scene.settle()
    assert scene.repair.phase is RepairPhase.WAITING
    assert pod.name in scene.repair.message

    scene.world.pods.clear()
    scene.settle()
    assert scene.repair.phase is RepairPhase.RESETTING


def test_a_fault_that_is_a_persons_stays_a_persons() -> None:
    scene = broken(fault=Fault.THERMAL, remedy=Remedy.INSPECT)
    scene.settle()
    assert scene.repair.phase is RepairPhase.HANDED_OVER

    deleted(evidence_has_gone(scene)).triage()
    scene.settle()

    assert scene.repair.phase is RepairPhase.HANDED_OVER
    assert scene.world.nodes["n1"].quarantine is not None


def test_an_incident_whose_evidence_is_older_than_mode_repair_stays_so_when_it_is_made_anew() -> None:
    scene = evidence_has_gone(broken()).later(10)
    scene.world.mode_since = scene.world.now

    deleted(scene).triage()
    scene.settle()

    assert scene.incident.status.repair is None


def test_whoever_deletes_the_incident_and_uncordons_the_node_has_released_it() -> None:
    scene = rebooting()
    scene.world.change_node("n1", unschedulable=False)
    deleted(scene).settle()
    scene.triage()
    scene.triage()

    assert scene.world.nodes["n1"].quarantine is None
    assert not any(i.status.phase is IncidentPhase.OPEN for i in scene.world.incidents.values())
    assert scene.world.repair_jobs == {}


def test_a_note_whose_fault_nobody_knows_any_more_is_still_an_incident() -> None:
    scene = evidence_has_gone(broken())
    note = scene.world.nodes["n1"].quarantine
    assert note is not None
    scene.world.change_node("n1", quarantine=msgspec.structs.replace(note, fault="of-a-newer-release"))

    deleted(scene).triage()

    assert scene.incident.spec.fault is Fault.UNKNOWN
