"""Tests the subjects of reconcile passes: after any sequence of changes, in any order, no object is left
out about which a decision over all objects would do something."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.bench.scale import objects
from chaos.simulated.oracle import of_everything
from detectors.wire.contract import NodeHealthStatus
from detectors.wire.training import Edge
from recover.api.marks import UNHEALTHY
from recover.k8s.kinds import JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS, RECIPES, RECOVERIES
from recover.policy.settings import Settings
from recover.runtime.changes import Wake
from recover.runtime.subject_index import SubjectIndex
from tests.recover.runtime.subject_cluster import (
    AUTO,
    BORN,
    CHANGES,
    NODES_MAX,
    NOW,
    RANKS,
    TEMPLATE,
    Change,
    Cluster,
    confirm_gone,
    job,
    made_anew,
    node,
    offered,
    pod,
    progress,
    recovery,
)


@settings(max_examples=int(os.environ.get("REKINDLE_CHANGES", "100")))
@given(changes=st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=30), pods=st.booleans())
def test_nothing_is_left_out_whatever_changes(changes: list[tuple[Change, bool]], pods: bool) -> None:
    cluster = Cluster(agents_are_pods=pods)
    for change, asks in changes:
        change(cluster)
        if asks:
            cluster.ask()
        assert list(cluster.differences()) == []
    cluster.ask()
    assert cluster.missed() == 0
    assert list(cluster.differences()) == []


# --- which changes wake a loop ----------------------------------------------------------------------------


class Woken:
    """A gang that trains on two nodes. Everything was asked about, and nothing is out of the ordinary."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster()
        for number in range(NODES_MAX):
            name = f"n{number}"
            cluster.put(NODES, objects.node(name, number) | {"status": objects.node_status(name, BORN)})
            cluster.put(PODS, objects.agent(name) | {"status": objects.running(BORN)})
            told = [progress("a", number, Edge.STEPPING)] if number < RANKS else []
            self.report(name, objects.health_status(name, BORN, steps=told))
        cluster.put(NAMESPACES, {"metadata": {"name": "ml"}})
        cluster.put(JOBS, job("a"))
        for rank in range(RANKS):
            cluster.put(PODS, pod("a", rank, f"n{rank}"))
        cluster.ask()
        self.at_once = self.soon = 0
        self.gangs: list[str] = []
        cluster.observer._changes.wake = Wake(self._at_once, self._soon, self.gangs.append)

    def _at_once(self) -> None:
        self.at_once += 1

    def _soon(self) -> None:
        self.soon += 1

    def report(self, name: str, status: NodeHealthStatus) -> None:
        body = {"metadata": {"name": name}, "status": msgspec.to_builtins(status, str_keys=True)}
        self.cluster.put(NODEHEALTHS, {**body, "spec": {}})


def test_a_cluster_that_trains_has_no_subject() -> None:
    subjects = Woken().cluster.world().subjects
    assert not any(
        (subjects.nodes, subjects.health, subjects.gangs, subjects.outdated_specs, subjects.unseen)
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.cluster.put(PODS, pod("a", 0, "n0", phase="Failed")),
        lambda w: w.cluster.put(PODS, pod("a", 0, "n0", deleting=True)),
        lambda w: w.cluster.drop(PODS, "a-0", "ml"),
        lambda w: w.cluster.put(PODS, made_anew(pod("a", 0, "n0"))),
        lambda w: w.report("n2", objects.health_status("n2", BORN, objects.finding("n2", BORN))),
        lambda w: w.cluster.put(NODES, node("n2", ready=False)),
        lambda w: w.cluster.drop(NODES, "n2"),
        lambda w: w.cluster.put(JOBS, job("a", suspend=True)),
    ],
    ids=["failed", "told to go", "gone", "made anew", "finding", "not ready", "no node", "suspended"],
)
def test_what_may_be_a_fault_waits_for_nobody(change: Callable[[Woken], None]) -> None:
    woken = Woken()
    change(woken)
    assert woken.at_once


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.cluster.put(PODS, pod("a", 0, "n0", note="x")),
        lambda w: w.cluster.put(PODS, pod("b", 0, "n2", phase="Pending")),
        lambda w: w.report("n0", objects.health_status("n0", BORN, steps=[progress("a", 0, Edge.RESUMED)])),
        lambda w: w.cluster.put(NODES, node("n2", note="x")),
    ],
    ids=["a rank", "another pod", "a step", "a node"],
)
def test_all_else_makes_one_look_for_many_changes(change: Callable[[Woken], None]) -> None:
    woken = Woken()
    change(woken)
    assert (woken.at_once, woken.soon > 0) == (0, True)
    woken.cluster.ask()
    assert not woken.cluster.world().subjects.gangs


