"""Tests `rekindle cleanup` as `helm uninstall` runs it, in the in-memory cluster: its changes, and the
states that stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from chaos.apiserver.deletion import Deletion
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.contract import Coverage, CoverageState, Fault, Finding, NodeHealthStatus, Source
from detectors.wire.resource import Resource
from recover.api import GangRef, RecoverySpec
from recover.api.marks import OWN_CONDITION, QUARANTINE, REPAIR_OF, SCAN_OF
from recover.cli import cleanup_command, cleanup_requests
from recover.cli.cleanup_checks import CONTROLLER, DEPLOYMENTS, CannotCleanUpError
from recover.cli.cleanup_command import run
from recover.cli.cleanup_undo import Undo, undo
from recover.k8s.bodies import body, builtins
from recover.k8s.kinds import CONFIGMAPS, JOBS, LEASES, NAMESPACES, NODEHEALTHS, NODES, PODS, RECOVERIES
from recover.kube.cluster import Cluster, ListPage
from recover.kube.lease import Elector, LeaseLostError
from recover.kube.rest import RestCluster
from recover.model import Mark, Node, Quarantine
from recover.policy.settings import Settings
from recover.stories.words import FAULTS
from tests.builders import NOW
from tests.facts import each_names, missing
from tests.recover.served import served
from tests.recover.stories.why_cases import finding

SYSTEM = "rekindle-system"
FAULTY = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}
POD = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "none"}]}
START = """kubectl patch job -n ml llm --type merge -p '{"spec":{"suspend":false}}'"""
STOPPED = ("Job ml/llm", START)
"""Words that the output must contain for a job that stays stopped: the job, and the command that starts
it."""
TAINT = "rekindle.dev/unhealthy=device-lost:NoSchedule"
LEASE = "rekindle-system/rekindle-controller"
NOTE = Quarantine(incident="n1-device-lost-1", fault="device-lost", at=NOW, cordoned=True)


@pytest.fixture
def store() -> MemoryCluster:
    """Returns a cluster in which n1 is quarantined, a person has cordoned n2, and a repair has a Job."""
    cluster = MemoryCluster(lambda: datetime.now(UTC))
    for name in (SYSTEM, "ml"):
        cluster.create(NAMESPACES, {"metadata": {"name": name}})
    notes = {QUARANTINE: msgspec.json.encode(NOTE).decode()}
    spec = {"taints": [FAULTY], "unschedulable": True}
    ready = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOW.isoformat()}]}
    cluster.create(NODES, {"metadata": {"name": "n1", "annotations": notes}, "spec": spec, "status": ready})
    cluster.create(NODES, {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}})
    report(cluster, "n1")
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


@pytest.fixture
def kubeconfig(store: MemoryCluster, tmp_path: Path) -> Iterator[str]:
    with served(store, tmp_path) as path:
        yield path


def report(store: MemoryCluster, node: str, *findings: Finding) -> None:
    """Writes the report of the node's agent, which reads the kernel log."""
    store.create(NODEHEALTHS, body(NODEHEALTHS, node))
    covered = Coverage(source=Source.KMSG, state=CoverageState.COVERED, since=NOW)
    status = NodeHealthStatus(boot_id="b00t", coverage=[covered], findings=list(findings))
    written = {"status": builtins(status)}
    store.patch(NODEHEALTHS, node, written, subresource="status")


def restarting(store: MemoryCluster) -> None:
    """Puts job ml/llm into the state after a recovery has stopped it."""
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
    assert each_names(
        capsys.readouterr().out.splitlines(),
        ("job", "repair-1-reset-1"),
        ("pod", "job-llm-1-scan-1"),
        ("configmap", "old-rekindle"),
        ("node", "n1", TAINT, QUARANTINE),
        ("configmap", "rekindle-state"),
        (),
    )
    before = [node["metadata"]["resourceVersion"] for node in store.objects(NODES)]
    assert run(["--kubeconfig", kubeconfig]) == 0
    assert [node["metadata"]["resourceVersion"] for node in store.objects(NODES)] == before


