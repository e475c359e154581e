"""Tests which step a repair begins with for each fault, and which step follows from the end of a step."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault, Origin, Remedy, Severity, Subject, SubjectKind
from recover.api import IncidentPhase
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase, StepKind, StepOutcome
from recover.model import AgentPod
from recover.model.modes import Mode
from recover.repair import for_people
from tests.recover.repair.scene import GOOD, NEW_BOOT, Scene, again, broken, rebooting, report, says

RESET, REBOOT, VALIDATE = StepKind.RESET, StepKind.REBOOT, StepKind.VALIDATE


def did(scene: Scene) -> list[tuple[StepKind, StepOutcome | None]]:
    return [(step.kind, step.outcome) for step in scene.repair.steps]


def is_in(scene: Scene, phase: RepairPhase) -> bool:
    return scene.repair.phase is phase


def resetting() -> Scene:
    """Returns a scene in which the Job of the reset runs."""
    scene = broken()
    scene.settle()
    scene.agent_lets_go().settle()
    assert is_in(scene, RepairPhase.RESETTING)
    return scene


def validating(scene: Scene) -> Scene:
    if scene.repair.phase is RepairPhase.RESETTING:
        scene.job_ends()
    else:
        scene.node_boots()
    scene.settle()
    assert is_in(scene, RepairPhase.VALIDATING)
    return scene


def test_a_device_is_reset_validated_and_the_node_returned_exactly_as_it_was() -> None:
    before = broken().world.nodes["n1"]
    scene = broken()

    scene.repaired()

    node = scene.world.nodes["n1"]
    assert (node.quarantine, node.taints, node.unschedulable, node.labels) == (None, (), False, before.labels)
    assert did(scene) == [(RESET, StepOutcome.DONE), (VALIDATE, StepOutcome.DONE)]
    assert is_in(scene, RepairPhase.RETURNED)
    assert scene.incident.status.phase is IncidentPhase.CLOSED
    assert "nccl" in scene.repair.message, "it could not run"


def test_what_was_seen_before_the_return_never_takes_the_node_out_again() -> None:
    """The finding is still in the status of the agent, because a reset is no new boot."""
    scene = broken().repaired()
    assert scene.world.health["n1"].status.findings

    scene.later(60).triage()

    assert scene.world.nodes["n1"].quarantine is None
    assert len(scene.world.incidents) == 1


def test_evidence_from_before_a_return_does_not_act_either_once_its_incident_is_deleted() -> None:
    scene = broken().repaired()
    scene.world.incidents.clear()

    scene.later(60).triage()

    assert scene.world.nodes["n1"].quarantine is None


@pytest.mark.parametrize(
    ("remedy", "fault", "rung"),
    [
        (Remedy.RESET_DEVICE, Fault.DRIVER, RESET),
        (Remedy.DRAIN_AND_RESET, Fault.MEMORY_DEGRADED, RESET),
        (Remedy.REBOOT_NODE, Fault.DEVICE_RESET, REBOOT),
        (Remedy.RESTART_VM, Fault.DEVICE_RESET, REBOOT),
        (Remedy.NONE, Fault.DRIVER, REBOOT),
        (Remedy.RESTART_APPLICATION, Fault.MEMORY_DEGRADED, RESET),
        (Remedy.INSPECT, Fault.DEVICE_RESET, None),
        (Remedy.CONTACT_SUPPORT, Fault.DRIVER, None),
        (Remedy.NONE, Fault.POWER, None),
    ],
)
def test_the_sources_own_remedy_decides_where_the_ladder_begins_and_else_the_fault(
    remedy: Remedy, fault: Fault, rung: StepKind | None
) -> None:
    scene = broken(remedy=remedy, fault=fault)

    scene.step()

    assert scene.repair.rung is rung
    assert scene.repair.phase is (RepairPhase.HANDED_OVER if rung is None else RepairPhase.WAITING)


def test_of_several_findings_the_one_that_asks_for_most_decides() -> None:
    scene = broken(remedy=Remedy.RESET_DEVICE)
    scene.world.finding(on="n1", code="xid-79", remedy=Remedy.REBOOT_NODE)

    scene.step()

    assert scene.repair.rung is REBOOT


@pytest.mark.parametrize(
    ("suspicion", "rung"), [(Remedy.INSPECT, RESET), (Remedy.NONE, RESET), (Remedy.REBOOT_NODE, REBOOT)]
)
@pytest.mark.parametrize("when", ["before the quarantine", "while the repair waits"])
def test_a_suspicion_hands_no_node_over_that_a_reset_repairs(
    when: str, suspicion: Remedy, rung: StepKind
) -> None:
    """An error of a network adapter, for example, stays a suspicion until the next boot."""
    scene = broken(remedy=Remedy.RESET_DEVICE).occupied()
    if when == "while the repair waits":
        scene.settle()
    adapter = Subject(kind=SubjectKind.NODE)
    scene.world.finding(
        on="n1",
        code="mlx5-firmware-error",
        fault=Fault.NETWORK,
        severity=Severity.SUSPECT,
        remedy=suspicion,
        subject=adapter,
    )

    scene.settle()

    assert (scene.repair.phase, scene.repair.rung) == (RepairPhase.WAITING, rung)


@pytest.mark.parametrize(("device", "rung"), [("GPU-n1", None), ("GPU-other", RESET)])
def test_a_suspicion_about_the_broken_device_itself_asks_for_a_person(
    device: str, rung: StepKind | None
) -> None:
    scene = broken(remedy=Remedy.RESET_DEVICE)
    scene.world.finding(
        on="n1",
        code="engine-place-repeats",
        fault=Fault.CORRUPTION,
        severity=Severity.SUSPECT,
        remedy=Remedy.INSPECT,
        subject=Subject(kind=SubjectKind.DEVICE, device=device),
    )

    scene.settle()

    assert scene.repair.rung is rung


def test_a_suspicion_about_a_device_asks_for_a_person_if_nobody_knows_which_device_is_broken() -> None:
    scene = broken(remedy=Remedy.RESET_DEVICE)
    health = scene.world.health["n1"]
    (fault,) = health.status.findings
    unnamed = msgspec.structs.replace(fault, subject=Subject(kind=SubjectKind.DEVICE))
    status = msgspec.structs.replace(health.status, findings=[unnamed])
    scene.world.health["n1"] = msgspec.structs.replace(health, status=status)
    scene.world.finding(
        on="n1",
        code="engine-place-repeats",
        fault=Fault.CORRUPTION,
        severity=Severity.SUSPECT,
        remedy=Remedy.INSPECT,
        subject=Subject(kind=SubjectKind.DEVICE, device="GPU-n1"),
    )

    scene.settle()

    assert scene.repair.rung is None


def test_a_fault_that_only_a_person_mends_is_handed_over_with_what_to_do() -> None:
    scene = broken(remedy=Remedy.CONTACT_SUPPORT, fault=Fault.CORRUPTION)

    scene.settle()

    assert scene.repair.reason == Reason.NEEDS_PERSON
    to_do = for_people.then_release(Fault.CORRUPTION, scene.world.nodes["n1"])
    assert scene.repair.message.endswith(to_do)
    assert scene.repair.message.endswith("kubectl uncordon n1")
    assert scene.world.nodes["n1"].unschedulable
    assert scene.world.repair_jobs == {}


def test_a_reset_that_fails_is_followed_by_a_reboot() -> None:
    scene = resetting()

    scene.job_ends(good=False, says=report(reset="failed")).settle()

    assert did(scene) == [(RESET, StepOutcome.FAILED), (REBOOT, None)]
    assert all(name in scene.repair.steps[0].message for name in ("reset", "1", "seen"))
    assert scene.node_boots().settle()
    scene.job_ends(says=GOOD).settle()
    assert is_in(scene, RepairPhase.RETURNED)


def test_a_failed_check_after_the_reset_is_followed_by_a_reboot_and_after_that_by_a_person() -> None:
    scene = validating(resetting())

    scene.job_ends(good=False, says=report(devices="failed", kernel_log="passed")).settle()
    assert is_in(scene, RepairPhase.REBOOTING)
    validating(scene)
    scene.job_ends(good=False, says=report(devices="failed", kernel_log="passed")).settle()

    assert is_in(scene, RepairPhase.HANDED_OVER)
    assert scene.repair.reason == Reason.VALIDATION_FAILED
    assert all(name in scene.repair.message for name in ("devices", "seen"))
    assert "kernel-log" not in scene.repair.message, "it passed"
    assert [check.name for check in scene.repair.checks] == ["devices", "kernel-log"]
    assert scene.world.nodes["n1"].quarantine is not None


def test_a_validation_that_made_no_report_does_not_send_a_person_to_the_hardware() -> None:
    """The pod template of the validation may be wrong."""
    scene = validating(rebooting())

    scene.job_ends(good=False, says="bash: comand not found").settle()

    assert is_in(scene, RepairPhase.HANDED_OVER)
    to_do = for_people.look_at_job(scene.repair.steps[-1].job, scene.world.nodes["n1"])
    assert scene.repair.message.endswith(to_do)


@pytest.mark.parametrize(
    ("said", "returns"),
    [
        (report(devices="passed", kernel_log="passed"), True),
        (report(devices="passed", kernel_log="passed", nccl="not-run"), True),
        (report(devices="passed", kernel_log="not-run"), False),
        (report(devices="passed"), False),
        (report(devices="passed", kernel_log="passed", matmul="failed"), False),
        ("", False),
        ("Segmentation fault", False),
    ],
)
def test_a_check_that_could_not_run_keeps_the_node_out_only_where_it_is_required(
    said: object, returns: bool
) -> None:
    scene = validating(rebooting())

    scene.job_ends(says=said).settle()  # type: ignore[arg-type]

    assert scene.repair.phase is (RepairPhase.RETURNED if returns else RepairPhase.HANDED_OVER)


def test_a_reboot_is_proven_by_a_new_boot_id_and_not_by_the_end_of_its_job() -> None:
    scene = rebooting()

    scene.job_ends(good=True).later(300).settle()
    assert is_in(scene, RepairPhase.REBOOTING)
    scene.world.not_ready("n1")
    scene.later(60).settle()
    assert is_in(scene, RepairPhase.REBOOTING)
    scene.node_boots().settle()

    assert is_in(scene, RepairPhase.VALIDATING)
    assert scene.repair.steps[0].message == f"boot {NEW_BOOT}"


def test_a_boot_id_that_was_not_known_before_proves_no_reboot() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE, fault=Fault.DEVICE_LOST)
    scene.world.change_node("n1", boot_id="")
    scene.settle()

    scene.node_boots().settle()

    assert is_in(scene, RepairPhase.REBOOTING)


def test_a_reboot_that_does_not_come_is_a_persons_after_its_deadline() -> None:
    scene = rebooting()

    scene.later(scene.world.settings.repair.reboot_deadline_s).settle()

    assert did(scene) == [(REBOOT, StepOutcome.TIMED_OUT)]
    assert scene.repair.reason == Reason.REPAIR_FAILED
    assert "20 min" in scene.repair.message
    assert scene.world.repair_jobs == {}, "a Job that acts late would reboot a node that nobody expects it on"


def test_a_report_that_comes_later_than_its_jobs_end_is_waited_for() -> None:
    """Report and end of the Job arrive by different watches."""
    scene = validating(rebooting())
    scene.job_ends(says=GOOD)
    late = dict(scene.world.pods)
    scene.world.pods.clear()

    scene.settle()
    assert is_in(scene, RepairPhase.VALIDATING)
    scene.world.pods.update(late)
    scene.settle()

    assert is_in(scene, RepairPhase.RETURNED)


def test_a_job_that_was_deleted_is_not_made_again() -> None:
    scene = resetting()
    scene.world.repair_jobs.clear()

    scene.settle()

    assert did(scene) == [(RESET, StepOutcome.FAILED), (REBOOT, None)]
    assert scene.repair.steps[0].job in scene.repair.steps[0].message


def test_a_node_does_not_return_before_its_agent_reports_from_the_new_boot() -> None:
    scene = rebooting()
    scene.node_boots(agent=False).settle()

    scene.job_ends(says=GOOD).settle()
    assert is_in(scene, RepairPhase.VALIDATING)
    scene.node_boots().settle()

    assert is_in(scene, RepairPhase.RETURNED)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_node_does_not_return_while_no_agent_runs_there_whatever_its_last_status_says(
    is_there: bool,
) -> None:
    scene = validating(resetting())
    scene.world.settings = msgspec.structs.replace(scene.world.settings, agents_are_pods=True)
    gone = {"n1": AgentPod("n1", "n1-agent", ready=False)}
    scene.world.agents = gone if is_there else {}

    scene.job_ends(says=GOOD).settle()
    assert is_in(scene, RepairPhase.VALIDATING)
    scene.world.agents = {"n1": AgentPod("n1", "n1-agent", ready=True)}
    scene.settle()

    assert is_in(scene, RepairPhase.RETURNED)


def test_a_validated_node_whose_agent_is_gone_before_the_return_is_validated_again() -> None:
    scene = validating(resetting())
    scene.world.settings = msgspec.structs.replace(scene.world.settings, agents_are_pods=True)
    scene.world.agents = {"n1": AgentPod("n1", "n1-agent", ready=True)}
    scene.annotates(hold="true").job_ends(says=GOOD).settle()
    assert is_in(scene, RepairPhase.VALIDATING)

    scene.world.agents = {}
    scene.annotates(hold="false").settle()

    assert is_in(scene, RepairPhase.VALIDATING)
    assert scene.repair.step is not None


def test_an_agent_that_does_not_come_back_is_named_when_a_person_is_called() -> None:
    scene = rebooting()
    scene.world.settings = msgspec.structs.replace(scene.world.settings, agents_are_pods=True)
    scene.node_boots().settle()

    scene.job_ends(says=GOOD).later(7200).settle()

    assert scene.repair.reason == Reason.VALIDATION_FAILED
    assert "the agent's pod is missing" in scene.repair.message


def test_what_the_agent_finds_after_the_reset_fails_the_validation_whatever_the_checks_say() -> None:
    scene = validating(resetting())
    scene.later(30).world.finding(on="n1", code="xid-48", ago_s=5)

    scene.job_ends(says=GOOD).settle()

    assert is_in(scene, RepairPhase.REBOOTING)
    assert scene.repair.steps[1].outcome is StepOutcome.FAILED
    assert "xid-48" in scene.repair.steps[1].message


def test_a_fault_that_comes_back_after_a_reset_is_not_reset_again() -> None:
    scene = again(broken().repaired())

    scene.settle()

    assert scene.repair.rung is REBOOT


def test_a_node_that_fails_soon_after_its_return_is_not_tried_for_ever() -> None:
    scene = again(again(broken().repaired()).repaired())

    scene.settle()

    assert is_in(scene, RepairPhase.HANDED_OVER)
    assert scene.repair.reason == Reason.KEEPS_FAILING
    assert all(name in scene.repair.message for name in ("n1", "2 times", "7 days"))


def test_a_node_that_was_just_returned_is_left_alone_for_a_while() -> None:
    scene = again(broken().repaired(), after_s=60)

    scene.settle()
    assert says(scene) == (RepairPhase.WAITING, Reason.COOLING_DOWN)
    scene.later(scene.world.settings.repair.cool_down_s).settle()

    assert is_in(scene, RepairPhase.REBOOTING)


def test_in_recover_mode_nothing_is_repaired_and_nothing_is_said_of_it() -> None:
    scene = broken().allows(Mode.RECOVER)

    assert scene.settle() == []


def test_a_tenants_word_asks_for_no_reboot() -> None:
    scene = broken()
    scene.world.finding(on="n1", code="xid-13", origin=Origin.TENANT, remedy=Remedy.REBOOT_NODE)

    scene.settle()

    assert is_in(scene, RepairPhase.RESETTING)