def test_a_report_of_a_kubelet_wakes_nobody_and_asks_nothing() -> None:
    woken = Woken()
    woken.cluster.put(NODES, node("n1", ready=False))
    woken.cluster.put(NODES, node("n2"))
    woken.cluster.ask()
    woken.at_once = woken.soon = 0
    before = woken.cluster.world().subjects.nodes["n1"].version
    for name, ready in (("n1", False), ("n2", True)):
        woken.cluster.put(NODES, node(name, ready=ready))
    assert (woken.at_once, woken.soon) == (0, 0)
    assert woken.cluster.observer.subject_index.has_no_open_question
    assert woken.cluster.world().subjects.nodes["n1"].version != before


def test_the_pods_of_a_gang_that_recovers_wait_for_nobody() -> None:
    woken = Woken()
    woken.cluster.put(RECOVERIES, recovery("a", "Verifying", []))
    woken.at_once = 0
    woken.cluster.put(PODS, pod("a", 0, "n0", note="x"))
    steps_on(woken, n1=Edge.RESUMED)
    assert (woken.at_once, woken.gangs) == (0, ["a-uid", "a-uid"])


@pytest.mark.parametrize("in_quarantine", [True, False])
def test_only_a_quarantined_node_without_a_gang_waits_for_its_agent(in_quarantine: bool) -> None:
    """A repaired node returns to service once its agent is there."""
    woken, name = Woken(), f"n{NODES_MAX - 1}"
    note = {"incident": "i-0", "fault": "device-lost", "at": BORN.isoformat(), "cordoned": True}
    body = node(name)
    if in_quarantine:
        body["metadata"]["annotations"]["rekindle.dev/quarantined-by"] = msgspec.json.encode(note).decode()
    woken.cluster.put(NODES, body)
    woken.cluster.drop(PODS, f"agent-{name}", "rekindle-system")
    woken.at_once = 0

    woken.cluster.put(PODS, objects.agent(name) | {"status": objects.running(BORN)})

    assert bool(woken.at_once) is in_quarantine


@pytest.mark.parametrize("ready", [False, True])
def test_the_condition_of_an_idle_node_follows_its_agent(ready: bool) -> None:
    woken, name = Woken(), f"n{NODES_MAX - 1}"
    agent(woken, name, ready=not ready)
    woken.soon = 0

    agent(woken, name, ready=ready)

    assert woken.soon


def test_a_new_version_of_a_job_or_a_namespace_alone_wakes_nobody() -> None:
    """A framework writes its own counters into the status of a job."""
    woken = Woken()
    woken.cluster.put(PODS, pod("a", 0, "n0", phase="Failed"))
    woken.cluster.ask()
    before = woken.cluster.world().subjects.gangs["a-uid"].version
    woken.at_once = woken.soon = 0

    woken.cluster.put(JOBS, job("a"))
    woken.cluster.put(NAMESPACES, {"metadata": {"name": "ml"}})

    assert (woken.at_once, woken.soon) == (0, 0)
    assert woken.cluster.world().subjects.gangs["a-uid"].version != before


def test_what_the_nodes_offer_is_known_after_each_change_of_a_node_or_a_pod() -> None:
    woken = Woken()
    for change in (
        lambda: woken.cluster.put(NODES, node("n1", ready=False)),
        lambda: woken.cluster.put(PODS, pod("a", 0, "n2")),
        lambda: woken.cluster.put(PODS, pod("a", 0, "n2", phase="Failed")),
        lambda: woken.cluster.drop(PODS, "a-1", "ml"),
        lambda: woken.cluster.drop(NODES, "n2"),
    ):
        before = offered(woken.cluster.world())
        change()
        world = woken.cluster.world()
        assert offered(world) == offered(of_everything(world)) != before


