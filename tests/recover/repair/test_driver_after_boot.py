"""A node is Ready before its driver is: the GPU Operator builds and loads the driver in a container. Checks
that ran before would fail on every healthy node."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Device, Remedy
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase
from tests.recover.repair.scene import GOOD, NEW_BOOT, Scene, broken, report, says

GPUS = 8
WAIT_S = 600.0


def rebooted() -> Scene:
    """Returns a scene in which a node with 8 GPUs is Ready in a new boot, and its agent shows no GPU."""
    scene = broken(remedy=Remedy.REBOOT_NODE, labels={"nvidia.com/gpu.count": str(GPUS)})
    scene.settle()
    scene.later(120).node_boots().settle()
    return scene


def shows(scene: Scene, count: int) -> Scene:
    """Lets the agent show this many GPUs."""
    health = scene.world.health["n1"]
    devices = [Device(uuid=f"GPU-{number}") for number in range(count)]
    status = msgspec.structs.replace(health.status, devices=devices)
    scene.world.health["n1"] = msgspec.structs.replace(health, status=status)
    return scene


def test_the_checks_wait_until_the_agent_shows_gpus_in_the_new_boot() -> None:
    scene = rebooted()
    assert says(scene) == (RepairPhase.REBOOTING, Reason.DRIVER_STARTS)
    assert scene.look().requeue_after_s == pytest.approx(WAIT_S)

    shows(scene.later(300), GPUS).settle()
    assert says(scene) == (RepairPhase.VALIDATING, "")
    scene.job_ends(says=GOOD).settle()

    assert scene.repair.phase is RepairPhase.RETURNED


def test_devices_that_the_kubelet_offers_are_not_awaited() -> None:
    """The device plugin needs the driver. Of other vendors' accelerators the agent shows none."""
    scene = broken(remedy=Remedy.REBOOT_NODE, labels={"nvidia.com/gpu.count": str(GPUS)})
    scene.settle()
    scene.world.change_node("n1", allocatable={"nvidia.com/gpu": GPUS})

    scene.later(120).node_boots().settle()

    assert says(scene) == (RepairPhase.VALIDATING, "")


def test_gpus_that_the_agent_showed_before_the_boot_do_not_show_that_the_driver_runs() -> None:
    scene = shows(broken(remedy=Remedy.REBOOT_NODE), GPUS)
    scene.settle()

    scene.later(120).node_boots(agent=False).settle()

    assert says(scene) == (RepairPhase.REBOOTING, Reason.DRIVER_STARTS)


def test_a_driver_that_does_not_start_fails_the_checks_and_is_not_awaited_for_ever() -> None:
    scene = rebooted()

    scene.later(WAIT_S).settle()
    assert says(scene) == (RepairPhase.VALIDATING, "")
    scene.job_ends(good=False, says=report(devices="failed")).settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.VALIDATION_FAILED)


def test_a_clock_that_is_hours_ahead_after_the_boot_does_not_prolong_the_wait() -> None:
    scene = rebooted()
    scene.world.change_node("n1", ready_since=scene.world.now + timedelta(hours=8))

    scene.later(WAIT_S).settle()

    assert says(scene) == (RepairPhase.VALIDATING, "")


def test_a_node_that_boots_again_and_again_before_its_driver_runs_is_not_awaited_for_ever() -> None:
    """For example if the driver panics the kernel. The repair would also keep its turn, and in a small
    cluster no other node would be repaired."""
    scene = rebooted()

    for number in range(3):
        scene.later(WAIT_S / 3).node_boots(f"boot-{number}")
        scene.world.change_node("n1", ready_since=scene.world.now)
        scene.settle()
    assert says(scene) == (RepairPhase.VALIDATING, "")
    scene.later(WAIT_S / 3).node_boots("the-last-boot").job_ends(
        good=False, says=report(devices="failed")
    ).settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.VALIDATION_FAILED)


def test_a_validated_node_that_a_person_boots_while_they_hold_it_gets_the_same_time() -> None:
    scene = shows(rebooted(), GPUS)
    scene.settle()
    scene.annotates(hold="true").job_ends(says=GOOD).settle()
    assert says(scene) == (RepairPhase.VALIDATING, Reason.HELD)

    scene.later(7200).node_boots("the-third-boot", agent=False)
    scene.world.change_node("n1", annotations={})
    scene.settle()

    assert says(scene) == (RepairPhase.VALIDATING, Reason.DRIVER_STARTS)


def test_a_lost_gpu_among_others_is_not_awaited() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE, labels={"nvidia.com/gpu.count": str(GPUS)})
    scene.settle()

    shows(scene.later(120).node_boots(), GPUS - 1).settle()

    assert scene.repair.phase is RepairPhase.VALIDATING


def test_a_person_who_uncordons_the_node_meanwhile_ends_the_repair() -> None:
    scene = rebooted()
    scene.world.change_node("n1", unschedulable=False)

    scene.settle()

    assert says(scene) == (RepairPhase.HANDED_OVER, Reason.RELEASED_BY_PERSON)
    assert scene.world.nodes["n1"].boot_id == NEW_BOOT
