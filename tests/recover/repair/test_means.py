"""Tests the means of a step: a Job of Rekindle, or in its place a webhook or an object of another
controller."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from detectors.wire.contract import Remedy
from detectors.wire.resource import Resource
from recover.api.marks import REPAIR_OF
from recover.api.repair_state import RepairPhase
from recover.k8s.kinds import JOBS
from recover.model import Refusal
from recover.model.actions import Action, Ask, Create, Delete, Emit
from recover.repair.outside import Maintenance, Means
from tests.builders import BOOT
from tests.recover.repair.scene import Scene, broken, hooked

JANITOR = Resource("janitor.example", "v1", "rebootnodes", "RebootNode", namespaced=False)


def test_a_job_is_pinned_to_the_node_tolerates_all_ends_by_itself_and_is_told_what_to_do() -> None:
    scene = broken()
    scene.settle()
    (job,) = [a for a in scene.agent_lets_go().look().actions if isinstance(a, Create)]

    assert job.resource == JOBS
    assert job.strict, "a field that is misspelt in a template is told, not dropped"
    assert job.namespace == "rekindle-system"
    assert job.body["metadata"]["labels"] == {REPAIR_OF: scene.incident.metadata.name}
    spec = job.body["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 600)
    pod = spec["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    (container,) = pod["containers"]
    told = {variable["name"]: variable["value"] for variable in container["env"]}
    assert told == {
        "REKINDLE_NODE": "n1",
        "REKINDLE_INCIDENT": scene.incident.metadata.name,
        "REKINDLE_FAULT": "device-reset",
        "REKINDLE_DEVICES": "GPU-n1",
        "REKINDLE_EXPECTED_DEVICES": "0",
        "REKINDLE_BOOT_ID": BOOT,
    }
    assert container["image"] == "rekindle:latest"


@pytest.mark.parametrize("outside", [False, True])
def test_a_request_is_followed_by_a_look_since_no_object_tells_of_a_refusal(outside: bool) -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE)
    scene = hooked(scene) if outside else scene
    scene.step()
    scene.step()

    assert scene.look().requeue_after_s == 1.0
    scene.step()
    assert (scene.look().requeue_after_s or 0) > 60, "and no more once it was taken"


@pytest.mark.parametrize("outside", [False, True])
def test_what_was_refused_a_moment_ago_is_not_asked_again_at_every_change_of_the_cluster(
    outside: bool,
) -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE)
    scene = hooked(scene) if outside else scene
    scene.step()
    scene.step()
    step = scene.repair.step
    assert step is not None
    place = f"/{step.job}" if outside else f"jobs/rekindle-system/{step.job}"
    scene.world.refused[place] = Refusal(scene.world.now, "exceeded quota", may_pass=False)

    assert scene.later(4).step() == ["repair-rebooting"]
    assert "exceeded quota" in scene.repair.steps[-1].message, "it is told before its time is up"
    assert scene.step() == []
    assert scene.look().requeue_after_s == 6.0

    assert scene.later(6).step() == ["ask-for-reboot" if outside else "reboot-node", "repair-rebooting"]
    assert scene.repair.steps[-1].message == ""


def test_an_ended_job_stays_until_its_end_was_seen_whatever_the_settings_say() -> None:
    scene = broken().limits(job_keep_s=0.0)
    scene.settle()
    (job,) = [a for a in scene.agent_lets_go().look().actions if isinstance(a, Create)]

    assert job.body["spec"]["ttlSecondsAfterFinished"] == 600


def test_a_webhook_is_asked_for_the_reboot_in_place_of_a_job_and_once() -> None:
    scene = hooked(broken(remedy=Remedy.REBOOT_NODE))
    scene.step()
    scene.step()

    (ask,) = [a for a in scene.look().actions if isinstance(a, Ask)]
    assert ask.body["node"] == "n1"
    assert ask.body["action"] == "reboot"
    assert ask.body["until"] == (scene.world.now + timedelta(minutes=20)).isoformat()
    wrote = scene.settle()

    assert wrote.count("ask-for-reboot") == 1
    assert scene.world.repair_jobs == {}
    scene.node_boots().settle()
    assert scene.repair.phase is RepairPhase.VALIDATING


def test_a_webhook_that_accepts_the_request_late_has_as_much_time_as_one_that_accepts_at_once() -> None:
    """The step has the whole time from then on, too."""
    scene = hooked(broken(remedy=Remedy.REBOOT_NODE))
    scene.step()
    scene.step()
    scene.later(15 * 60)

    (ask,) = [a for a in scene.look().actions if isinstance(a, Ask)]
    scene.settle()

    assert scene.repair.deadline is not None
    assert ask.body["until"] == scene.repair.deadline.isoformat()


def maintained(scene: Scene, body: dict[str, Any]) -> Scene:
    """Makes the repair request reboots through an object of another controller."""
    scene.means = Means(scene.means.templates, Maintenance(JANITOR, body))
    return scene


def made(scene: Scene) -> list[Action]:
    """Runs reconcile passes until one writes nothing. Returns what they wrote."""
    wrote: list[Action] = []
    while found := [action for action in scene.look().actions if not isinstance(action, Emit)]:
        scene.step()
        wrote += found
    return wrote


def test_an_object_asks_another_controller_for_the_reboot_and_goes_when_that_is_over() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE)
    spec = {"nodeName": "{node}", "why": "{fault} ({incident})"}
    maintained(scene, {"kind": "RebootNode", "metadata": None, "spec": spec})

    wrote = made(scene)
    (asked,) = [action for action in wrote if isinstance(action, Create)]
    assert asked.resource == JANITOR
    assert asked.strict
    assert asked.body["metadata"]["name"] == asked.name == "repair-4383be87-reboot-1"
    assert asked.body["spec"] == {"nodeName": "n1", "why": f"device-reset ({scene.incident.metadata.name})"}
    (owner,) = asked.body["metadata"]["ownerReferences"]
    meta = scene.incident.metadata
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Incident", meta.name, meta.uid), (
        "whoever deletes the Incident leaves nothing behind"
    )
    (gone,) = [action for action in made(scene.node_boots()) if isinstance(action, Delete)]

    assert (gone.resource, gone.name) == (JANITOR, asked.name)
    assert scene.repair.phase is RepairPhase.VALIDATING


def test_an_object_goes_too_where_a_person_ends_the_repair() -> None:
    scene = maintained(broken(remedy=Remedy.REBOOT_NODE), {"kind": "RebootNode"})
    made(scene)

    scene.world.change_node("n1", unschedulable=False)

    assert [action.what for action in made(scene) if isinstance(action, Delete)] == ["take-reboot-back"]


@pytest.mark.parametrize("end", ["released", "node gone"])
def test_an_object_goes_too_where_a_crash_came_between_it_and_the_note_that_it_was_made(end: str) -> None:
    scene = maintained(broken(remedy=Remedy.REBOOT_NODE), {"kind": "RebootNode"})
    scene.step()
    scene.step()
    step = scene.repair.step
    assert step is not None
    assert step.asked_at is None

    if end == "released":
        scene.world.change_node("n1", unschedulable=False)
    else:
        scene.world.without_node("n1")

    assert [action.what for action in made(scene) if isinstance(action, Delete)] == ["take-reboot-back"]
    assert scene.repair.step is None
    assert scene.repair.phase is RepairPhase.HANDED_OVER
