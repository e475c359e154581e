"""Tests what a repair waits for on its node: pods whose work it would end, and the agent, which has
devices open."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault, Remedy, Severity
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase, StepOutcome
from recover.model.actions import Create
from tests.recover.repair.scene import broken, pending, says


def test_a_reboot_waits_for_pods_of_others_and_never_evicts_them() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE).bystander("web-0")

    wrote = scene.settle()

    assert says(scene) == (RepairPhase.WAITING, Reason.PODS_OF_OTHERS)
    assert "shop/web-0" in scene.repair.message
    assert set(wrote) == {"repair-waiting"}
    scene.bystander_leaves().settle()
    assert scene.repair.phase is RepairPhase.REBOOTING


def test_after_the_deadline_a_person_decides_about_pods_that_still_run() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE).bystander("web-0")
    scene.settle()

    scene.later(86_400).settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.PODS_OF_OTHERS)
    assert "After 24 h" in scene.repair.message
    assert "shop/web-0" in scene.repair.message
    assert "n1" in scene.world.nodes
    assert scene.world.bystanders["n1"]


def test_a_reset_waits_only_for_pods_that_hold_accelerators() -> None:
    scene = broken().bystander("web-0")

    scene.settle()

    assert scene.repair.phase is RepairPhase.RESETTING


def test_a_reset_waits_for_a_pod_whose_devices_stand_in_a_resource_claim() -> None:
    scene = broken().occupied()
    pods = scene.world.pods["x"]
    claiming = msgspec.structs.replace(pods["notebook-uid"], accelerators=0, has_claims=True)
    scene.world.pods["x"] = {claiming.uid: claiming}

    scene.settle()

    assert says(scene) == (RepairPhase.WAITING, Reason.PODS_OF_OTHERS)


@pytest.mark.parametrize(("owner", "waits"), [("ReplicaSet", True), ("DaemonSet", False), ("Node", False)])
def test_pods_with_accelerators_that_come_back_by_themselves_do_not_hold_up_a_reboot(
    owner: str, waits: bool
) -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE).occupied(owner=owner)

    scene.settle()

    assert (scene.repair.phase is RepairPhase.WAITING) is waits


def test_a_pod_that_came_while_the_agent_let_go_puts_the_reset_off() -> None:
    scene = broken()
    scene.settle()

    scene.occupied().agent_lets_go().settle()

    assert says(scene) == (RepairPhase.WAITING, Reason.PODS_OF_OTHERS)
    assert scene.repair.steps[0].outcome is StepOutcome.WITHDRAWN
    assert scene.world.repair_jobs == {}


def test_a_gang_that_asked_for_recovery_and_trains_there_is_moved_at_its_next_checkpoint() -> None:
    scene = pending()

    scene.settle()
    assert says(scene) == (RepairPhase.WAITING, Reason.PODS_OF_OTHERS)
    assert scene.world.recoveries == {}
    scene.later(scene.world.settings.timing.checkpoint_grace_s).settle()

    (recovery,) = scene.world.recoveries.values()
    assert recovery.spec.gang.name == "llm"
    assert recovery.spec.avoid_node == "n1"


def test_a_gang_on_two_nodes_that_are_to_be_repaired_is_moved_once() -> None:
    scene = pending()
    scene.world.finding(on="n2", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    scene.triage()
    scene.settle()
    assert [i.status.repair is not None for i in scene.world.incidents.values()] == [True, True]

    scene.later(scene.world.settings.timing.checkpoint_grace_s)

    assert [a.what for a in scene.look().actions if isinstance(a, Create)] == ["open-recovery"]
    scene.settle()
    assert len(scene.world.recoveries) == 1


def test_a_gang_that_came_to_the_waiting_node_has_its_grace_period_from_then_on() -> None:
    """Otherwise a gang that a restart has just brought here is stopped again before its next checkpoint."""
    scene = pending()
    scene.settle()
    grace_s = scene.world.settings.timing.checkpoint_grace_s
    came_at = scene.later(grace_s / 2).world.now
    pods = scene.world.pods["llm-uid"]
    scene.world.pods["llm-uid"] = {u: msgspec.structs.replace(p, created=came_at) for u, p in pods.items()}

    scene.later(grace_s / 2).settle()
    assert scene.world.recoveries == {}
    scene.later(grace_s / 2).settle()

    assert len(scene.world.recoveries) == 1


def test_a_gang_that_did_not_ask_is_waited_for_and_the_incident_says_so() -> None:
    scene = pending(opted_in=False)

    scene.settle()
    scene.later(scene.world.settings.timing.checkpoint_grace_s).settle()

    assert scene.world.recoveries == {}
    assert says(scene) == (RepairPhase.WAITING, Reason.PODS_OF_OTHERS)


def test_a_degraded_node_takes_no_pods_any_more_once_its_repair_waits() -> None:
    scene = pending()
    assert not scene.world.nodes["n1"].unschedulable

    assert "quarantine-node" in scene.settle()

    node = scene.world.nodes["n1"]
    assert node.unschedulable
    assert [taint.effect for taint in node.taints] == ["NoSchedule"]
    assert node.quarantine is not None
    assert node.quarantine.cordoned


def test_before_a_reset_the_agent_is_asked_to_let_go_and_is_not_waited_for_for_ever() -> None:
    scene = broken()

    scene.settle()
    assert scene.world.repair_jobs == {}
    assert scene.look().requeue_after_s == pytest.approx(scene.world.settings.repair.hands_off_s)
    scene.later(scene.world.settings.repair.hands_off_s).settle()

    assert len(scene.world.repair_jobs) == 1


def test_nothing_is_begun_while_an_operator_works_on_the_driver() -> None:
    upgrade = "nvidia.com/gpu-driver-upgrade-state"
    scene = broken(remedy=Remedy.REBOOT_NODE, labels={upgrade: "pod-restart-required"})

    wrote = scene.settle()

    assert says(scene) == (RepairPhase.WAITING, Reason.DRIVER_WORK)
    assert upgrade in scene.repair.message
    assert set(wrote) == {"repair-waiting"}

    scene.world.change_node("n1", labels={upgrade: "upgrade-done"}, labelled_at={upgrade: scene.world.now})
    assert scene.later(60).settle() == []
    scene.later(61).settle()
    assert scene.repair.phase is RepairPhase.REBOOTING