@pytest.mark.parametrize("kind", ["nodes", "health", "gangs", "outdated_specs", "unseen"])
def test_the_sweep_finds_what_is_missing(kind: str) -> None:
    woken = Woken()
    woken.report("n0", objects.health_status("n0", BORN, objects.finding("n0", BORN)))
    woken.report("n2", msgspec.structs.replace(objects.health_status("n2", BORN), coverage=[]))
    woken.cluster.put(NODES, node("n1", ready=False))
    woken.cluster.put(PODS, pod("a", 0, "n0", phase="Failed"))
    woken.cluster.drop(NODEHEALTHS, "n1")
    woken.cluster.ask()
    index = woken.cluster.observer.subject_index
    assert woken.cluster.missed() == 0
    planted = getattr(index, kind)
    wanted = dict(planted)
    planted.clear()

    assert woken.cluster.missed() == len(wanted) > 0
    assert planted == wanted


# --- each way into the subjects ---------------------------------------------------------------------------


def steps_on(woken: Woken, **edges: Edge) -> None:
    """Lets the agents of these nodes report these edges of the ranks on them."""
    for name, edge in edges.items():
        told = [progress("a", int(name[1:]), edge)]
        woken.report(name, objects.health_status(name, BORN, steps=told))


def silent(woken: Woken, *, enabled: bool = True) -> None:
    """Makes a gang of which no step was read so far."""
    for number in range(NODES_MAX):
        woken.report(f"n{number}", objects.health_status(f"n{number}", BORN))
    woken.cluster.put(JOBS, job("a", enabled=enabled))


def crowded(woken: Woken) -> None:
    """Lets the agent of n0 know more pods than it publishes."""
    status = objects.health_status("n0", BORN, steps=[progress("a", 0, Edge.STEPPING)])
    woken.report("n0", msgspec.structs.replace(status, pods_left_out=True))


def agent(woken: Woken, name: str, *, ready: bool) -> None:
    status = objects.running(BORN)
    for condition in status["conditions"]:
        condition["status"] = str(ready)
    woken.cluster.put(PODS, objects.agent(name) | {"status": status})


def quarantined(name: str) -> dict[str, Any]:
    body = node(name)
    note = {"incident": "i-0", "fault": "device-lost", "at": BORN.isoformat(), "cordoned": True}
    body["metadata"]["annotations"] = {"rekindle.dev/quarantined-by": msgspec.json.encode(note).decode()}
    return body


def tainted(name: str) -> dict[str, Any]:
    taint = {"key": UNHEALTHY, "value": "device-degraded", "effect": "PreferNoSchedule"}
    return node(name) | {"spec": {"taints": [taint]}}


def spare(name: str) -> dict[str, Any]:
    body = node(name)
    body["metadata"]["labels"]["rekindle.dev/spare"] = "true"
    return body


def failed_before(woken: Woken) -> None:
    """Adds a failed rank that a recovery has noted as a rank of an earlier start."""
    woken.cluster.put(RECOVERIES, recovery("a", "Succeeded", ["a-0-uid"]))
    woken.cluster.put(PODS, pod("a", 0, "n0", phase="Failed"))


def failed_before_it_was_made_anew(woken: Woken) -> None:
    """Lets the job be created again twice. The first recovery has noted the failed pod."""
    woken.cluster.put(PODS, pod("a", 7, "n0", phase="Failed"))
    for name, uid, next_uid, leftovers in (
        ("r-older", "older-uid", "old-uid", ["a-7-uid"[:8]]),
        ("r-old", "old-uid", "a-uid", []),
    ):
        body = recovery("a", "Succeeded", leftovers)
        body["metadata"]["name"] = name
        body["spec"]["gang"]["uid"] = uid
        body["status"]["gangUid"] = next_uid
        woken.cluster.put(RECOVERIES, body)


def signalling(name: str) -> dict[str, Any]:
    body = node(name)
    signal = {"type": "GpuMemWatch", "status": "True", "lastTransitionTime": BORN.isoformat()}
    body["status"]["conditions"] = [*body["status"]["conditions"], signal]
    return body


def recipe(line: str) -> dict[str, Any]:
    spec = {
        "title": "Programs of this version stop",
        "source": "a test of the subjects",
        "match": {"allOf": [{"log": line}]},
        "change": {"advise": "Let it sleep."},
    }
    return {"metadata": {"name": "night"}, "spec": spec}


def nothing(_: Woken) -> None:
    pass


