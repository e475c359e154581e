"""Tests what people may do at any moment of a repair, and how a mode is raised or lowered during a repair."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Remedy
from detectors.wire.resource import Resource
from recover.api import IncidentPhase, Outcome
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase, StepOutcome
from recover.k8s.kinds import INCIDENTS, NODES
from recover.model import Node
from recover.model.modes import Mode
from recover.model.pause import Pause
from tests.acting import only_recovery
from tests.builders import BOOT, NOW, gang
from tests.recover.repair.scene import GOOD, Scene, broken, rebooting, says


def at(moment: str) -> Scene:
    """Returns a repair that has reached this moment."""
    if moment == "waiting":
        scene = broken(remedy=Remedy.REBOOT_NODE).bystander()
        scene.settle()
        return scene
    if moment == "before its Job":
        scene = broken()
        scene.settle()
        assert scene.world.repair_jobs == {}
        return scene
    scene = rebooting()
    if moment == "validating":
        scene.node_boots().settle()
    return scene


@pytest.mark.parametrize("moment", ["waiting", "before its Job", "rebooting", "validating"])
def test_a_person_who_uncordons_the_node_ends_its_repair(moment: str) -> None:
    scene = at(moment)
    scene.world.change_node("n1", unschedulable=False)

    scene.settle()
    scene.triage()
    scene.settle()
    scene.triage()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.RELEASED_BY_PERSON)
    assert scene.world.repair_jobs == {}, "what still ran is taken back"
    assert scene.world.nodes["n1"].quarantine is None
    assert scene.incident.status.phase is IncidentPhase.CLOSED


@pytest.mark.parametrize("moment", ["waiting", "before its Job", "rebooting", "validating"])
def test_a_hold_freezes_the_repair_and_its_end_lets_it_go_on(moment: str) -> None:
    scene = at(moment)
    scene.annotates(hold="true")
    scene.settle()
    jobs = set(scene.world.repair_jobs)

    if moment == "rebooting":
        scene.node_boots()
    if moment == "validating":
        scene.job_ends(says=GOOD)
    scene.settle()

    assert set(scene.world.repair_jobs) <= jobs, "nothing new is begun"
    assert scene.world.nodes["n1"].quarantine is not None
    assert scene.repair.reason == Reason.HELD
    scene.annotates().bystander_leaves().settle()
    if scene.repair.phase is not RepairPhase.RETURNED:
        scene.repaired()
    assert scene.repair.phase is RepairPhase.RETURNED


@pytest.mark.parametrize("moment", ["waiting", "before its Job", "rebooting", "validating"])
def test_a_pause_lets_the_step_under_way_end_and_begins_no_other_until_the_resume(moment: str) -> None:
    scene = at(moment)
    scene.world.paused = Pause(since=NOW)
    scene.settle()
    jobs = set(scene.world.repair_jobs)

    if moment == "rebooting":
        scene.node_boots()
    if moment == "validating":
        scene.job_ends(says=GOOD)
    scene.settle()

    assert set(scene.world.repair_jobs) <= jobs, "nothing new is begun"
    assert scene.world.nodes["n1"].quarantine is not None
    assert scene.repair.reason == Reason.PAUSED
    scene.world.paused, scene.world.resumed = None, scene.world.now
    scene.bystander_leaves().settle()
    if scene.repair.phase is not RepairPhase.RETURNED:
        scene.repaired()
    assert scene.repair.phase is RepairPhase.RETURNED


def test_no_repair_begins_and_no_repaired_node_returns_in_a_pause() -> None:
    scene = broken()
    scene.world.paused = Pause(since=NOW)
    scene.settle()
    assert scene.incident.status.repair is None
    assert [(r.outcome, r.reason) for r in scene.incident.status.actions if r.action == "repair-node"] == [
        (Outcome.WOULD, Reason.PAUSED)
    ]

    scene.world.paused, scene.world.resumed = None, scene.world.now
    scene.repaired()
    assert scene.world.nodes["n1"].quarantine is None


def test_a_node_that_people_manage_themselves_is_not_repaired() -> None:
    scene = broken()
    scene.world.change_node("n1", labels={"rekindle.dev/managed": "false"})

    scene.settle()

    assert says(scene) == (RepairPhase.WAITING, Reason.HELD)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOVER])
def test_a_lower_mode_lets_the_step_under_way_end_and_begins_no_other(mode: Mode) -> None:
    scene = rebooting().allows(mode)

    scene.settle()
    assert scene.repair.phase is RepairPhase.REBOOTING
    scene.node_boots().settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.NOT_IN_REPAIR_MODE)
    assert scene.repair.steps[0].outcome is StepOutcome.DONE
    assert scene.world.nodes["n1"].quarantine is not None
    assert mode in scene.repair.message


def test_a_cordon_of_a_person_from_before_stays_after_the_return() -> None:
    scene = broken()
    note = scene.world.nodes["n1"].quarantine
    assert note is not None
    scene.world.change_node("n1", quarantine=msgspec.structs.replace(note, cordoned=False))

    scene.repaired()

    assert scene.world.nodes["n1"].quarantine is None
    assert scene.world.nodes["n1"].unschedulable


def test_a_node_that_is_deleted_ends_its_repair() -> None:
    scene = rebooting()
    scene.world.without_node("n1")

    scene.settle()
    scene.triage()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.NODE_GONE)
    assert scene.incident.status.phase is IncidentPhase.CLOSED
    assert scene.world.repair_jobs == {}


def joins_again(scene: Scene) -> None:
    """Lets the kubelet create the deleted Node again, in the same boot."""
    before = scene.world.nodes.get("n1")
    uid = f"{before.uid if before is not None else 'n1'}-again"
    scene.world.nodes["n1"] = Node(name="n1", uid=uid, version="9", boot_id=BOOT, created=scene.world.now)
    scene.world.gone_nodes.discard("n1")


def test_a_node_that_is_deleted_and_joins_again_between_two_looks_gets_a_repair_of_its_own() -> None:
    """No person has ended its quarantine, and its GPU is as broken as before."""
    scene = rebooting().later(60)
    first = scene.incident.metadata.name
    joins_again(scene)

    scene.settle()
    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.NODE_GONE)
    scene.triage()
    scene.settle()

    note = scene.world.nodes["n1"].quarantine
    assert note is not None
    assert note.incident != first
    assert scene.world.incidents[first].status.phase is IncidentPhase.CLOSED
    own = scene.world.incidents[note.incident].status.repair
    assert own is not None
    assert own.active


@pytest.mark.parametrize("moment", ["waiting", "before its Job", "rebooting", "validating"])
@pytest.mark.parametrize("hold", ["", "true"])
def test_a_note_that_somebody_removes_beside_the_taint_is_written_again(moment: str, hold: str) -> None:
    """Otherwise the repaired node stays cordoned and tainted, and nothing says how to end that."""
    scene = at(moment)
    before = scene.world.nodes["n1"].quarantine
    assert before is not None
    if hold:
        scene.annotates(hold=hold)
    scene.world.change_node("n1", quarantine=None)

    scene.settle()
    if hold:
        assert scene.world.nodes["n1"].quarantine is None
        scene.annotates()
        scene.settle()

    after = scene.world.nodes["n1"].quarantine
    assert after is not None
    assert (after.incident, after.cordoned) == (before.incident, True)
    assert says(scene)[0] is not RepairPhase.HANDED_OVER


def test_a_person_who_removes_the_note_of_the_quarantine_ends_the_repair() -> None:
    """Rekindle must not reboot a node that a person has returned to service."""
    scene = rebooting().later(60)
    scene.world.change_node("n1", quarantine=None, taints=(), unschedulable=False, created=NOW)

    scene.settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.RELEASED_BY_PERSON)


def test_a_node_that_joins_again_while_its_gang_still_recovers_gets_a_repair_of_its_own() -> None:
    """The Recovery keeps the Incident of the deleted node open."""
    scene = rebooting()
    scene.world.running(gang(ranks=4))
    scene.triage()
    assert only_recovery(scene.world).active
    first = scene.incident.metadata.name
    scene.world.without_node("n1")
    scene.settle()
    scene.later(60).triage()
    assert scene.world.incidents[first].status.phase is IncidentPhase.OPEN

    joins_again(scene.later(60))
    scene.triage()
    scene.settle()

    note = scene.world.nodes["n1"].quarantine
    assert note is not None
    own = scene.world.incidents[note.incident].status.repair
    assert own is not None
    assert own.active


@pytest.mark.parametrize("what", [NODES, INCIDENTS])
def test_an_object_that_only_cannot_be_read_ends_no_repair(what: Resource) -> None:
    """A newer release may have written the object."""
    scene = rebooting()
    step, name = scene.repair.step, scene.incident.metadata.name
    assert step is not None
    if what == NODES:
        hidden = {"n1": scene.world.nodes.pop("n1")}
        scene.world.unread[what] = set(hidden)
        assert scene.settle() == []
        scene.world.nodes |= hidden
    else:
        hidden_one = scene.world.incidents.pop(name)
        scene.world.unread[what] = {name}
        assert scene.settle() == []
        scene.world.incidents[name] = hidden_one

    scene.node_boots().settle()

    assert scene.repair.phase is RepairPhase.VALIDATING


def test_what_was_seen_before_repair_mode_began_is_not_repaired_and_the_incident_says_so() -> None:
    scene = broken().later(10)
    scene.world.mode_since = scene.world.now

    scene.settle()

    (refused,) = [r for r in scene.incident.status.actions if r.action == "repair-node"]
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, Reason.STALE_EVIDENCE)
    assert scene.incident.status.repair is None
    assert scene.settle() == [], "it is said once"


def test_the_same_incident_is_repaired_once_the_fault_shows_again_after_the_promotion() -> None:
    scene = broken().later(10)
    scene.world.mode_since = scene.world.now
    scene.settle()

    scene.later(90).world.finding(on="n1", remedy=Remedy.RESET_DEVICE)
    scene.triage()
    scene.settle()

    assert scene.repair.phase is RepairPhase.RESETTING
    refused = [r for r in scene.incident.status.actions if r.action == "repair-node"]
    assert refused == [], "nothing says any more that it is not repaired"
