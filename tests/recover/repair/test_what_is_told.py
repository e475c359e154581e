"""Tests what a person reads about a step that did not end as it should. The step's Job may be gone; the
Incident has the report."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Remedy
from recover.api.repair_state import RepairPhase, StepKind, StepOutcome
from recover.model import Container, Pod, PodPhase, Waiting
from recover.repair import for_people
from tests.recover.repair.scene import GOOD, Scene, broken, hooked, rebooting, report


def validating() -> Scene:
    scene = rebooting()
    scene.node_boots().settle()
    assert scene.repair.phase is RepairPhase.VALIDATING
    return scene


def has_pod(scene: Scene, **changes: object) -> Scene:
    """Adds the pod of the Job under way. The pod has not ended."""
    step = scene.repair.step
    assert step is not None
    job = scene.world.repair_jobs[step.job]
    pod = Pod("rekindle-system", f"{step.job}-x", "pod-uid", "1", job.ref.uid, "Job", "n1")
    scene.world.pods[job.ref.uid] = {pod.uid: msgspec.structs.replace(pod, **changes)}
    return scene


def told_in_time(scene: Scene, seconds: float) -> str:
    """Returns the message of the step under way, once its deadline has passed."""
    number = len(scene.repair.steps)
    scene.later(seconds).settle()
    step = scene.repair.steps[number - 1]
    assert step.outcome is StepOutcome.TIMED_OUT
    return step.message


PULL = Container("validate", running=False, waiting=Waiting("ImagePullBackOff", "no such image"))
RUNS = Container("validate", running=True)


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (None, "kubectl events -n rekindle-system --for job/{job}"),
        ({"node": "", "unschedulable": "0/40: Too many pods"}, "0/40: Too many pods"),
        ({"containers": (PULL,)}, "ImagePullBackOff: no such image"),
        ({}, "kubectl events -n rekindle-system --for pod/{job}-x"),
        ({"phase": PodPhase.RUNNING, "containers": (RUNS,)}, ""),
    ],
    ids=["no pod", "no place", "no image", "no start", "runs"],
)
def test_of_a_job_that_does_not_end_the_incident_says_why(pod: dict[str, object] | None, why: str) -> None:
    scene = validating()
    if pod is not None:
        has_pod(scene, **pod)
    step = scene.repair.step
    assert step is not None

    message = told_in_time(scene, scene.world.settings.repair.validate_deadline_s)

    assert step.job not in scene.world.repair_jobs, "nobody can look at it any more"
    assert "30 min" in message
    assert step.job in message
    assert message.endswith(why.format(job=step.job))
    assert ("kubectl" in message) is why.startswith("kubectl"), "only where nothing is known"


def test_of_a_reboot_that_does_not_come_the_incident_says_what_became_of_its_job() -> None:
    deadline_s = rebooting().world.settings.repair.reboot_deadline_s

    done = told_in_time(rebooting().job_ends(), deadline_s)
    assert "20 min" in done
    failed = rebooting().job_ends(good=False, says="systemctl: Access denied")
    told = told_in_time(failed, deadline_s)
    assert told.startswith(done)
    assert told.endswith("1: systemctl: Access denied")
    without_pod = told_in_time(rebooting(), deadline_s)
    assert without_pod.startswith(done)
    assert "kubectl events" in without_pod

    outside = hooked(broken(remedy=Remedy.REBOOT_NODE))
    outside.settle()
    assert told_in_time(outside, deadline_s) == done


def test_where_no_boot_id_is_known_it_is_not_claimed_that_the_node_is_in_its_old_boot() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE)
    scene.world.change_node("n1", boot_id="")
    scene.settle()

    message = told_in_time(scene.node_boots(), scene.world.settings.repair.reboot_deadline_s)

    assert "20 min" in message
    assert "boot id" in message


def test_a_report_that_went_with_its_pod_is_not_blamed_on_the_agent() -> None:
    scene = validating().job_ends(says=GOOD)
    scene.world.pods.clear()

    message = told_in_time(scene, scene.world.settings.repair.validate_deadline_s)

    assert scene.repair.steps[-1].job in message


@pytest.mark.parametrize("silent", ["the Job", "the agent"])
def test_a_validation_that_comes_to_no_end_does_not_send_a_person_to_the_hardware(silent: str) -> None:
    scene = rebooting()
    scene.node_boots(agent=silent != "the agent").settle()
    if silent == "the agent":
        scene.job_ends(says=GOOD)
    job = scene.repair.steps[-1].job

    message = told_in_time(scene, scene.world.settings.repair.validate_deadline_s)

    assert scene.repair.phase is RepairPhase.HANDED_OVER
    assert (job in message) is (silent == "the Job")
    assert message in scene.repair.message
    assert scene.repair.message.endswith(for_people.see_to_that(scene.world.nodes["n1"]))


def test_a_job_whose_pod_its_own_end_has_removed_is_not_said_to_have_had_none() -> None:
    """Kubernetes deletes the pods of a Job whose time is over."""
    scene = validating().job_ends(good=False)
    scene.world.pods.clear()
    job = scene.repair.steps[-1].job

    scene.settle()

    assert all(name in scene.repair.steps[-1].message for name in (job, "BackoffLimitExceeded"))
    assert "kubectl" not in scene.repair.steps[-1].message, "as of one that never had a pod"


def test_the_checks_that_are_shown_are_those_of_the_last_validation() -> None:
    scene = broken()
    scene.settle()
    scene.agent_lets_go().settle()
    scene.job_ends().settle()
    scene.job_ends(good=False, says=report(devices="failed", kernel_log="passed")).settle()
    assert [check.name for check in scene.repair.checks] == ["devices", "kernel-log"]

    scene.node_boots().settle()
    assert scene.repair.phase is RepairPhase.VALIDATING
    assert scene.repair.checks == []
    told_in_time(scene, scene.world.settings.repair.validate_deadline_s)

    assert scene.repair.phase is RepairPhase.HANDED_OVER
    assert scene.repair.checks == []


def test_where_a_person_had_cordoned_the_node_before_the_command_that_releases_it_is_told() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE).bystander("web-0")
    note = scene.world.nodes["n1"].quarantine
    assert note is not None
    scene.world.change_node("n1", quarantine=msgspec.structs.replace(note, cordoned=False))
    scene.settle()

    scene.later(86_400).settle()

    assert scene.repair.phase is RepairPhase.HANDED_OVER
    to_do = for_people.move_pods(StepKind.REBOOT, scene.world.nodes["n1"])
    assert scene.repair.message.endswith(to_do)
    assert scene.repair.message.endswith("kubectl taint node n1 rekindle.dev/unhealthy-")
