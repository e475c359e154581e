"""While somebody replaces a node's driver or changes its MIG layout, reports of the driver are neither
proof nor a reason for suspicion. Reports of the kernel log still count."""

from __future__ import annotations

from datetime import timedelta

import pytest

from detectors.rules.fabric_rows import draft, fabric_rows
from detectors.wire.contract import Fault, Origin, Severity
from recover.api import IncidentPhase
from recover.api.reasons import Reason
from recover.diagnose.set_aside import set_aside
from recover.diagnose.what_counts import proven, suspected
from recover.model.modes import Mode
from recover.triage.plan import plan
from tests.acting import only_recovery, recovering, step
from tests.builders import Worlds, cluster, gang

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
ADAPTERS = "nvidia.com/ofed-driver-upgrade-state"
MIG = "nvidia.com/mig.config.state"
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
CLAIMS = "nvidia.com/gpu.deploy.dra-driver"
CLAIMS_DCGM = "nvidia.com/gpu.deploy.dcgm-dra"
LOADS = "network.nvidia.com/operator.mofed.wait"
BY_NVSENTINEL = "dgxc.nvidia.com/nvsentinel-state"
UNDER_WAY = [
    (UPGRADE, "pod-restart-required"),
    (UPGRADE, "validation-required"),
    (ADAPTERS, "pod-restart-required"),
    (MIG, "pending"),
    (MIG, "rebooting"),
    (PLUGIN, "paused-for-driver-upgrade"),
    (PLUGIN, "paused-for-mig-change"),
    (PLUGIN, "paused-for-mig-change_paused-for-driver-upgrade"),
    (CLAIMS, "paused-for-driver-upgrade"),
    (CLAIMS_DCGM, "paused-for-driver-upgrade"),
    (LOADS, "true"),
]
NOT_UNDER_WAY = [
    (label, state)
    for label in (UPGRADE, ADAPTERS)
    for state in (
        "",
        "upgrade-required",
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "uncordon-required",
        "upgrade-done",
        "upgrade-failed",
        "a-state-of-tomorrow",
    )
] + [
    (MIG, "success"),
    (MIG, "failed"),
    (MIG, ""),
    (PLUGIN, "true"),
    (PLUGIN, "false"),
    (CLAIMS, "true"),
    (CLAIMS, "false"),
    (CLAIMS_DCGM, "false"),
    (LOADS, "false"),
]


def labelled(world: Worlds, label: str, state: str, *, ago_s: float | None = None) -> Worlds:
    """Labels n1. The label was written so many seconds ago; None if the API server does not report when."""
    written = {} if ago_s is None else {label: world.now - timedelta(seconds=ago_s)}
    return world.change_node("n1", labels={label: state}, labelled_at=written)


def lost_by_driver(world: Worlds, *, severity: Severity = Severity.FATAL) -> Worlds:
    """Lets NVML report that a GPU is lost."""
    return world.finding(on="n1", code="nvml-gpu-lost", origin=Origin.DRIVER, severity=severity)


@pytest.mark.parametrize("mode", [Mode.RECOVER, Mode.REPAIR])
@pytest.mark.parametrize(("label", "state"), UNDER_WAY)
def test_no_gang_is_stopped_and_no_node_taken_out_for_what_the_driver_says_meanwhile(
    label: str, state: str, mode: Mode
) -> None:
    world = labelled(cluster(mode=mode).running(gang()), label, state)
    lost_by_driver(world)

    for _ in range(3):
        recovering(world.later(60))

    assert world.nodes["n1"].quarantine is None
    assert not world.recoveries
    assert not world.incidents
    assert not proven(world.world(), world.now)
    assert not suspected(world.world(), world.now, 3600)


@pytest.mark.parametrize(("label", "state"), NOT_UNDER_WAY)
def test_work_that_is_queued_done_failed_or_unknown_hides_nothing(label: str, state: str) -> None:
    world = labelled(cluster().running(gang()), label, state)

    assert lost_by_driver(world).decide().cordons == ["n1"]


def test_a_suspicion_of_the_driver_does_not_count_meanwhile_either() -> None:
    world = lost_by_driver(cluster(), severity=Severity.SUSPECT)
    assert suspected(world.world(), world.now, 3600)

    labelled(world, *UNDER_WAY[0])

    assert not suspected(world.world(), world.now, 3600)


@pytest.mark.parametrize("label", [PLUGIN, CLAIMS_DCGM])
def test_a_device_plugin_that_nvsentinel_stops_for_a_reset_of_a_gpu_hides_what_the_driver_says(
    label: str,
) -> None:
    """If somebody else stops the plugin and leaves it stopped, the label hides nothing (NOT_UNDER_WAY)."""
    world = cluster().running(gang())
    world.change_node("n1", labels={label: "false", BY_NVSENTINEL: "remediation-succeeded"})

    assert lost_by_driver(world).decide().cordons == []
    assert world.change_node("n1", labels={label: "false"}).decide().cordons == ["n1"]


