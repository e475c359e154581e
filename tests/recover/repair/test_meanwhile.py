"""Events on a node while its repair waits, works or is judged: none of them may be lost before the node
returns to service."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault, Remedy, Subject, SubjectKind
from detectors.wire.step_report import encode
from recover.api import Outcome
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase, StepKind, StepOutcome
from recover.k8s.kinds import JOBS
from recover.model import Container, NamespaceView, Pod, PodPhase
from recover.model.actions import Action, ConfirmGone, Create, Patch
from recover.triage.plan import plan
from tests.builders import gang
from tests.recover.repair.scene import GOOD, Scene, broken, pending, report


def finding(scene: Scene, device: str, remedy: Remedy = Remedy.RESET_DEVICE) -> Scene:
    """Adds a finding of another device of n1."""
    scene.world.finding(on="n1", code="xid-48", fault=Fault.DEVICE_RESET, remedy=remedy)
    health = scene.world.health["n1"]
    *others, last = health.status.findings
    last = msgspec.structs.replace(last, subject=Subject(kind=SubjectKind.DEVICE, device=device))
    status = msgspec.structs.replace(health.status, findings=[*others, last])
    scene.world.health["n1"] = msgspec.structs.replace(health, status=status)
    return scene


def waiting() -> Scene:
    """Returns a scene in which a pod with accelerators prevents a reset."""
    scene = broken().occupied()
    scene.settle()
    assert scene.repair.phase is RepairPhase.WAITING
    return scene


def free(scene: Scene) -> Scene:
    scene.world.pods.clear()
    return scene


def validating(reset_s: float = 60) -> Scene:
    scene = broken()
    scene.settle()
    scene.agent_lets_go().settle()
    scene.later(reset_s).job_ends().settle()
    assert scene.repair.phase is RepairPhase.VALIDATING
    return scene


# --- further faults ---------------------------------------------------------------------------------------


def test_a_device_that_fails_while_the_repair_waits_is_reset_with_the_first() -> None:
    scene = finding(waiting().later(3600), "GPU-second")

    free(scene).settle()

    assert scene.repair.phase is RepairPhase.RESETTING
    assert scene.repair.devices == ["GPU-n1", "GPU-second"]


@pytest.mark.parametrize(
    ("remedy", "phase", "rung"),
    [
        (Remedy.REBOOT_NODE, RepairPhase.REBOOTING, StepKind.REBOOT),
        (Remedy.INSPECT, RepairPhase.HANDED_OVER, None),
    ],
)
def test_what_fails_while_the_repair_waits_may_ask_for_more(
    remedy: Remedy, phase: RepairPhase, rung: StepKind | None
) -> None:
    scene = finding(waiting().later(3600), "GPU-second", remedy)

    free(scene).settle()

    assert (scene.repair.phase, scene.repair.rung) == (phase, rung)


def test_what_a_person_has_answered_asks_for_nothing_any_more() -> None:
    """A finding stays in the agent's status until the next boot."""
    scene = finding(broken(), "GPU-second", Remedy.INSPECT)
    scene.triage()
    scene.settle()
    assert scene.repair.reason == Reason.NEEDS_PERSON
    scene.world.change_node("n1", unschedulable=False)
    scene.triage()
    scene.triage()

    finding(scene.later(7200), "GPU-third").triage()
    scene.settle()

    assert scene.repair.phase is RepairPhase.RESETTING
    assert scene.repair.devices == ["GPU-third"]


def test_a_device_that_fails_during_the_reset_of_another_keeps_the_node_out() -> None:
    scene = broken()
    scene.settle()
    scene.agent_lets_go().settle()
    finding(scene.later(30), "GPU-second")
    scene.later(30).job_ends().settle()

    scene.job_ends(says=GOOD).settle()

    assert scene.repair.phase is RepairPhase.REBOOTING
    assert scene.repair.steps[1].outcome is StepOutcome.FAILED
    assert "xid-48" in scene.repair.steps[1].message


