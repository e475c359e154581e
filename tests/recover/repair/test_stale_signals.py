"""Another controller, for example node-problem-detector, reports a fault that people have mapped to `fatal`.
After a reboot its condition stays on the Node until that controller runs again."""

from __future__ import annotations

from datetime import timedelta

from detectors.wire.contract import Fault, Severity
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase
from recover.model import NodeSignal, SignalKind
from recover.model.modes import Mode
from tests.builders import Worlds, cluster
from tests.recover.repair.scene import GOOD, Scene, says


def reports(world: Worlds) -> Worlds:
    since = world.now - timedelta(seconds=90)
    told = NodeSignal(
        SignalKind.CONDITION, "GpuHung", "True", "a detector", Severity.FATAL, Fault.DRIVER, since=since
    )
    return world.change_node("n1", signals=(told,))


def checked_after_the_reboot() -> Scene:
    """Returns a scene in which the checks after the reboot have passed, and the condition is still there."""
    scene = Scene(reports(cluster(40, mode=Mode.REPAIR)))
    scene.triage()
    scene.settle()
    assert scene.repair.phase is RepairPhase.REBOOTING
    scene.later(120).node_boots().settle()
    scene.later(10).job_ends(says=GOOD).settle()
    return scene


def test_a_signal_from_before_the_reboot_is_awaited_until_its_controller_withdraws_it() -> None:
    scene = checked_after_the_reboot()
    assert says(scene) == (RepairPhase.VALIDATING, "")

    scene.later(60).world.change_node("n1", signals=())
    scene.settle()

    assert scene.repair.phase is RepairPhase.RETURNED
    assert scene.world.nodes["n1"].quarantine is None


def test_a_signal_that_stays_keeps_the_node_out_and_is_named() -> None:
    scene = checked_after_the_reboot()

    scene.later(scene.world.settings.repair.validate_deadline_s).settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.VALIDATION_FAILED)
    assert "still reports condition-GpuHung" in scene.repair.message


def test_a_signal_that_begins_after_the_reboot_fails_the_validation_at_once() -> None:
    scene = Scene(reports(cluster(40, mode=Mode.REPAIR)))
    scene.triage()
    scene.settle()
    scene.world.change_node("n1", signals=())
    scene.later(120).node_boots().settle()

    reports(scene.later(120).world)
    scene.job_ends(says=GOOD).settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.VALIDATION_FAILED)
