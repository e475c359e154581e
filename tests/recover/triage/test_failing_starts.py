"""Tests pods that kubelets refuse or cannot start: when their node becomes a suspect for it, and when
nothing is reported."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import pytest

from recover.api import Incident, IncidentPhase
from recover.diagnose.failing_starts import failing_starts
from recover.diagnose.what_counts import proven, suspected
from recover.model import Container, Pod, PodPhase, Waiting, decode
from recover.stories.why_node import why_node
from recover.triage.plan import plan
from tests.acting import recovering
from tests.builders import Worlds, cluster
from tests.facts import missing

WINDOW_S = 86_400.0
ADMISSION, CREATING, ERROR = "UnexpectedAdmissionError", "ContainerCreating", "CreateContainerError"
Failing = Iterable[tuple[str, str]]
"""Namespace and node of each failing pod."""


def failing(world: Worlds, reason: str, where: Failing, *, ago_s: float = 1800.0) -> Worlds:
    for number, (namespace, node) in enumerate(where):
        uid = f"{reason}-{namespace}-{node}-{number}-{world.now:%H%M%S}"
        refused = reason == ADMISSION
        waiting = Container(name="train", running=False, waiting=Waiting(reason))
        world.pods.setdefault(f"{namespace}-uid", {})[uid] = Pod(
            namespace=namespace,
            name=uid.lower(),
            uid=uid,
            version="1",
            owner_uid=f"{namespace}-uid",
            node=node,
            phase=PodPhase.FAILED if refused else PodPhase.PENDING,
            failure=f"{reason}: Allocate failed due to no healthy devices present" if refused else "",
            containers=() if refused else (waiting,),
            admitted_at=world.now - timedelta(seconds=ago_s),
            accelerators=8,
        )
    return world


def starts_there(world: Worlds, node: str, *, ago_s: float) -> Worlds:
    uid = f"started-on-{node}"
    world.pods["other-uid"] = {
        uid: Pod(
            namespace="other",
            name=uid,
            uid=uid,
            version="1",
            owner_uid="other-uid",
            node=node,
            phase=PodPhase.RUNNING,
            admitted_at=world.now - timedelta(seconds=ago_s),
            containers=(Container(name="train", running=True),),
        )
    }
    return world


ONE, TWO = [("a", "n1"), ("b", "n1")], [("a", "n1"), ("b", "n1"), ("a", "n2"), ("b", "n2")]


@pytest.mark.parametrize(
    ("reason", "where", "ago_s", "nodes"),
    [
        (ADMISSION, ONE, 10, [["n1"]]),
        (CREATING, ONE, 1800, [["n1"]]),
        (ERROR, ONE, 180, [["n1"]]),
        ("RunContainerError", ONE, 180, [["n1"]]),
        # These failures have not lasted long enough, or are too old.
        (CREATING, ONE, 600, []),
        (ERROR, ONE, 60, []),
        (ADMISSION, ONE, 7200, []),
        # One tenant's jobs may share a fault of the tenant, on any number of nodes.
        (ADMISSION, [("a", "n1")] * 9, 10, []),
        (ERROR, [("a", f"n{number}") for number in range(8)], 180, []),
        # Another node shows the same reason.
        (ADMISSION, [*ONE, ("c", "n2")], 10, [["n1", "n2"]]),
        (ADMISSION, [*ONE, ("a", "n2")], 10, []),
        (CREATING, TWO, 1800, [["n1", "n2"]]),
        (ERROR, [(name, f"n{number}") for number, name in enumerate("abc")], 180, [["n0", "n1", "n2"]]),
        # The image comes from the pod's own template, so its fault is the tenant's.
        ("ImagePullBackOff", ONE, 1800, []),
        ("CreateContainerConfigError", ONE, 1800, []),
        ("CrashLoopBackOff", ONE, 1800, []),
        (ADMISSION, [("a", "gone"), ("b", "gone")], 10, []),
    ],
)
def test_what_jobs_of_several_namespaces_show_counts(
    reason: str, where: Failing, ago_s: float, nodes: list[list[str]]
) -> None:
    world = failing(cluster(8), reason, where, ago_s=ago_s)

    assert [one.nodes for one in failing_starts(world.world(), world.now)] == nodes


def test_each_reason_is_looked_at_alone() -> None:
    world = failing(failing(cluster(8), CREATING, ONE), ADMISSION, [("a", "n2"), ("b", "n2")])

    assert {one.reason: one.node for one in failing_starts(world.world(), world.now)} == {
        ADMISSION: "n2",
        CREATING: "n1",
    }


@pytest.mark.parametrize(("ago_s", "is_suspected"), [(3600, True), (60, False)])
def test_a_pod_that_was_started_since_then_shows_that_the_node_starts_pods(
    ago_s: float, is_suspected: bool
) -> None:
    world = starts_there(failing(cluster(8), CREATING, ONE), "n1", ago_s=ago_s)

    assert bool(failing_starts(world.world(), world.now)) is is_suspected


def only(world: Worlds) -> Incident:
    (incident,) = world.incidents.values()
    return incident


def later(world: Worlds, seconds: float) -> Worlds:
    return recovering(world.later(seconds))


def test_a_suspected_node_is_only_left_by_restarts_and_the_suspicion_outlives_the_pods() -> None:
    world = recovering(failing(cluster(8), ADMISSION, ONE, ago_s=10))

    told = only(world)
    assert not missing(told.status.summary, "n1", ADMISSION, "2 namespaces")
    assert [suspect.node for suspect in told.status.suspects] == ["n1"]
    assert not told.spec.node, "it answers no finding of the node"
    assert suspected(world.world(), world.now, WINDOW_S) == {"n1": f"start-{ADMISSION}"}
    assert not proven(world.world(), world.now)
    assert world.nodes["n1"].quarantine is None
    assert not world.recoveries

    world.pods = {}
    later(world, 1800)
    assert only(world).status.phase is IncidentPhase.OPEN
    later(world, 3600)
    assert only(world).status.phase is IncidentPhase.CLOSED
    assert list(suspected(world.world(), world.now, WINDOW_S)) == ["n1"]
    world.later(WINDOW_S)
    assert not suspected(world.world(), world.now, WINDOW_S)


def test_a_release_ends_the_suspicion() -> None:
    world = recovering(failing(cluster(8), ADMISSION, ONE, ago_s=10))

    world.change_node("n1", released_at=world.now)

    assert not suspected(world.world(), world.now, WINDOW_S)


def test_pods_that_fail_go_and_come_again_cause_one_incident_and_few_writes() -> None:
    world = recovering(failing(cluster(8), ADMISSION, ONE, ago_s=1))
    writes = 0

    for turn in range(1800):
        world.later(1)
        world.pods = {}
        if turn % 2:
            failing(world, ADMISSION, ONE, ago_s=0)
        found = plan(world.world(), world.settings, world.now)
        writes += len(found.actions)
        if found.actions:
            recovering(world)

    assert len(world.incidents) == 1
    assert writes <= 3
    assert len(only(world).status.evidence) <= 16


def test_a_fault_of_the_fleet_is_told_once_and_takes_the_suspicion_back() -> None:
    world = recovering(failing(cluster(8), CREATING, ONE))
    assert list(suspected(world.world(), world.now, WINDOW_S)) == ["n1"]

    failing(world, CREATING, [("a", "n2"), ("b", "n3"), ("b", "n2")])
    recovering(world)
    assert not suspected(world.world(), world.now, WINDOW_S)
    fleet, withdrawn = sorted(world.incidents.values(), key=lambda one: bool(one.status.suspects))
    assert (withdrawn.status.phase, withdrawn.status.superseded_by) == (
        IncidentPhase.CLOSED,
        fleet.metadata.name,
    )
    assert not missing(fleet.status.summary, CREATING, "n1", "n2", "n3", "No node is a suspect")
    assert all(node.quarantine is None for node in world.nodes.values())

    for pods in world.pods.values():  # all nodes but the first have recovered
        for uid in [uid for uid, pod in pods.items() if pod.node != "n1"]:
            del pods[uid]
    for _ in range(3):
        later(world, 60)
    assert not suspected(world.world(), world.now, WINDOW_S)
    assert len(world.incidents) == 2


def test_jobs_that_fail_on_one_node_after_the_other_make_none_suspect() -> None:
    """The scheduler places the jobs elsewhere, because the first node is a suspect, and they fail there
    again."""
    world = recovering(failing(cluster(8), ADMISSION, ONE, ago_s=10))
    assert list(suspected(world.world(), world.now, WINDOW_S)) == ["n1"]

    for node in ("n2", "n3"):
        world.later(600)
        world.pods = {}
        failing(world, ADMISSION, [("a", node), ("b", node)], ago_s=10)
        recovering(world)
        assert not suspected(world.world(), world.now, WINDOW_S)

    assert sorted(one.status.phase for one in world.incidents.values()) == [
        IncidentPhase.CLOSED,
        IncidentPhase.OPEN,
    ]


def test_a_pod_that_waits_is_looked_at_again_in_time() -> None:
    world = failing(cluster(8), CREATING, ONE, ago_s=1100)

    again_s = plan(world.world(), world.settings, world.now).requeue_after_s

    assert again_s == pytest.approx(100)


def test_why_of_the_node_names_the_incident() -> None:
    world = recovering(failing(cluster(8), ADMISSION, ONE, ago_s=10))

    story = why_node("n1", world.nodes["n1"], world.health["n1"], world.incidents.values(), world.now)

    assert only(world).metadata.name in str(story)


def test_the_kubelets_word_is_read_from_a_pod() -> None:
    """The pod's status is as Kubernetes documents it: phase, reason, startTime, and state.waiting of a
    container."""
    body = {
        "metadata": {"name": "p", "namespace": "a", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"phase": "Failed", "reason": ADMISSION, "startTime": "2026-11-21T12:00:00Z"},
    }
    refused = decode.pod(msgspec.json.encode(body), ())
    waiting = {"name": "c", "state": {"waiting": {"reason": CREATING}}}
    body["status"] = {"phase": "Pending", "startTime": "2026-11-21T12:00:00Z", "containerStatuses": [waiting]}
    creating = decode.pod(msgspec.json.encode(body), ())

    assert (refused.not_started, creating.not_started) == (ADMISSION, CREATING)
    assert refused.admitted_at == creating.admitted_at
    assert refused.admitted_at is not None
