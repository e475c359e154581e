"""`rekindle leave` as `helm uninstall` runs it, in the in-memory cluster: what it does, and what keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
import structlog

from chaos.cluster.store import MemoryCluster
from detectors.kubeapi import ApiError, ReplyLost
from detectors.resource import Resource
from recover import leave_command
from recover.api import GangRef, RecoverySpec
from recover.decode import QUARANTINE, REPAIR_OF, SCAN_OF
from recover.kube.cluster import Cluster, ListPage
from recover.kube.lease import Elector, LeaseLostError
from recover.kube.rest import RestCluster
from recover.leave_command import CannotLeaveError, run
from recover.leaving import Undo, undo
from recover.model import Mark, Node, Quarantine
from recover.objects import body
from recover.resources import CONFIGMAPS, JOBS, LEASES, NAMESPACES, NODES, PODS, RECOVERIES
from recover.settings import Settings
from tests.builders import NOW
from tests.recover.served import served

SYSTEM = "rekindle-system"
FAULTY = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}
POD = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "none"}]}
NOTE = Quarantine(incident="n1-device-lost-1", fault="device-lost", at=NOW, cordoned=True)


@pytest.fixture
def store() -> MemoryCluster:
    """One node is out, another one is a person's affair, and a repair has a Job."""
    cluster = MemoryCluster(lambda: datetime.now(UTC))
    for name in (SYSTEM, "ml"):
        cluster.create(NAMESPACES, {"metadata": {"name": name}})
    notes = {QUARANTINE: msgspec.json.encode(NOTE).decode()}
    spec = {"taints": [FAULTY], "unschedulable": True}
    cluster.create(NODES, {"metadata": {"name": "n1", "annotations": notes}, "spec": spec})
    cluster.create(NODES, {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}})
    state = {"metadata": {"name": "rekindle-state"}, "data": {"mode": "recover", "since": NOW.isoformat()}}
    cluster.create(CONFIGMAPS, state, SYSTEM)
    cluster.create(LEASES, {"metadata": {"name": "rekindle-controller"}}, SYSTEM)
    for name, labels in (("repair-1-reset-1", {REPAIR_OF: "n1-device-lost-1"}), ("peoples", {})):
        job = {"metadata": {"name": name, "labels": labels}, "spec": {"template": {"spec": POD}}}
        cluster.create(JOBS, job, SYSTEM)
    ended = recovery(
        "job-old-1", GangRef(api_version="batch/v1", kind="Job", namespace="ml", name="old", uid="u")
    )
    store_recovery(cluster, "job-old-1", ended, "Succeeded")
    for name, data in (("old-rekindle", {"REKINDLE_RECOVERY": "job-old-1"}), ("llm-rekindle", {})):
        cluster.create(CONFIGMAPS, {"metadata": {"name": name}, "data": data}, "ml")
    scan = {"metadata": {"name": "job-llm-1-scan-1", "labels": {SCAN_OF: "job-llm-1"}}, "spec": POD}
    cluster.create(PODS, scan, "ml")
    return cluster