def test_our_condition_is_removed_and_the_conditions_of_others_stay(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [
        {"type": name, "status": "True", "lastTransitionTime": NOW.isoformat()} for name in ("Ready", "X")
    ]
    ours = {"type": OWN_CONDITION, "status": "False", "reason": "Quarantined"}
    for name in ("n1", "n2"):
        store.patch(
            NODES, name, {"status": {"conditions": [others[0], ours, others[1]]}}, subresource="status"
        )

    assert run(["--kubeconfig", kubeconfig]) == 0

    for name in ("n1", "n2"):
        assert store.read(NODES, name).body["status"]["conditions"] == others
    assert store.read(NODES, "n1").body["spec"].get("taints") is None
    told = [line for line in capsys.readouterr().out.splitlines() if OWN_CONDITION in line]
    assert each_names(told, ("n1",), ("n2",))


def test_beside_a_controller_that_goes_on_nothing_is_written_and_its_lease_is_named(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = {"holderIdentity": "by-hand", "leaseDurationSeconds": 600, "leaseTransitions": 1}
    store.patch(LEASES, "rekindle-controller", {"spec": held}, namespace=SYSTEM)
    monkeypatch.setattr(cleanup_command, "DEADLINE_S", 2.0)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert not missing(capsys.readouterr().err, "2 s", "by-hand", LEASE)
    assert store.read(NODES, "n1").body["spec"]["taints"] == [FAULTY]


def test_while_a_job_is_being_restarted_nothing_is_changed(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarting(store)
    monkeypatch.setattr(cleanup_command, "UNDER_WAY_S", 0.0)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert each_names(capsys.readouterr().err.splitlines(), STOPPED, ())
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

    monkeypatch.setattr(cleanup_command, "_end_controllers", stops_a_job_first)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert each_names(capsys.readouterr().err.splitlines(), STOPPED, ("helm rollback RELEASE REVISION",))
    assert store.read(NODES, "n1").body["spec"]["taints"] == [FAULTY]
    assert not store.read(LEASES, "rekindle-controller", SYSTEM).body["spec"]["holderIdentity"]


def test_a_node_that_cannot_be_written_is_named_and_what_is_remembered_stays(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_another_version(node: Node, stays: str) -> Undo | None:
        found = undo(node, stays)
        patch = msgspec.structs.replace(found.patch, uid="another") if found is not None else None
        return Undo(patch, "") if patch is not None else None

    monkeypatch.setattr(cleanup_command, "undo", of_another_version)
    monkeypatch.setattr(cleanup_command, "ROUNDS_MAX", 1)

    assert run(["--kubeconfig", kubeconfig]) == 1

    told = capsys.readouterr().err.splitlines()
    assert each_names(told, ("n1", 422), ())
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
    monkeypatch.setattr(cleanup_requests, "REQUEUE_S", 0.01)

    assert run(["--kubeconfig", kubeconfig]) == 0
    assert next(answers, None) is None
    assert store.read(NODES, "n1").body["spec"].get("taints") is None


def test_an_api_server_that_never_answers_is_not_told_as_a_controller_that_holds_the_lease(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup_command, "ANSWER_S", 0.5)

    assert run(["--server", "http://127.0.0.1:1"]) == 3

    told = capsys.readouterr().err.splitlines()
    assert "GET /api" in told[0]
    assert each_names(told[1:], ("0.5 s",))
    assert missing(told[1], LEASE) == [LEASE]


async def test_a_lease_that_cannot_be_renewed_is_not_told_as_another_controllers() -> None:
    class Unanswered(Elector):
        def __init__(self) -> None:
            self.leading = asyncio.Event()

        async def run(self) -> NoReturn:
            raise LeaseLostError("no renewal was answered for 10 s")

    with pytest.raises(CannotCleanUpError, match="10 s") as raised:
        await cleanup_command._alone(Unanswered(), lambda: asyncio.sleep(3600))

    assert isinstance(raised.value.__cause__, LeaseLostError)
    assert str(raised.value.__cause__) in str(raised.value)


def test_a_node_whose_gpu_has_died_stays_cordoned_and_one_that_was_never_taken_out_is_named(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gang is in Resuming: its pods wait for a node, and must not come back to this one."""
    restarting(store)
    store.patch(JOBS, "llm", {"spec": {"suspend": False}}, namespace="ml")
    store.patch(
        RECOVERIES, "job-llm-1", {"status": {"phase": "Succeeded"}}, namespace="ml", subresource="status"
    )
    store.delete(NODEHEALTHS, "n1", Deletion())
    report(store, "n1", finding())
    store.create(NODES, {"metadata": {"name": "n3"}, "spec": {}})
    report(store, "n3", finding(code="xid-48"))

    assert run(["--kubeconfig", kubeconfig]) == 0

    n1 = store.read(NODES, "n1").body
    assert n1["spec"]["unschedulable"] is True
    assert not n1["spec"].get("taints")
    assert not n1["metadata"].get("annotations")
    assert not store.read(NODES, "n3").body["spec"].get("unschedulable")
    broken = FAULTS[Fault.DEVICE_LOST], "0000:3b:00.0"
    assert each_names(
        [line for line in capsys.readouterr().out.splitlines() if line.startswith("node ")],
        ("n1", TAINT, QUARANTINE, "xid-79", *broken, "kubectl uncordon n1"),
        ("n3", "xid-48", *broken, "kubectl cordon n3"),
    )


def controller_in(namespace: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Returns the namespaces that have a Deployment of the controller. The in-memory cluster does not have
    this kind."""
    spaces = {namespace}
    unhindered = RestCluster.get, RestCluster.list, RestCluster.delete

    def deployment(space: str) -> bytes:
        return msgspec.json.encode({"metadata": {"name": CONTROLLER, "namespace": space}})

    async def get(cluster: RestCluster, resource: Resource, name: str, space: str = "") -> bytes:
        if resource != DEPLOYMENTS or space not in spaces:
            return await unhindered[0](cluster, resource, name, space)
        return deployment(space)

    async def every(cluster: RestCluster, resource: Resource, **asked: Any) -> ListPage:
        if resource != DEPLOYMENTS:
            return await unhindered[1](cluster, resource, **asked)
        return ListPage([msgspec.Raw(deployment(space)) for space in sorted(spaces)], "1")

    async def delete(cluster: RestCluster, resource: Resource, name: str, **asked: Any) -> None:
        if resource == DEPLOYMENTS:
            spaces.remove(asked["namespace"])
        else:
            await unhindered[2](cluster, resource, name, **asked)

    monkeypatch.setattr(RestCluster, "get", get)
    monkeypatch.setattr(RestCluster, "list", every)
    monkeypatch.setattr(RestCluster, "delete", delete)
    return spaces


def test_a_status_that_is_not_believed_keeps_no_removal_from_its_end(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody with the token of a node's agent can write such a status."""
    store.create(NODEHEALTHS, body(NODEHEALTHS, "n2"))
    forged = {"status": {"bootId": "b", "observedAt": "9999-12-31T23:59:59Z"}}
    store.patch(NODEHEALTHS, "n2", forged, subresource="status")

    assert run(["--kubeconfig", kubeconfig]) == 0

    assert "nodehealths" in capsys.readouterr().err


def test_a_dry_run_prints_what_a_removal_does_and_writes_nothing(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controllers = controller_in(SYSTEM, monkeypatch)
    before = store.version

    assert run(["--dry-run", "--kubeconfig", kubeconfig]) == 0

    rehearsed = capsys.readouterr().out.splitlines()
    assert (store.version, controllers) == (before, {SYSTEM}), "something was written"
    assert run(["--kubeconfig", kubeconfig]) == 0
    done = capsys.readouterr().out.splitlines()
    assert len(rehearsed) == len(done)
    for dry, wet in zip(rehearsed, done[:-1], strict=False):
        assert dry.startswith(wet)
        assert dry != wet, "it is marked as not done"
    assert rehearsed[-1] != done[-1]
    assert not missing(rehearsed[0], "deployment", "rekindle-controller")


def test_a_dry_run_names_who_holds_the_lease(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {"holderIdentity": "by-hand", "leaseDurationSeconds": 15, "leaseTransitions": 1}
    store.patch(LEASES, "rekindle-controller", {"spec": held}, namespace=SYSTEM)

    assert run(["--dry-run", "--kubeconfig", kubeconfig]) == 0

    first, *_ = capsys.readouterr().out.splitlines()
    assert not missing(first, "by-hand", LEASE)


def test_a_dry_run_says_what_would_keep_it(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    restarting(store)
    before = store.version

    assert run(["--dry-run", "--kubeconfig", kubeconfig]) == 1

    printed = capsys.readouterr()
    assert store.version == before
    first, *_ = printed.out.splitlines()
    assert not missing(first, "60 s", "Job ml/llm")
    assert each_names(printed.err.splitlines(), STOPPED, ("--dry-run", "60 s"))


@pytest.mark.parametrize(("phase", "refused"), [("Resuming", True), ("Verifying", False), ("Blocked", False)])
def test_a_removal_waits_for_a_started_gang_and_is_refused_while_ranks_are_still_placed(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    refused: bool,
) -> None:
    restarting(store)
    store.patch(JOBS, "llm", {"spec": {"suspend": False}}, namespace="ml")
    status = {"phase": phase, "reason": "NoCapacity", "message": "2 of 4 ranks wait for a node"}
    store.patch(RECOVERIES, "job-llm-1", {"status": status}, namespace="ml", subresource="status")
    monkeypatch.setattr(cleanup_command, "UNDER_WAY_S", 0.5)
    before = store.version

    assert run(["--kubeconfig", kubeconfig]) == int(refused)

    assert (store.version == before) is refused
    printed = capsys.readouterr()
    words = ("Job ml/llm", phase, "NoCapacity", status["message"])
    first, *_ = printed.out.splitlines()
    assert not missing(first, *words)
    assert not missing(printed.err.splitlines()[0], *words, "rekindle why -n ml job/llm")


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[tuple[MemoryCluster, str]]:
    """Yields a cluster in which Rekindle was never installed, but which has a namespace of its name."""
    cluster = MemoryCluster(lambda: datetime.now(UTC))
    cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    cluster.create(NODES, {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}})
    with served(cluster, tmp_path) as path:
        yield cluster, path


@pytest.mark.parametrize("namespace", [SYSTEM, "elsewhere"])
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["real", "dry"])
def test_where_rekindle_is_not_installed_it_says_so_at_once(
    bare: tuple[MemoryCluster, str], namespace: str, dry: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store, kubeconfig = bare
    before, begun = store.version, time.monotonic()

    assert run([*dry, "--kubeconfig", kubeconfig, "--set", f"namespace={namespace}"]) == 3

    told = capsys.readouterr().err
    assert each_names(told.splitlines(), ("rekindle cleanup", namespace))
    assert store.version == before
    assert time.monotonic() - begun < 10


def test_marks_without_their_namespace_are_named_with_what_to_do(
    bare: tuple[MemoryCluster, str], capsys: pytest.CaptureFixture[str]
) -> None:
    store, kubeconfig = bare
    store.patch(NODES, "n1", {"spec": {"taints": [FAULTY]}})

    assert run(["--kubeconfig", kubeconfig, "--set", "namespace=gone"]) == 1

    told = capsys.readouterr().err
    assert each_names(told.splitlines(), ("gone", "n1"), ("kubectl create namespace gone",))


def test_a_controller_in_another_namespace_is_named(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller_in("gpu-ops", monkeypatch)

    assert run(["--kubeconfig", kubeconfig]) == 1

    assert not missing(capsys.readouterr().err, "--set namespace=gpu-ops")
    assert store.read(NODES, "n1").body["spec"]["taints"] == [FAULTY]


def test_a_missing_right_is_told_before_anything_is_changed(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unhindered = RestCluster.create

    async def reviewing(cluster: RestCluster, resource: Resource, body: Any, *rest: str) -> bytes:
        if resource.kind != "SelfSubjectAccessReview":
            return await unhindered(cluster, resource, body, *rest)
        allowed = body["spec"]["resourceAttributes"]["resource"] not in ("nodes", "leases")
        return msgspec.json.encode({"status": {"allowed": allowed}})

    monkeypatch.setattr(RestCluster, "create", reviewing)
    before = store.version

    assert run(["--kubeconfig", kubeconfig]) == 1

    (told,) = capsys.readouterr().err.splitlines()
    assert not missing(told, "patch leases", SYSTEM, "patch nodes")
    assert missing(told, "delete") == ["delete"], "that is allowed"
    assert store.version == before


def test_a_kubeconfig_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--kubeconfig", "/nowhere"]) == 2
    assert not missing(capsys.readouterr().err, "/nowhere")
