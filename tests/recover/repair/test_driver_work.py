"""Another controller replaces the driver or changes the MIG layout of a node under repair. Its work and a
validation would each make the other fail, and a node that returned meanwhile would take pods in mid work."""

from __future__ import annotations

import pytest

from detectors.wire.contract import Remedy
from detectors.wire.step_report import ValidationReport
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase, StepOutcome
from tests.recover.repair.scene import GOOD, Scene, rebooting, report, says

MIG, UPGRADE = "nvidia.com/mig.config.state", "nvidia.com/gpu-driver-upgrade-state"
SETTLE_S = 120.0


def labelled(scene: Scene, label: str, state: str) -> Scene:
    now = scene.world.now
    scene.world.change_node("n1", labels={label: state}, labelled_at={label: now})
    return scene


@pytest.mark.parametrize(
    ("label", "under_way", "ended"),
    [(MIG, "pending", "success"), (UPGRADE, "pod-restart-required", "upgrade-done")],
)
def test_the_checks_wait_until_the_work_on_the_driver_is_over(label: str, under_way: str, ended: str) -> None:
    """NVIDIA's MIG manager applies the layout again after each boot."""
    scene = labelled(rebooting().later(120).node_boots(), label, under_way)

    scene.settle()
    assert says(scene) == (RepairPhase.REBOOTING, Reason.DRIVER_WORK)
    assert label in scene.repair.message
    labelled(scene.later(60), label, ended).settle()
    assert says(scene) == (RepairPhase.REBOOTING, Reason.DRIVER_WORK)
    scene.later(SETTLE_S + 1).settle()

    assert scene.repair.phase is RepairPhase.VALIDATING
    scene.job_ends(says=GOOD).settle()
    assert scene.repair.phase is RepairPhase.RETURNED


def validating() -> Scene:
    scene = rebooting().later(120).node_boots()
    scene.settle()
    assert scene.repair.phase is RepairPhase.VALIDATING
    return scene


@pytest.mark.parametrize("says_what", [report(devices="failed"), ""], ids=["a failed check", "no report"])
def test_checks_that_fail_while_somebody_works_on_the_driver_are_made_again_afterwards(
    says_what: ValidationReport | str,
) -> None:
    scene = labelled(validating(), UPGRADE, "pod-restart-required")

    scene.job_ends(good=False, says=says_what).settle()

    assert says(scene) == (RepairPhase.VALIDATING, Reason.DRIVER_WORK)
    assert scene.repair.steps[-1].outcome is StepOutcome.WITHDRAWN
    labelled(scene, UPGRADE, "upgrade-done").later(SETTLE_S + 1).settle()
    scene.job_ends(says=GOOD).settle()
    assert scene.repair.phase is RepairPhase.RETURNED


def test_checks_that_fail_without_such_work_count_as_ever() -> None:
    scene = labelled(validating(), UPGRADE, "upgrade-required")

    scene.job_ends(good=False, says=report(devices="failed")).settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.VALIDATION_FAILED)


def test_checks_that_pass_while_somebody_works_on_the_driver_are_made_again_with_the_new_driver() -> None:
    scene = labelled(validating(), UPGRADE, "pod-restart-required")

    scene.job_ends(says=GOOD).settle()

    assert says(scene) == (RepairPhase.VALIDATING, Reason.DRIVER_WORK)
    assert scene.world.nodes["n1"].unschedulable
    labelled(scene, UPGRADE, "upgrade-done").later(SETTLE_S + 1).settle()
    assert scene.repair.phase is RepairPhase.VALIDATING
    scene.job_ends(says=GOOD).settle()
    assert scene.repair.phase is RepairPhase.RETURNED


def test_a_validation_that_finds_no_time_during_the_work_is_made_again() -> None:
    scene = labelled(validating(), UPGRADE, "pod-restart-required")

    scene.later(3600).settle()

    assert says(scene) == (RepairPhase.VALIDATING, Reason.DRIVER_WORK)
    labelled(scene, UPGRADE, "upgrade-done").later(SETTLE_S + 1).settle()
    scene.job_ends(says=GOOD).settle()
    assert scene.repair.phase is RepairPhase.RETURNED


def test_work_that_begins_again_and_again_does_not_keep_a_node_under_repair_for_ever() -> None:
    """A driver that crashes in a loop changes the label of its node all the time."""
    scene = validating()
    for _ in range(40):
        labelled(scene.later(300), UPGRADE, "pod-restart-required").settle()
        if scene.repair.step is None:
            continue
        scene.job_ends(good=False, says=report(devices="failed")).settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.VALIDATION_FAILED)
    assert len(scene.repair.steps) < 6


def test_a_fault_during_the_work_keeps_the_validated_node_out() -> None:
    scene = labelled(validating(), UPGRADE, "pod-restart-required")
    scene.job_ends(says=GOOD).settle()

    scene.world.finding(on="n1", remedy=Remedy.REBOOT_NODE, boot_id=scene.world.nodes["n1"].boot_id)
    labelled(scene, UPGRADE, "upgrade-done").later(SETTLE_S + 1).settle()
    scene.job_ends(says=GOOD).settle()

    assert scene.repair.phase is RepairPhase.HANDED_OVER