@pytest.fixture(autouse=True)
def logs_of_its_own() -> Iterator[None]:
    """The command sets up its log on this test's standard error, which is closed when the test is over."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def kubeconfig(store: MemoryCluster, tmp_path: Path) -> Iterator[str]:
    with served(store, tmp_path) as path:
        yield path


def restarting(store: MemoryCluster) -> None:
    """A recovery has stopped job ml/llm."""
    mark = Mark(recovery="job-llm-1", attempt=1, did="stopped")
    notes = {"rekindle.dev/recovery": msgspec.json.encode(mark).decode()}
    job = {
        "metadata": {"name": "llm", "annotations": notes},
        "spec": {"suspend": True, "completions": 2, "parallelism": 2, "template": {"spec": POD}},
    }
    uid = store.create(JOBS, job, "ml").body["metadata"]["uid"]
    gang = GangRef(api_version="batch/v1", kind="Job", namespace="ml", name="llm", uid=uid)
    store_recovery(store, "job-llm-1", recovery("job-llm-1", gang), "Choosing")


def recovery(name: str, gang: GangRef) -> dict[str, Any]:
    spec = RecoverySpec(
        gang=gang,
        number=1,
        incident="n1-device-lost-1",
        fault="device-lost",
        detected_at=NOW,
        summary="a test",
    )
    return body(RECOVERIES, name, "ml", spec=spec)


def store_recovery(store: MemoryCluster, name: str, made: dict[str, Any], phase: str) -> None:
    store.create(RECOVERIES, made, "ml")
    store.patch(RECOVERIES, name, {"status": {"phase": phase}}, namespace="ml", subresource="status")


def test_all_that_is_ours_goes_and_a_second_time_nothing_is_written(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--kubeconfig", kubeconfig]) == 0

    assert store.read(NODES, "n1").body["spec"].get("taints") is None
    assert not store.read(NODES, "n1").body["spec"].get("unschedulable")
    assert store.read(NODES, "n2").body["spec"]["unschedulable"] is True
    jobs = {job["metadata"]["name"]: job["metadata"].get("finalizers") for job in store.objects(JOBS)}
    assert jobs == {"repair-1-reset-1": ["foregroundDeletion"], "peoples": None}, "it goes after its pods"
    names = {one["metadata"]["name"] for one in store.objects(CONFIGMAPS)}
    assert names & {"rekindle-state", "old-rekindle", "llm-rekindle"} == {"llm-rekindle"}, (
        "that is a person's"
    )
    assert not store.read(LEASES, "rekindle-controller", SYSTEM).body["spec"]["holderIdentity"]
    assert capsys.readouterr().out.splitlines() == [
        "job repair-1-reset-1 deleted",
        "pod job-llm-1-scan-1 deleted",
        "configmap old-rekindle deleted",
        "node n1: uncordoned, taint rekindle.dev/unhealthy=device-lost:NoSchedule removed, "
        "rekindle.dev/quarantined-by removed",
        "configmap rekindle-state deleted",
        "nothing of Rekindle is left on any node",
    ]
    before = [node["metadata"]["resourceVersion"] for node in store.objects(NODES)]
    assert run(["--kubeconfig", kubeconfig]) == 0
    assert [node["metadata"]["resourceVersion"] for node in store.objects(NODES)] == before


def test_a_controller_that_goes_on_is_named_by_its_lease(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = {"holderIdentity": "by-hand", "leaseDurationSeconds": 600, "leaseTransitions": 1}
    store.patch(LEASES, "rekindle-controller", {"spec": held}, namespace=SYSTEM)
    monkeypatch.setattr(leave_command, "DEADLINE_S", 2.0)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert capsys.readouterr().err.startswith(
        "rekindle leave: not done within 2 s: a controller still holds the lease "
        "rekindle-system/rekindle-controller"
    )
    assert store.read(NODES, "n1").body["spec"]["taints"] == [FAULTY]


def test_while_a_job_is_being_restarted_nothing_is_changed(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarting(store)
    monkeypatch.setattr(leave_command, "UNDER_WAY_S", 0.0)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert capsys.readouterr().err.splitlines() == [
        "rekindle leave: Job ml/llm was stopped for a restart and is not started yet",
        "rekindle leave: nothing was changed: without a controller nobody would finish it. Wait, and run it "
        "again",
    ]
    assert store.read(NODES, "n1").body["spec"]["taints"] == [FAULTY]
    assert not store.read(LEASES, "rekindle-controller", SYSTEM).body.get("spec")


def test_what_the_controllers_begin_in_their_last_moment_is_told_and_nothing_is_taken_back(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stops_a_job_first(cluster: Cluster, settings: Settings) -> None:
        restarting(store)

    monkeypatch.setattr(leave_command, "_end_controllers", stops_a_job_first)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert capsys.readouterr().err.splitlines() == [
        "rekindle leave: Job ml/llm was stopped for a restart and is not started yet",
        "rekindle leave: the controllers have ended in the middle of it: start them again (helm upgrade), "
        "wait, and run this again",
    ]
    assert store.read(NODES, "n1").body["spec"]["taints"] == [FAULTY]
    assert not store.read(LEASES, "rekindle-controller", SYSTEM).body["spec"]["holderIdentity"]


def test_beside_a_controller_that_does_not_end_nothing_is_written(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 15}}
    store.patch(LEASES, "rekindle-controller", held, namespace=SYSTEM)
    monkeypatch.setattr(leave_command, "DEADLINE_S", 1.0)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert "not done within 1 s" in capsys.readouterr().err
    assert store.read(NODES, "n1").body["spec"]["taints"] == [FAULTY]


def test_a_node_that_cannot_be_written_is_named_and_what_is_remembered_stays(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_another_version(node: Node) -> Undo | None:
        found = undo(node)
        patch = msgspec.structs.replace(found.patch, uid="another") if found is not None else None
        return Undo(patch, "") if patch is not None else None

    monkeypatch.setattr(leave_command, "undo", of_another_version)
    monkeypatch.setattr(leave_command, "ROUNDS_MAX", 1)

    assert run(["--kubeconfig", kubeconfig]) == 1

    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("rekindle leave: node n1 is not as it was: 4")
    assert told[1:] == ["rekindle leave: it may be run again"]
    assert store.read(CONFIGMAPS, "rekindle-state", SYSTEM)
    assert not store.read(LEASES, "rekindle-controller", SYSTEM).body["spec"]["holderIdentity"]


def test_an_api_server_that_is_overloaded_for_a_moment_is_asked_again(
    store: MemoryCluster, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([ApiError(503, "ServiceUnavailable", "etcd is away"), ReplyLost("no answer")])
    real = RestCluster.list

    async def at_first_not(cluster: RestCluster, resource: Resource, **asked: Any) -> ListPage:
        trouble = next(answers, None)
        if trouble is not None:
            raise trouble
        return await real(cluster, resource, **asked)

    monkeypatch.setattr(RestCluster, "list", at_first_not)
    monkeypatch.setattr(leave_command, "LOOK_AGAIN_S", 0.01)

    assert run(["--kubeconfig", kubeconfig]) == 0
    assert next(answers, None) is None
    assert store.read(NODES, "n1").body["spec"].get("taints") is None


def test_an_api_server_that_never_answers_is_not_told_as_a_controller_that_holds_the_lease(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_command, "DEADLINE_S", 0.5)

    assert run(["--server", "http://127.0.0.1:1"]) == 1

    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("rekindle leave: asks again: GET /apis/")
    assert told[-1].startswith("rekindle leave: not done within 0.5 s: the API server gave no usable answer")


async def test_a_lease_that_cannot_be_renewed_is_not_told_as_another_controllers() -> None:
    class Unanswered(Elector):
        def __init__(self) -> None:
            self.leading = asyncio.Event()

        async def run(self) -> NoReturn:
            raise LeaseLostError("no renewal was answered for 10 s")

    with pytest.raises(CannotLeaveError, match="the lease was not kept: no renewal was answered"):
        await leave_command._alone(Unanswered(), lambda: asyncio.sleep(3600))


def test_a_kubeconfig_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--kubeconfig", "/nowhere"]) == 2
    assert "kubeconfig /nowhere: no such file" in capsys.readouterr().err
