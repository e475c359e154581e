"""Tests a node that has fallen silent: it may return by itself, and nothing runs on it that could repair
it."""

from __future__ import annotations

from recover.api import IncidentPhase
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase
from recover.model.modes import Mode
from tests.builders import cluster, gang
from tests.recover.repair.scene import GOOD, Scene, hooked, pending, says


def silent() -> Scene:
    """Returns a scene in which a node under a gang has fallen silent, without a quarantine by Rekindle."""
    world = cluster(40, mode=Mode.REPAIR).running(gang(ranks=4)).not_ready("n1")
    scene = Scene(world)
    scene.triage()
    return scene


def test_a_silent_node_may_come_back_by_itself() -> None:
    scene = hooked(silent())
    scene.settle()
    assert says(scene) == (RepairPhase.WAITING, Reason.NODE_SILENT)

    scene.later(60).node_boots().settle()

    assert scene.repair.phase is RepairPhase.RETURNED
    assert scene.repair.steps == [], "nobody has done anything to it"
    assert scene.world.nodes["n1"].quarantine is None


def test_a_node_that_stays_silent_is_taken_out_and_rebooted_from_outside() -> None:
    scene = hooked(silent())
    scene.world.pods.clear()  # Kubernetes has deleted the pods
    scene.settle()

    scene.later(scene.world.settings.repair.not_ready_s)
    wrote = scene.settle()

    assert wrote.index("quarantine-node") < wrote.index("ask-for-reboot")
    scene.node_boots().settle()
    scene.job_ends(says=GOOD).settle()
    assert scene.repair.phase is RepairPhase.RETURNED
    assert not scene.world.nodes["n1"].unschedulable


def test_a_silent_node_that_a_person_has_released_is_not_taken_out_again_by_the_repair_that_goes_on() -> None:
    """The controller may complete the release before the repair's next reconcile pass."""
    scene = hooked(silent())
    scene.settle()
    scene.later(scene.world.settings.repair.not_ready_s).settle()
    assert scene.repair.phase is RepairPhase.WAITING
    assert scene.world.nodes["n1"].quarantine is not None

    scene.world.change_node("n1", unschedulable=False)
    scene.later(5).triage()
    assert scene.world.nodes["n1"].quarantine is None
    scene.settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.RELEASED_BY_PERSON)
    assert scene.world.nodes["n1"].quarantine is None


def test_a_silent_node_that_was_taken_out_stays_out_when_somebody_deletes_its_incident() -> None:
    scene = hooked(silent())
    scene.world.pods.clear()
    scene.settle()
    scene.later(scene.world.settings.repair.not_ready_s).settle()
    name = scene.incident.metadata.name

    scene.later(120).world.incidents.clear()
    scene.triage()
    assert list(scene.world.incidents) == [name]
    assert scene.world.nodes["n1"].unschedulable

    scene.settle()
    assert scene.repair.phase is RepairPhase.REBOOTING, "only from outside: no Job can run there"
    scene.repaired()
    assert scene.repair.phase is RepairPhase.RETURNED


def test_a_degraded_node_that_falls_silent_takes_no_pods_after_its_reboot_before_its_checks() -> None:
    scene = hooked(pending())
    scene.world.not_ready("n1", ago_s=scene.world.settings.repair.not_ready_s).pods.clear()
    scene.settle()
    assert scene.repair.phase is RepairPhase.REBOOTING

    scene.node_boots().settle()

    assert scene.repair.phase is RepairPhase.VALIDATING
    assert [taint.effect for taint in scene.world.nodes["n1"].taints] == ["NoSchedule"]


def test_a_silence_from_before_a_persons_release_does_not_take_the_node_out_at_once() -> None:
    """The node was quarantined for another fault, and a person has ended that quarantine."""
    scene = hooked(pending())
    not_ready_s = scene.world.settings.repair.not_ready_s
    scene.world.not_ready("n1", ago_s=2 * not_ready_s)
    scene.triage()
    scene.world.change_node("n1", taints=())
    scene.triage()
    assert scene.world.nodes["n1"].quarantine is None

    scene.triage()
    scene.settle()
    assert scene.world.nodes["n1"].quarantine is None

    scene.later(not_ready_s).settle()
    assert scene.world.nodes["n1"].quarantine is not None


def test_where_nobody_outside_can_restart_it_a_person_is_called_to_a_silent_node() -> None:
    scene = silent()
    scene.settle()

    scene.later(scene.world.settings.repair.not_ready_s).settle()
    scene.world.gangs.clear()
    scene.triage()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.NODE_SILENT)
    assert "n1" in scene.repair.message
    assert scene.incident.status.phase is IncidentPhase.OPEN, "while it is silent a person must see it"