NAMESPACE = {"metadata": {"name": "ml", "labels": {AUTO: "enabled"}}}
MARK = {"rekindle.dev/recovery": '{"recovery":"r-a","attempt":1,"did":"resumed"}'}
WAYS: dict[str, tuple[Callable[[Woken], None], Callable[[Woken], None], str, str]] = {
    "all ranks stall": (
        lambda w: steps_on(w, n0=Edge.STALLED),
        lambda w: steps_on(w, n1=Edge.STALLED),
        "gangs",
        "a-uid",
    ),
    "the node of the only rank that steps is silent": (
        lambda w: steps_on(w, n0=Edge.STALLED),
        lambda w: w.cluster.put(NODES, node("n1", ready=False)),
        "gangs",
        "a-uid",
    ),
    "a node is gone": (
        lambda w: w.cluster.drop(NODES, "n0"),
        lambda w: confirm_gone(w.cluster, "n0"),
        "gangs",
        "a-uid",
    ),
    "the namespace opts in": (
        lambda w: silent(w, enabled=False),
        lambda w: w.cluster.put(NAMESPACES, NAMESPACE),
        "gangs",
        "a-uid",
    ),
    "the namespace opts in, and its pods are named": (
        lambda w: (crowded(w), w.cluster.put(JOBS, job("a", enabled=False)))[0],
        lambda w: w.cluster.put(NAMESPACES, NAMESPACE),
        "outdated_specs",
        "n0",
    ),
    "the job opts in": (
        lambda w: silent(w, enabled=False),
        lambda w: w.cluster.put(JOBS, job("a")),
        "gangs",
        "a-uid",
    ),
    "the job bears a mark": (nothing, lambda w: w.cluster.put(JOBS, job("a", MARK)), "gangs", "a-uid"),
    "the job names its steps": (
        nothing,
        lambda w: w.cluster.put(JOBS, job("a", {TEMPLATE: "iter {step}/"})),
        "outdated_specs",
        "n0",
    ),
    "a pod comes whose steps are named": (
        lambda w: w.cluster.put(JOBS, job("b", {TEMPLATE: "iter {step}/"})),
        lambda w: w.cluster.put(PODS, pod("b", 0, "n2")),
        "outdated_specs",
        "n2",
    ),
    "a recovery begins": (
        nothing,
        lambda w: w.cluster.put(RECOVERIES, recovery("a", "Planned", [])),
        "gangs",
        "a-uid",
    ),
    "what a recovery has noted is gone": (
        failed_before,
        lambda w: w.cluster.drop(RECOVERIES, "r-a", "ml"),
        "gangs",
        "a-uid",
    ),
    "a rank fails": (
        nothing,
        lambda w: w.cluster.put(PODS, pod("a", 0, "n0", phase="Failed")),
        "gangs",
        "a-uid",
    ),
    "an agent is ready again": (
        lambda w: (silent(w), agent(w, "n1", ready=False))[0],
        lambda w: agent(w, "n1", ready=True),
        "gangs",
        "a-uid",
    ),
    "an agent is not ready": (nothing, lambda w: agent(w, "n2", ready=False), "unseen", "n2"),
    "a source is blind": (
        nothing,
        lambda w: w.report("n2", msgspec.structs.replace(objects.health_status("n2", BORN), coverage=[])),
        "unseen",
        "n2",
    ),
    "a NodeHealth is gone": (nothing, lambda w: w.cluster.drop(NODEHEALTHS, "n2"), "outdated_specs", "n2"),
    "a finding": (
        nothing,
        lambda w: w.report("n2", objects.health_status("n2", BORN, objects.finding("n2", BORN))),
        "health",
        "n2",
    ),
    "a node comes": (nothing, lambda w: w.cluster.put(NODES, node("n7")), "outdated_specs", "n7"),
    "a node is not ready": (nothing, lambda w: w.cluster.put(NODES, node("n2", ready=False)), "nodes", "n2"),
    "a node is quarantined": (nothing, lambda w: w.cluster.put(NODES, quarantined("n2")), "nodes", "n2"),
    "a node has the taint of a quarantine without its note": (
        nothing,
        lambda w: w.cluster.put(NODES, tainted("n2")),
        "nodes",
        "n2",
    ),
    "a node is a spare": (nothing, lambda w: w.cluster.put(NODES, spare("n2")), "nodes", "n2"),
    "a node has a signal": (nothing, lambda w: w.cluster.put(NODES, signalling("n2")), "nodes", "n2"),
    "the report of a node with a signal": (
        nothing,
        lambda w: w.cluster.put(NODES, signalling("n2")),
        "health",
        "n2",
    ),
    "people look for a line": (
        nothing,
        lambda w: w.cluster.put(RECIPES, recipe("good night")),
        "outdated_specs",
        "n0",
    ),
    "what a recovery of the job before has noted is gone": (
        failed_before_it_was_made_anew,
        lambda w: w.cluster.drop(RECOVERIES, "r-older", "ml"),
        "gangs",
        "a-uid",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_into_the_subjects(way: str) -> None:
    before, change, kind, name = WAYS[way]
    woken = Woken()
    before(woken)
    woken.cluster.ask()
    change(woken)
    woken.cluster.ask()

    assert name in getattr(woken.cluster.world().subjects, kind)
    assert woken.cluster.missed() == 0
    assert list(woken.cluster.differences()) == []


# --- objects that no watch reported -----------------------------------------------------------------------


def test_an_agent_is_told_again_once_its_unreadable_report_is_gone() -> None:
    """A newer version may have written the report: no cache shows it, neither when it arrives nor when it
    goes."""
    woken = Woken()
    woken.cluster.drop(NODEHEALTHS, "n2")
    cache, unreadable = woken.cluster.observer.health, {"metadata": {"name": "n2"}, "spec": 7}
    cache.absorb(objects.stored(NODEHEALTHS, unreadable, 10_000, BORN))
    woken.cluster.ask()
    assert "n2" not in woken.cluster.world().subjects.outdated_specs
    woken.at_once = woken.soon = 0
    cache._forget("n2", 10_001)

    assert woken.at_once + woken.soon > 0
    assert "n2" in woken.cluster.world().subjects.outdated_specs
    assert list(woken.cluster.differences()) == []


def test_a_node_counts_once_if_a_pool_is_a_domain() -> None:
    index = SubjectIndex(("rack", "rack"), Settings().timing)
    woken = Woken()
    body = node("n2")
    body["metadata"]["labels"]["rack"] = "r1"
    woken.cluster.put(NODES, body)
    index.node_changed("n2", None, woken.cluster.world().nodes["n2"], None)
    assert index.counted == {("", ""): 1, ("rack", "r1"): 1}


# --- asking and sweeping ----------------------------------------------------------------------------------


def one_sweep(woken: Woken) -> int:
    found, is_done = 0, False
    while not is_done:
        missed, is_done = woken.cluster.observer.subject_index.sweep(woken.cluster.world(), NOW)
        found += missed
    return found


def test_the_first_sweep_finds_what_is_missing_now() -> None:
    woken = Woken()
    woken.cluster.put(NODES, node("n1", ready=False))
    woken.cluster.observer.subject_index.nodes.clear()
    assert one_sweep(woken) == 1


def test_a_sweep_counts_the_nodes_anew() -> None:
    woken = Woken()
    woken.cluster.drop(NODES, "n0")
    index = woken.cluster.observer.subject_index
    right, index.counted["", ""] = dict(index.counted), 7
    index.uncached_nodes.clear()
    assert one_sweep(woken) == 2
    assert (dict(index.counted), index.uncached_nodes) == (right, {"n0"})


def test_a_sweep_looks_for_the_pods_of_each_gang_anew() -> None:
    woken = Woken()
    woken.cluster.put(PODS, pod("a", 0, "n0", phase="Failed"))
    assert list(woken.cluster.differences()) == []
    woken.cluster.observer.subject_index.new_pods_memo["a-uid"].clear()
    one_sweep(woken)
    assert list(woken.cluster.differences()) == []


def test_changes_that_never_end_keep_no_look_from_coming() -> None:
    """The gang changes faster than the questions about it are answered."""
    woken = Woken()
    index = woken.cluster.observer.subject_index
    steps_on(woken, n0=Edge.RESUMED, n1=Edge.RESUMED)
    left, turns = index.waiting, 0
    assert left > 0
    while left > 0:
        turns += 1
        assert turns < 1000
        left -= index.ask(woken.cluster.world(), NOW, at_most=min(left, 1))
        steps_on(woken, n0=Edge.STEPPING if turns % 2 else Edge.RESUMED)


def test_to_ask_costs_the_same_however_many_wait() -> None:
    some_s, many_s = asked_s(5_000), asked_s(80_000)

    assert many_s < 16 * 5 * some_s  # sixteen times as many: quadratic would be 256 times


def asked_s(count: int) -> float:
    """Returns the CPU seconds of the questions about this number of nodes."""
    index, world = SubjectIndex((), Settings().timing), Woken().cluster.world()
    some = world.nodes["n0"]
    for number in range(count):
        index.spec_may_change(f"x{number}", some)
    began_s = time.process_time()
    while index.waiting:
        index.ask(world, NOW, index.waiting)
    return time.process_time() - began_s