def test_a_lost_link_does_not_count_while_the_driver_of_the_adapters_is_upgraded() -> None:
    world = labelled(cluster().running(gang()), ADAPTERS, "pod-restart-required")
    dead = draft(fabric_rows()["port-dead"], "0000:0d:00.0")
    world.finding(on="n1", code=dead.code, origin=dead.origin, fault=dead.fault, severity=dead.severity)

    assert world.decide().cordons == []
    assert labelled(world, ADAPTERS, "upgrade-required").decide().cordons == ["n1"]


def test_the_kernel_log_counts_while_the_driver_is_upgraded() -> None:
    world = labelled(cluster().running(gang()), *UNDER_WAY[0])

    assert world.finding(on="n1", origin=Origin.KERNEL).decide().cordons == ["n1"]


def test_another_node_is_judged_as_ever() -> None:
    world = labelled(cluster().running(gang()), *UNDER_WAY[0])

    assert world.finding(on="n2", origin=Origin.DRIVER).decide().cordons == ["n2"]


@pytest.mark.parametrize(
    ("label", "state"), [(UPGRADE, "upgrade-done"), (UPGRADE, "upgrade-failed"), (MIG, "success")]
)
def test_the_agent_has_time_to_look_again_after_the_work(label: str, state: str) -> None:
    world = labelled(cluster().running(gang()), label, state, ago_s=5)

    lost_by_driver(world)
    assert not world.decide().cordons
    requeue_after_s = world.decide().plan.requeue_after_s
    assert requeue_after_s is not None
    assert requeue_after_s <= 115

    assert world.later(116).decide().cordons == ["n1"]


def test_work_that_never_ends_hides_nothing_for_ever() -> None:
    world = labelled(cluster().running(gang()), MIG, "pending", ago_s=5)
    lost_by_driver(world)

    assert not world.later(3600).decide().cordons
    assert world.later(2 * 3600).decide().cordons == ["n1"]


def test_a_label_that_is_dated_ahead_of_our_clock_has_just_been_written() -> None:
    ahead_s = -3600.0
    begun = labelled(cluster(), MIG, "pending", ago_s=ahead_s)
    ended = labelled(cluster(), MIG, "success", ago_s=ahead_s)

    assert not lost_by_driver(begun).decide().cordons
    assert lost_by_driver(ended).decide().cordons == ["n1"], (
        "nobody can tell for how long it would hide faults"
    )


def test_an_incident_that_is_open_waits_for_the_end_of_the_work_and_answers_nothing() -> None:
    world = cluster(mode=Mode.OBSERVE)
    recovering(lost_by_driver(world))
    labelled(world, MIG, "pending", ago_s=0)

    for _ in range(3):
        recovering(world.later(60))

    (incident,) = world.incidents.values()
    assert incident.status.phase is IncidentPhase.OPEN

    labelled(world, MIG, "success", ago_s=300)
    world.mode = Mode.RECOVER
    recovering(world)
    assert [incident.status.phase for incident in world.incidents.values()] == [IncidentPhase.OPEN]


def test_a_gang_whose_stop_is_decided_and_not_written_yet_trains_on() -> None:
    world = recovering(lost_by_driver(cluster(8).running(gang())))
    assert only_recovery(world).active
    labelled(world, UPGRADE, "pod-restart-required", ago_s=0)

    for _ in range(3):
        step(world.later(1))

    assert only_recovery(world).status.reason == Reason.CAUSE_GONE
    assert not world.gangs["llm-uid"].suspended


def test_a_label_that_flaps_each_second_causes_no_writes() -> None:
    world = lost_by_driver(cluster().running(gang()))
    for turn in range(30):
        world.later(1)
        labelled(world, MIG, "success" if turn % 2 else "pending", ago_s=0)
        assert not plan(world.world(), world.settings, world.now).actions


def test_the_work_that_explains_a_finding_is_named() -> None:
    world = labelled(cluster(), UPGRADE, "pod-restart-required", ago_s=10)
    lost_by_driver(world).finding(on="n1", fault=Fault.NVLINK, code="xid-74")

    ((finding, work),) = set_aside(world.nodes["n1"], world.health["n1"], world.now)

    assert (finding.code, work.label, work.state) == ("nvml-gpu-lost", UPGRADE, "pod-restart-required")


def test_a_finding_of_an_earlier_boot_needs_no_explanation() -> None:
    world = labelled(cluster(), MIG, "pending")
    world.finding(on="n1", origin=Origin.DRIVER, boot_id="another")

    assert not list(set_aside(world.nodes["n1"], world.health["n1"], world.now))
    assert not list(set_aside(None, world.health["n1"], world.now))
    assert not list(set_aside(world.nodes["n1"], None, world.now))
