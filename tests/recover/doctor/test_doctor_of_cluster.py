"""Tests `rekindle doctor JOB` with a job of a served cluster and all objects around the job."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from chaos.apiserver.client import Client
from chaos.apiserver.deletion import Deletion
from chaos.apiserver.kinds import CLAIMS
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError
from recover.cli.doctor_command import INSTALL, run
from recover.doctor.case import Severity
from recover.doctor.checks import CHECKS
from recover.doctor.look import look
from recover.k8s.kinds import CONFIGMAPS, JOBS, LEASES, NAMESPACES, PODS, RECIPES
from recover.kube.lease import LEASE
from recover.policy.settings import Settings
from tests.facts import names
from tests.recover.doctor.manifests import JOB, only_finding, write
from tests.recover.stories.why_cases import NOW


def test_a_job_of_the_cluster_is_looked_at_with_all_that_stands_around_it(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["team/llm", "--kubeconfig", kubeconfig]) == 0

    printed = capsys.readouterr()
    subject, verdict, *rest = printed.out.splitlines()
    assert subject == "Job team/llm"
    assert names(verdict, 1, len(CHECKS) - 1)
    assert any(names(line, "no-steps", 4) for line in rest)
    assert "kubectl annotate job -n team llm 'rekindle.dev/step-template=step {step}/'" in printed.out
    assert printed.err == ""


def test_what_will_fail_in_the_cluster_is_exit_status_1(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.patch(CONFIGMAPS, "rekindle-state", {"data": {"mode": "observe"}}, namespace="rekindle-system")
    store.patch(JOBS, "llm", {"metadata": {"annotations": {"rekindle.dev/hold": "true"}}}, namespace="team")

    assert run(["llm", "-o", "json", "--kubeconfig", kubeconfig]) == 1

    (job,) = msgspec.json.decode(capsys.readouterr().out)["jobs"]
    assert [f["name"] for f in job["findings"] if f["severity"] == "fails"] == ["mode-observe", "held"]


def test_the_mode_is_read_in_the_namespace_of_the_release(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.delete(CONFIGMAPS, "rekindle-state", Deletion(), namespace="rekindle-system")
    store.create(NAMESPACES, {"metadata": {"name": "ops"}})
    labels = {"app.kubernetes.io/name": "rekindle", "app.kubernetes.io/component": "settings"}
    settings = {"metadata": {"name": "rekindle-settings", "labels": labels}, "data": {}}
    state = {"data": {"mode": "observe", "since": NOW.isoformat()}}
    store.create(CONFIGMAPS, settings, "ops")
    store.create(CONFIGMAPS, {"metadata": {"name": "rekindle-state"}, **state}, "ops")

    assert run(["llm", "-o", "json", "--kubeconfig", kubeconfig]) == 1

    (job,) = msgspec.json.decode(capsys.readouterr().out)["jobs"]
    (finding,) = (one for one in job["findings"] if one["name"] == "mode-observe")
    assert finding["where"]["object"] == "ConfigMap ops/rekindle-state"
    assert names(finding["fix"], "helm upgrade", "-n ops", "mode=recover")
    assert job["notMade"] == []


def test_a_claim_that_is_not_there_is_a_finding_and_not_a_check_that_was_not_made(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.delete(CLAIMS, "ckpt", Deletion(), namespace="team")

    assert run(["llm", "-o", "json", "--kubeconfig", kubeconfig]) == 1

    (job,) = msgspec.json.decode(capsys.readouterr().out)["jobs"]
    (finding,) = (one for one in job["findings"] if one["name"] == "claim-missing")
    assert finding["where"]["object"] == "PersistentVolumeClaim team/ckpt"
    assert finding["where"]["field"] == "metadata.name"
    assert job["notMade"] == []


def test_a_manifest_without_consent_says_that_its_namespace_may_consent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = JOB.replace("  labels: {rekindle.dev/auto-recovery: enabled}\n", "")
    assert without != JOB

    assert run(["-f", write(tmp_path, without)]) == 0

    finding = only_finding(without)
    assert (finding.name, finding.severity) == ("not-opted-in", Severity.RISKS)
    assert names(finding.what, "namespace")
    assert names(finding.means, "namespace")
    printed = capsys.readouterr().out
    assert finding.what in printed
    assert finding.means in printed


def test_a_recipe_of_ones_own_is_known_ahead(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = {"compare": {"left": "cuda.runtime", "is": "newer-than", "right": "12.0"}}
    spec = {
        "title": "Programs of this CUDA version stop at night",
        "source": "a test of this command",
        "match": {"allOf": [{"log": "good night"}, runtime]},
        "change": {"advise": "Let it sleep."},
    }
    identity = {"apiVersion": RECIPES.api_version, "kind": RECIPES.kind, "metadata": {"name": "night"}}
    store.create(RECIPES, {**identity, "spec": spec})
    told = {"metadata": {"annotations": {"rekindle.dev/cuda-runtime": "12.4"}}}
    store.patch(JOBS, "llm", told, namespace="team")

    assert run(["llm", "-o", "json", "--kubeconfig", kubeconfig]) == 0

    (job,) = msgspec.json.decode(capsys.readouterr().out)["jobs"]
    assert [f["what"] for f in job["findings"] if f["name"] == "night"] == [spec["title"]]


@pytest.mark.parametrize(
    ("asked", "facts"), [("lm", ["team/llm"]), ("node-3", ["node-3", "rekindle why", "node/node-3"])]
)
def test_what_is_no_job_is_3(
    asked: str, facts: list[str], kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([asked, "--kubeconfig", kubeconfig]) == 3
    assert names(capsys.readouterr().err, *facts)


def test_a_job_of_several_namespaces_gets_the_commands_that_say_which(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.create(NAMESPACES, {"metadata": {"name": "other"}})
    store.create(JOBS, {**yaml.safe_load(JOB), "metadata": {"name": "llm"}}, "other")

    assert run(["llm", "--kubeconfig", kubeconfig]) == 3
    err = capsys.readouterr().err
    assert names(err, "rekindle doctor -n other job/llm", "rekindle doctor -n team job/llm")


@pytest.mark.parametrize("asked", [["llm"], []], ids=["job", "installation"])
def test_a_server_that_does_not_answer_is_3(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*asked, "--server", "http://127.0.0.1:9"]) == 3
    assert names(capsys.readouterr().err, "127.0.0.1:9")


class KnowsNothing(BaseHTTPRequestHandler):
    """An API server that reports its version and empty lists, and serves none of Rekindle's kinds."""

    otherwise = 404
    lists = True

    def do_GET(self) -> None:
        answer: dict[str, Any] | None = {"gitVersion": "v1.36.3"} if self.path == "/version" else None
        if self.lists and self.path.startswith("/api/v1/"):
            answer = {"metadata": {"resourceVersion": "1"}, "items": []}
        self.send_response(200 if answer else self.otherwise)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        refused = {"kind": "Status", "reason": "Because", "message": f"not {self.path}"}
        self.wfile.write(msgspec.json.encode(answer or refused))

    def log_message(self, *_: Any) -> None:
        pass


