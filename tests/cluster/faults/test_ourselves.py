"""Faults of Rekindle's own parts, and of the API server, while a gang needs them. Nothing is lost or done
twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from chaos.simulated.lines import DOUBLE_BIT_ERROR, GSP_TIMEOUT, MMU_FAULT, NVLINK_ERROR
from recover.k8s.kinds import JOBS, NODES, RECOVERIES
from recover.workloads.patches import MARK
from tests.cluster.cluster import Cluster
from tests.cluster.faults.gang import Gang, slow_to_stop
from tests.cluster.faults.processes import first_process, signal
from tests.cluster.faults.trial import Trial, cordoned, quarantined
from tests.cluster.install import SYSTEM, listed, one
from tests.cluster.kernel_log import xid
from tests.control_plane.cases import writes_to
from tests.control_plane.plane import AUDIT_LAG_S

pytestmark = pytest.mark.real_nodes

Begin = Callable[[Gang], Trial]


def test_a_line_written_while_the_agent_is_dead_is_found_and_none_is_told_twice(
    cluster: Cluster, begin: Begin
) -> None:
    trial = begin(Gang("unwatched"))
    node = trial.node(0)

    def health() -> Any:
        return one(cluster, "nodehealth.rekindle.dev", node.name)["status"]

    def found() -> dict[str, tuple[int, int]]:
        """Returns number and count of each Xid finding from these two lines. The note of a boot has no line
        in the kernel log, and the first line of a boot has number 0."""
        xids = [f for f in health().get("findings", []) if f["code"].startswith("xid-")]
        mine = [f for f in xids if f.get("sequence", 0) in (before, meanwhile)]
        return {f["code"]: (f.get("sequence", 0), f.get("count", 1)) for f in mine}

    before, meanwhile = xid(node, MMU_FAULT, gpu=1), -1
    trial.until("a finding", lambda: found() == {"xid-31": (before, 1)})
    boot = health()["bootId"]
    agent = pod_of(cluster, "agent", node.name)
    restarts = agent["status"]["containerStatuses"][0]["restartCount"]
    trial.strike()
    signal(cluster, agent, "KILL")
    meanwhile = xid(node, DOUBLE_BIT_ERROR)

    trial.recovered()

    assert found() == {"xid-31": (before, 1), "xid-48": (meanwhile, 1)}
    assert health()["bootId"] == health()["kmsg"]["bootId"] == boot
    assert health()["kmsg"]["sequence"] >= meanwhile
    again = pod_of(cluster, "agent", node.name)
    assert again["status"]["containerStatuses"][0]["restartCount"] == restarts + 1
    assert cordoned(cluster) == quarantined(cluster) == {node.name}
    incidents = listed(cluster, "incidents.rekindle.dev")
    still_open = [i for i in incidents if i["status"]["phase"] == "Open"]
    assert [i["status"]["blamedNode"] for i in still_open] == [node.name]


def test_two_controllers_killed_in_one_recovery_leave_it_to_the_next_and_nothing_is_done_twice(
    cluster: Cluster, begin: Begin
) -> None:
    trial = begin(slow_to_stop("orphaned"))
    node, since = trial.node(0), cluster.plane.audit_position()
    trial.strike()
    xid(node, GSP_TIMEOUT, gpu=1)

    trial.until_phase("Stopping")
    first = leader(cluster)
    signal(cluster, first, "KILL")  # its kubelet restarts it under the same name, so mostly it leads again
    trial.until("a leader after it", lambda: is_another(leader(cluster), first))
    second = leader(cluster)
    process = first_process(cluster, second)
    trial.until_phase("Choosing", "Resuming", "Verifying")
    cluster.nodes[second["spec"]["nodeName"]].command("kill", "-KILL", process)
    cluster.kubectl("delete", "pod", name(second), f"--namespace={SYSTEM}", "--force", "--grace-period=0")

    trial.recovered()

    trial.until("another one that leads", lambda: holder(cluster) not in ("", name(second)))
    assert_done_once(cluster, trial, node.name, since)


def test_an_api_server_that_is_restarted_in_a_recovery_delays_it_and_nothing_is_done_twice(
    cluster: Cluster, begin: Begin
) -> None:
    trial = begin(slow_to_stop("cut-off"))
    node, since = trial.node(0), cluster.plane.audit_position()
    trial.strike()
    xid(node, NVLINK_ERROR)

    trial.until_phase("Stopping")
    time.sleep(AUDIT_LAG_S)  # the stop and the cordon are in the audit log before it ends
    server = cluster.plane.programs["kube-apiserver"]
    server.kill()
    server.start()
    cluster.plane.wait_until_ready()

    trial.recovered()

    assert_done_once(cluster, trial, node.name, since)


def assert_done_once(cluster: Cluster, trial: Trial, node: str, since: int) -> None:
    """Asserts by the API server's audit log: one stop and one start of the job, one write that removes the
    mark of the start soon after the recovery is over, one cordon, one Recovery."""
    trial.until("the start's mark is taken back", lambda: not is_marked(trial.job()))
    recovery = trial.recovery()["metadata"]["name"]
    time.sleep(AUDIT_LAG_S)
    job, plane = trial.gang.name, cluster.plane
    assert writes_to(plane, since, JOBS, job) == ["patch"] * 3
    assert writes_to(plane, since, NODES, node) == ["patch"]
    assert writes_to(plane, since, RECOVERIES, recovery).count("create") == 1
    assert cordoned(cluster) == quarantined(cluster) == {node}


def is_marked(job: Any) -> bool:
    return MARK in job["metadata"].get("annotations", {})


def leader(cluster: Cluster) -> Any:
    """Returns the pod that leads."""
    return one(cluster, "pod", holder(cluster), SYSTEM)


def holder(cluster: Cluster) -> str:
    """Returns the name of the pod that leads, or an empty string while no pod leads."""
    return str(one(cluster, "lease", "rekindle-controller", SYSTEM)["spec"].get("holderIdentity") or "")


def is_another(pod: Any, before: Any) -> bool:
    """Whether this is another process: another pod, or the same pod with a restarted container."""
    if name(pod) != name(before):
        return True
    (now,), (then,) = (body["status"]["containerStatuses"] for body in (pod, before))
    return bool(now["restartCount"] > then["restartCount"] and "running" in now["state"])


def pod_of(cluster: Cluster, component: str, node: str) -> Any:
    selector = f"--selector=app.kubernetes.io/component={component}"
    (pod,) = (p for p in listed(cluster, "pods", selector) if p["spec"].get("nodeName") == node)
    return pod


def name(pod: Any) -> str:
    return str(pod["metadata"]["name"])
