"""The clock of a node may be minutes off. It dates the findings of the node, and also the end of the reset's
pod, so both are compared by that clock alone."""

from __future__ import annotations

import pytest

from detectors.wire.contract import Fault, Remedy, Severity
from recover.api.repair_state import RepairPhase, StepOutcome
from recover.model.modes import Mode
from tests.builders import BOOT, cluster
from tests.recover.repair.scene import GOOD, NEW_BOOT, Scene

OFF_S = [-900, -120, 0, 120, 900]
"""Seconds by which the clock of the node is ahead."""


def finds(
    scene: Scene, *, ago_s: float = 1, boot_id: str = BOOT, severity: Severity = Severity.FATAL
) -> Scene:
    """Adds a finding of n1, dated by the clock of n1."""
    scene.world.finding(
        on="n1",
        fault=Fault.DEVICE_RESET,
        remedy=Remedy.RESET_DEVICE,
        ago_s=ago_s - scene.clock_off_s,
        boot_id=boot_id,
        severity=severity,
    )
    return scene


def resetting(off_s: float) -> Scene:
    scene = Scene(cluster(40, mode=Mode.REPAIR))
    scene.clock_off_s = off_s
    finds(scene).triage()
    scene.settle()
    scene.agent_lets_go().settle()
    return scene.later(60).job_ends()


def validating(off_s: float) -> Scene:
    scene = resetting(off_s)
    scene.settle()
    assert scene.repair.phase is RepairPhase.VALIDATING
    return scene


@pytest.mark.parametrize("off_s", OFF_S)
@pytest.mark.parametrize("severity", [Severity.FATAL, Severity.PENDING])
def test_a_fault_after_the_reset_keeps_the_node_out_whatever_its_clock_says(
    off_s: float, severity: Severity
) -> None:
    scene = finds(validating(off_s).later(90), severity=severity)

    scene.job_ends(says=GOOD).settle()

    assert scene.repair.phase is RepairPhase.REBOOTING
    assert "xid-79" in scene.repair.steps[1].message


@pytest.mark.parametrize("off_s", OFF_S)
def test_a_fault_before_the_reset_is_repaired_whatever_the_clock_says(off_s: float) -> None:
    scene = validating(off_s).later(90).job_ends(says=GOOD)

    scene.settle()

    assert scene.repair.phase is RepairPhase.RETURNED


def test_a_fault_after_the_reset_is_none_before_it_because_the_controller_was_away() -> None:
    scene = finds(resetting(0).later(600), ago_s=300)
    scene.settle()

    scene.later(60).job_ends(says=GOOD).settle()

    assert scene.repair.phase is RepairPhase.REBOOTING


@pytest.mark.parametrize("off_s", OFF_S)
def test_a_node_that_boots_by_itself_after_the_reset_has_no_repaired_findings(off_s: float) -> None:
    scene = resetting(off_s).annotates(hold="true")
    scene.settle()
    scene.node_boots()
    finds(scene.later(30), boot_id=NEW_BOOT).annotates().settle()
    assert scene.repair.phase is RepairPhase.VALIDATING

    scene.later(60).job_ends(says=GOOD).settle()

    assert scene.repair.phase is RepairPhase.REBOOTING


@pytest.mark.parametrize("comes", [True, False])
def test_the_pod_of_a_successful_reset_is_awaited_for_as_long_as_the_reset_may_take(comes: bool) -> None:
    """The Job and its pod come by two watches."""
    scene = resetting(0)
    pods, scene.world.pods = scene.world.pods, {}
    scene.settle()
    assert scene.repair.phase is RepairPhase.RESETTING

    if comes:
        scene.world.pods = pods
    scene.later(1 if comes else 7200).settle()

    assert scene.repair.steps[0].outcome is StepOutcome.DONE
    assert (scene.repair.steps[0].pod_ended_at is not None) is comes