def goes_on(scene: Scene, code: str = "xid-79") -> Scene:
    """Lets the fault continue. The agent has seen no pause in it since before the reset, so it reports a
    later time and no new finding."""
    health = scene.world.health["n1"]
    findings = [
        msgspec.structs.replace(f, last_seen=scene.world.now) if f.code == code else f
        for f in health.status.findings
    ]
    status = msgspec.structs.replace(health.status, findings=findings)
    scene.world.health["n1"] = msgspec.structs.replace(health, status=status)
    return scene


@pytest.mark.parametrize(("after_s", "phase"), [(90, RepairPhase.REBOOTING), (30, RepairPhase.RETURNED)])
def test_a_fault_that_goes_on_after_the_reset_keeps_the_node_out_and_its_echo_does_not(
    after_s: float, phase: RepairPhase
) -> None:
    scene = goes_on(validating().later(after_s))

    scene.job_ends(says=GOOD).settle()

    assert scene.repair.phase is phase


def test_a_node_that_boots_again_during_its_validation_has_failed_it() -> None:
    """The checks were made in a boot that is over."""
    scene = validating().job_ends(says=GOOD).node_boots()

    scene.settle()

    assert scene.repair.phase is RepairPhase.REBOOTING
    assert scene.repair.steps[1].outcome is StepOutcome.FAILED
    assert "n1" in scene.repair.steps[1].message


# --- between validation and return to service -------------------------------------------------------------


def test_what_is_found_on_a_validated_node_that_a_person_holds_keeps_it_out() -> None:
    scene = validating()
    scene.annotates(hold="true").job_ends(says=GOOD).settle()
    assert scene.repair.reason == Reason.HELD

    finding(scene.later(7200), "GPU-n1")
    scene.annotates().settle()

    assert scene.repair.phase is RepairPhase.REBOOTING
    assert [step.outcome for step in scene.repair.steps] == [StepOutcome.DONE, StepOutcome.DONE, None]


def test_a_validated_node_that_people_boot_anew_while_they_hold_it_is_validated_once_more() -> None:
    scene = validating()
    scene.annotates(hold="true").job_ends(says=GOOD).settle()
    assert scene.repair.reason == Reason.HELD

    scene.later(7200).node_boots().annotates().settle()

    assert scene.repair.phase is RepairPhase.VALIDATING
    scene.job_ends(says=GOOD).settle()
    assert scene.repair.phase is RepairPhase.RETURNED


def test_triage_between_the_close_of_a_quick_repair_and_its_nodes_release_opens_no_second_incident() -> None:
    scene = decided(reset_s=4)

    scene.triage()

    assert len(scene.world.incidents) == 1
    scene.settle()
    assert not scene.world.nodes["n1"].unschedulable


def test_what_is_found_before_the_node_is_given_back_takes_it_out_again() -> None:
    """The controller was away between its two writes."""
    scene = decided()
    finding(scene.later(3600), "GPU-n1")

    scene.step()
    assert scene.world.nodes["n1"].quarantine is None
    scene.triage()

    assert scene.world.nodes["n1"].quarantine is not None


def test_a_hold_that_comes_before_the_node_is_given_back_keeps_it_out() -> None:
    scene = decided().annotates(hold="true")

    assert scene.step() == []
    assert scene.world.nodes["n1"].quarantine is not None
    scene.annotates().settle()

    assert scene.world.nodes["n1"].quarantine is None


def decided(reset_s: float = 60) -> Scene:
    """Returns a scene in which the return to service is written in the Incident, but not done yet."""
    scene = validating(reset_s).job_ends(says=GOOD)
    while scene.repair.phase is not RepairPhase.RETURNED:
        scene.step()
    assert scene.world.nodes["n1"].quarantine is not None
    return scene


