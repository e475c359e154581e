"""Faults of a node, and the mechanisms that keep a gang off the node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults.gang import Gang
from tests.cluster.faults.trial import Trial, cordoned, quarantined, uids
from tests.cluster.install import listed
from tests.cluster.kernel_log import xid
from tests.cluster.record import ClusterError

pytestmark = pytest.mark.real_nodes

Begin = Callable[[Gang], Trial]
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def test_a_gang_trains_on_while_kubelet_and_containerd_of_a_node_are_dead(
    cluster: Cluster, begin: Begin
) -> None:
    trial = begin(Gang("unheard"))
    node = trial.node(1)

    def incident() -> Any:
        found = [i for i in listed(cluster, "incidents.rekindle.dev") if i["spec"].get("node") == node.name]
        return next((i for i in found if i["spec"]["fault"] == "host"), {"status": {}})

    try:
        node.kill_programs("kubelet", "containerd")
        trial.until("an incident", lambda: bool(incident()["status"].get("actions")))
        trial.trains_on()
        seen = incident()["status"]
    finally:
        node.restart_programs()
        cluster.wait_until_ready(node.name)

    assert node.name in seen["summary"]
    (refused,) = seen["actions"]
    assert (refused["action"], refused["outcome"], refused["reason"]) == (
        "restart-gang",
        "refused",
        "StillTraining",
    )
    trial.until("the incident's end", lambda: incident()["status"]["phase"] == "Closed")
    trial.trains_on()
    assert trial.recovery() == {}
    assert uids(trial.pods()) == uids(trial.first_pods)
    assert trial.restarts() == 0
    assert cordoned(cluster) == quarantined(cluster) == set()


def test_the_ranks_of_a_machine_that_went_down_are_given_up_on_a_persons_word_and_not_before(
    cluster: Cluster, begin: Begin
) -> None:
    trial = begin(Gang("downed", annotations={"rekindle.dev/hang-timeout": "15s"}))
    node = trial.node(1)
    trial.strike()
    node.crash()
    try:
        blocked = trial.until_phase("Blocked")["status"]
        assert blocked["reason"] == "NeedsFencingProof"
        taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
        assert blocked["message"].startswith(f"{node.name}: ")
        assert taint in blocked["message"]
        assert not uids(trial.pods()) - uids(trial.first_pods), "started over a rank that may still write"
        cluster.kubectl("taint", "node", node.name, taint)

        status = trial.recovered()["status"]

        assert status["avoidNodes"] == [node.name]
        assert node.name not in trial.nodes()
        incident = trial.incident()
        assert (incident["spec"]["fault"], incident["status"]["blamedNode"]) == ("host", node.name)
        assert cordoned(cluster) == quarantined(cluster) == set()
    finally:
        node.start()
        with suppress(ClusterError):
            cluster.kubectl("taint", "node", node.name, f"{OUT_OF_SERVICE}-")
        cluster.wait_until_ready(node.name)
    pods = uids(trial.pods())
    trial.trains_on()
    assert uids(trial.pods()) == pods, "the machine's return disturbed the gang"


def test_a_gang_that_tolerates_every_taint_and_wants_the_bad_node_does_not_come_back_to_it(
    cluster: Cluster, begin: Begin
) -> None:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-1"]}
    wish = {"weight": 100, "preference": {"matchExpressions": [here]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    trial = begin(Gang("tolerant", pod={"tolerations": [{"operator": "Exists"}], "affinity": affinity}))
    assert "worker-1" in trial.nodes()
    trial.strike()
    xid(cluster.nodes["worker-1"])

    trial.recovered()

    assert trial.nodes() == {"worker-2", "spare-1"}
    kept = trial.job()["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = kept["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["worker-1"]}
    ]
    assert kept["preferredDuringSchedulingIgnoredDuringExecution"] == [wish], "what people wrote stays"
    assert cordoned(cluster) == quarantined(cluster) == {"worker-1"}
    incident = trial.incident()["status"]
    assert (incident["blame"], incident["blamedNode"]) == ("node", "worker-1")
