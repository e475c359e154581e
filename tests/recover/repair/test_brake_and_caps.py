"""Tests how many nodes may be under repair: the brake and the limits. The Incident has the reason of each
wait."""

from __future__ import annotations

import msgspec

from detectors.wire.contract import Fault, Remedy, Severity
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase
from tests.recover.repair.scene import GOOD, Scene, broken, rebooting, says


def braked(scene: Scene) -> Scene:
    for number in range(2, 9):
        scene.world.finding(on=f"n{number}")
    scene.triage()
    return scene


def test_a_brake_holds_resets_and_reboots_up() -> None:
    scene = braked(broken())

    scene.settle()

    assert says(scene) == (RepairPhase.WAITING, Reason.FLEET_BRAKE)
    scene.later(scene.world.settings.budgets.brake_window_s + 1).triage()
    scene.settle()
    assert scene.repair.phase is RepairPhase.RESETTING


def test_a_brake_never_holds_up_a_validation_or_a_return() -> None:
    scene = rebooting()
    scene.node_boots().settle()
    braked(scene)

    scene.job_ends(says=GOOD).settle()

    assert scene.repair.phase is RepairPhase.RETURNED
    assert scene.world.nodes["n1"].quarantine is None


def test_no_more_nodes_are_under_repair_at_once_than_the_smaller_of_count_and_share() -> None:
    scene = broken(nodes=60)
    scene.world.settings = msgspec.structs.replace(
        scene.world.settings,
        budgets=msgspec.structs.replace(scene.world.settings.budgets, quarantined_percent_max=50),
    )
    for node in ("n2", "n3"):
        scene.world.finding(on=node, fault=Fault.DEVICE_RESET, remedy=Remedy.RESET_DEVICE)
    scene.triage()

    scene.settle()

    phases = sorted(i.status.repair.phase for i in scene.world.incidents.values() if i.status.repair)
    assert phases == [RepairPhase.RESETTING, RepairPhase.WAITING, RepairPhase.WAITING]
    (reason, *_) = {i.status.repair.reason for i in scene.world.incidents.values() if i.status.repair} - {""}
    assert reason == Reason.BUDGET_EXHAUSTED


def why_second_waits(scene: Scene) -> str:
    """Returns why the repair of n2 waits for its turn."""
    (second,) = [i.status.repair for i in scene.world.incidents.values() if i.spec.node == "n2"]
    assert second is not None
    assert (second.phase, second.reason) == (RepairPhase.WAITING, Reason.BUDGET_EXHAUSTED)
    return second.message


def test_a_repair_that_waits_for_another_names_the_node_that_somebody_may_hold() -> None:
    scene = rebooting()
    scene.node_boots().settle()
    scene.annotates(hold="true").job_ends(says=GOOD).settle()
    assert says(scene) == (RepairPhase.VALIDATING, Reason.HELD)
    scene.later(3600).world.finding(on="n2", fault=Fault.DEVICE_RESET, remedy=Remedy.RESET_DEVICE)
    scene.triage()

    scene.settle()

    assert why_second_waits(scene).endswith("under repair: n1")


def test_resets_are_counted_by_the_hour_and_those_that_were_put_off_are_not() -> None:
    scene = broken().limits(resets_per_hour_max=1, cool_down_s=0).repaired()
    scene.later(60).world.finding(on="n2", fault=Fault.DEVICE_RESET, remedy=Remedy.RESET_DEVICE)
    scene.triage()

    scene.settle()

    assert "1" in why_second_waits(scene).split()


def test_degraded_nodes_are_closed_for_their_repair_within_the_budgets_of_quarantines() -> None:
    """Soft taints use no budget, so a line on many nodes could otherwise put all of them under repair at
    once."""
    scene = broken(nodes=20, fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    for number in range(2, 10):
        scene.world.finding(on=f"n{number}", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    scene.later(scene.world.settings.budgets.brake_window_s + 1).triage()

    scene.settle()

    nodes = scene.world.nodes.values()
    assert sum(1 for node in nodes if node.quarantine is not None) == 9
    assert sum(1 for node in nodes if node.unschedulable) == 1, "5 % of 20"
    told = [i.status.repair.message for i in scene.world.incidents.values() if i.status.repair]
    assert sum("1 of 20" in message for message in told) == 8