class Forbids(KnowsNothing):
    otherwise = 403
    lists = False


class NoApiServer(KnowsNothing):
    lists = False


def test_a_controller_that_was_started_by_hand_is_not_told_as_missing(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    space = Settings().namespace
    spec = {
        "holderIdentity": "by-hand",
        "leaseDurationSeconds": 15,
        "renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
    }
    with contextlib.suppress(ApiError):
        store.create(NAMESPACES, {"metadata": {"name": space}})
    store.create(LEASES, {"metadata": {"name": LEASE, "namespace": space}, "spec": spec})

    assert run(["--kubeconfig", kubeconfig]) == 3

    err = capsys.readouterr().err
    assert names(err, "by-hand", "rekindle doctor NAMESPACE/JOB")
    assert "helm install" not in err


class ApiServer(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Ignores errors of callers that closed the connection before the answer."""


@pytest.mark.parametrize(
    ("asked", "api_server", "facts"),
    [
        (["llm"], KnowsNothing, ["rekindle doctor", "rekindle crds"]),
        (["llm"], NoApiServer, ["Kubernetes"]),
        ([], KnowsNothing, [INSTALL]),
        (["llm"], Forbids, ["nodehealths", "rekindle-viewer"]),
    ],
)
def test_a_cluster_without_rekindle_or_without_the_right_to_see_it_is_3(
    asked: list[str],
    api_server: type[KnowsNothing],
    facts: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ApiServer(("127.0.0.1", 0), api_server) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            assert run([*asked, "--server", f"http://127.0.0.1:{server.server_port}"]) == 3
        finally:
            server.shutdown()

    assert names(capsys.readouterr().err, *facts)


async def test_only_its_own_pods_that_have_not_ended_are_looked_at(store: MemoryCluster) -> None:
    store.create(
        PODS, {"metadata": {"name": "another"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}, "team"
    )
    store.patch(PODS, "llm-0", {"status": {"phase": "Succeeded"}}, namespace="team", subresource="status")

    case, _ = await look(Client(store, "tester"), "llm", "team", NOW)

    assert [pod.name for pod in case.pods] == ["llm-1", "llm-2", "llm-3"]