# --- two loops, one Incident ------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["held", "namespace in mode observe", "another restart under way"])
def test_triage_and_repair_do_not_overwrite_what_the_other_says_of_a_gang(why: str) -> None:
    """Triage and repair have different reasons, and both would otherwise write until the gang is moved."""
    notes = {"rekindle.dev/hold": "true"} if why == "held" else {}
    scene = broken(remedy=Remedy.REBOOT_NODE)
    if why == "another restart under way":
        scene.world.running(gang(ranks=4)).crash(rank=3)
        scene.triage()
        scene.world.running(gang(ranks=4))
    scene.world.running(gang(ranks=4, annotations=notes))
    if why == "namespace in mode observe":
        view = NamespaceView("ml", annotations={"rekindle.dev/mode": "observe"})
        scene.world.namespaces["ml"] = view

    for _ in range(4):
        scene.triage()
        scene.settle()

    assert scene.step() == []
    assert plan(scene.world.world(), scene.world.settings, scene.world.now).actions == ()


def test_a_gang_that_people_hold_is_not_moved_and_the_incident_says_why() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE)
    scene.world.running(gang(ranks=4, annotations={"rekindle.dev/hold": "true"}))
    scene.settle()

    scene.later(scene.world.settings.timing.checkpoint_grace_s).settle()

    (said,) = [r for r in scene.incident.status.actions if r.action == "move-gang"]
    assert (said.outcome, said.reason) == (Outcome.REFUSED, Reason.HELD)


# --- answers that somebody else gives ---------------------------------------------------------------------


def test_a_pod_that_only_claims_to_be_of_the_validation_says_nothing() -> None:
    """Anybody who may create pods may name any Job as their owner."""
    scene = validating().job_ends(good=False, says=report(devices="failed", kernel_log="passed"))
    assert scene.repair.step is not None
    uid = scene.world.repair_jobs[scene.repair.step.job].ref.uid
    pods = scene.world.pods[uid]
    said = Container(name="main", running=False, exit_code=0, message=encode(GOOD).decode())
    forged = Pod(
        namespace="ml",
        name="zzz",
        uid="forged",
        version="1",
        owner_uid=uid,
        owner_kind="Job",
        node="n1",
        phase=PodPhase.SUCCEEDED,
        containers=(said,),
    )
    scene.world.pods[uid] = {**pods, forged.uid: forged}

    scene.settle()

    assert scene.repair.phase is RepairPhase.REBOOTING
    assert scene.repair.steps[1].outcome is StepOutcome.FAILED
    assert "devices" in scene.repair.steps[1].message


# --- the Job of a step ------------------------------------------------------------------------------------


def resetting() -> Scene:
    scene = broken()
    scene.settle()
    scene.agent_lets_go().settle()
    assert scene.repair.phase is RepairPhase.RESETTING
    return scene


def test_a_job_that_is_missing_ends_its_step_only_after_a_live_read() -> None:
    scene = resetting()
    step = scene.repair.step
    assert step is not None
    del scene.world.repair_jobs[step.job]

    read, ended = scene.look().actions

    assert isinstance(read, ConfirmGone)
    assert (read.resource, read.namespace, read.name) == (JOBS, "rekindle-system", step.job)
    assert isinstance(ended, Patch)
    scene.step()
    assert scene.repair.steps[0].outcome is StepOutcome.FAILED
    assert step.job in scene.repair.steps[0].message


def test_a_job_that_cannot_be_read_is_waited_for_until_the_steps_deadline() -> None:
    scene = resetting()
    step = scene.repair.step
    assert step is not None
    del scene.world.repair_jobs[step.job]
    scene.world.unread = {JOBS: {f"rekindle-system/{step.job}"}}

    assert scene.step() == []
    assert scene.repair.step is not None

    scene.later(7200).step()
    assert scene.repair.steps[0].outcome is StepOutcome.TIMED_OUT
    assert step.job in scene.repair.steps[0].message


def test_a_gang_whose_recovery_is_refused_keeps_no_other_gang_on_the_node() -> None:
    scene = pending()
    scene.world.running(gang("other", ranks=1), first_node=1)
    scene.settle()
    scene.later(scene.world.settings.timing.checkpoint_grace_s)

    opened = [chain for chain in scene.look().chains if any(a.what == "open-recovery" for a in writes(chain))]

    assert len(opened) == 2, "each gang's Recovery is a chain of its own"
    assert all(len(writes(chain)) == 1 for chain in opened)


def writes(chain: tuple[Action, ...]) -> list[Create]:
    return [action for action in chain if isinstance(action, Create)]
