"""`rekindle doctor` as a person calls it: of a file, and of a job in a served cluster."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from chaos.apiserver.client import Client
from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.kinds import CLAIMS
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.cli.doctor_command import INSTALL, run
from recover.doctor import manifest as manifests
from recover.doctor import report
from recover.doctor.case import Case, Finding, Part, Place, Severity
from recover.doctor.checks import CHECKS
from recover.doctor.look import look
from recover.k8s.kinds import CONFIGMAPS, JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS, RECIPES
from recover.kube.cluster import ListPage
from recover.model.modes import Mode
from recover.recipes.load import built_in
from recover.snapshot.find import NotFound
from recover.snapshot.manifests import documents
from recover.snapshot.read import CannotTell
from tests.facts import names
from tests.recover.served import served
from tests.recover.stories.why_cases import NOW

CASES = Path(__file__).parent / "doctor_cases"
JOB = (CASES / "job.yaml").read_text()
NO_CONSENT = JOB.replace("enabled", "disabled")
BUILT_IN = built_in()


def write(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


# --- a file -------------------------------------------------------------------------------------------------


def test_a_manifest_that_is_all_right_ends_with_0_and_says_what_was_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unmade = [check.name for check in CHECKS if check.needs]

    assert run(["-f", write(tmp_path, JOB)]) == 0

    printed = capsys.readouterr()
    subject, verdict, *_ = printed.out.splitlines()
    assert subject == "Job team/llm"
    assert names(verdict, len(CHECKS) - len(unmade), len(unmade))
    assert ", ".join(unmade) in printed.out
    assert printed.err == ""


def test_a_finding_is_told_with_its_place_what_follows_and_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = only_finding(NO_CONSENT)
    where = Place("Job team/llm", "metadata.labels[rekindle.dev/auto-recovery]", "disabled")
    assert (finding.severity, finding.where) == (Severity.FAILS, where)
    assert yaml.safe_load(finding.fix) == {"metadata.labels": {"rekindle.dev/auto-recovery": "enabled"}}

    assert run(["-f", write(tmp_path, NO_CONSENT)]) == 1

    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if names(line, finding.what, "not-opted-in"))
    assert names(lines[at + 1], where.object, where.field, where.value)
    assert names(lines[at + 2], finding.means)
    assert names(lines[at + 3], finding.fix)


def only_finding(manifest: str) -> Finding:
    """What the command has to tell of it."""
    (case,), _ = manifests.cases(documents(manifest, "job.yaml"), "job.yaml", BUILT_IN, NOW)
    (finding,) = report.examined(case).findings
    return finding


WITHOUT_CONSENT = JOB.replace("{rekindle.dev/auto-recovery: enabled}", "{}")


@pytest.mark.parametrize(
    ("manifest", "exit_status", "by_namespace"),
    [(WITHOUT_CONSENT, 0, True), (NO_CONSENT, 1, False)],
    ids=["nothing said", "disabled"],
)
def test_a_job_that_is_not_enabled_is_told_so_first_and_what_to_write_where(
    manifest: str, exit_status: int, by_namespace: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = only_finding(manifest)
    assert finding.name == "not-opted-in"

    assert run(["-f", write(tmp_path, manifest)]) == exit_status

    subject, verdict, *_ = capsys.readouterr().out.splitlines()
    assert subject == "Job team/llm"
    assert names(verdict, finding.fix)
    assert names(verdict, "namespace") is by_namespace


def test_a_consent_that_is_no_word_of_ours_is_told_with_the_words_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = NO_CONSENT.replace("disabled", '"true"')

    assert run(["-f", write(tmp_path, manifest)]) == 1

    finding = only_finding(manifest)
    assert finding.what in capsys.readouterr().out
    assert (finding.name, finding.where.value) == ("not-opted-in", "true")
    assert names(finding.what, "enabled", "observe", "disabled")


def test_standard_input_is_a_file_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))

    assert run(["-f", "-"]) == 0
    assert capsys.readouterr().out.startswith("Job team/llm\n")


def test_each_job_of_a_file_is_told_and_one_that_fails_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: llm}\n"

    assert run(["-f", write(tmp_path, "---\n".join([service, NO_CONSENT, JOB])), "-o", "json"]) == 1

    printed = capsys.readouterr()
    first, second = msgspec.json.decode(printed.out)["jobs"]
    assert [finding["name"] for finding in first["findings"]] == ["not-opted-in"]
    assert first["findings"][0]["severity"] == "fails"
    assert first["findings"][0]["where"] == {
        "object": "Job team/llm",
        "field": "metadata.labels[rekindle.dev/auto-recovery]",
        "value": "disabled",
    }
    assert second["findings"] == []
    unmade = {one["check"]: one["why"] for one in second["notMade"]}
    assert unmade.keys() == {check.name for check in CHECKS if check.needs}
    assert all(unmade.values())
    assert names(printed.err, 1, "Service", "llm")


def test_a_file_without_a_job_is_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-f", write(tmp_path, "kind: Service\n")]) == 3
    assert names(capsys.readouterr().err, tmp_path / "job.yaml")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("a: [", ["job.yaml", 1]),
        (JOB.replace("parallelism: 4", "parallelism: four"), ["spec.parallelism", "'four'"]),
        (
            JOB.replace("completions: 4", "completions: 4\n  backoffLimit: none"),
            [1, "spec.backoffLimit", "'none'", "int", "str"],
        ),
        (
            (CASES / "pytorchjob.yaml").read_text().replace("image: trainer", "env: [{name: A, value: 1}]"),
            [
                "spec.pytorchReplicaSpecs.Worker",
                "template.spec.containers[0].env[0].value",
                1,
                "str",
                "int",
            ],
        ),
    ],
)
def test_a_manifest_that_cannot_be_read_is_2_and_names_the_field(
    text: str, facts: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-f", write(tmp_path, text)]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert names(printed.err, *facts)


def test_a_job_or_a_file_is_asked_for_and_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["llm", "-f", "job.yaml"]) == 2
    err = capsys.readouterr().err
    assert names(err, "JOB", "-f", "FILE")
    assert err.count("\n") == 1


# --- a cluster ----------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> MemoryCluster:
    """The job runs, and nothing is wrong but that nobody reads its steps."""
    cluster = MemoryCluster(lambda: datetime.now(UTC))
    cluster.create(NAMESPACES, {"metadata": {"name": "team"}})
    cluster.create(NAMESPACES, {"metadata": {"name": "rekindle-system"}})
    state = {"data": {"mode": "recover", "since": NOW.isoformat()}}
    cluster.create(CONFIGMAPS, {"metadata": {"name": "rekindle-state"}, **state}, "rekindle-system")
    cluster.create(NODES, {"metadata": {"name": "node-3"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}})
    cluster.create(
        NODEHEALTHS,
        {
            "apiVersion": NODEHEALTHS.api_version,
            "kind": NODEHEALTHS.kind,
            "metadata": {"name": "node-3"},
        },
    )
    claim = {"metadata": {"name": "ckpt"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    cluster.create(CLAIMS, claim, "team")
    job = yaml.safe_load(JOB)
    made = cluster.create(JOBS, job, "team").body
    owner = {"kind": "Job", "name": "llm", "uid": made["metadata"]["uid"], "controller": True}
    spec = {**job["spec"]["template"]["spec"], "nodeName": "node-3"}
    for number in range(4):
        name = f"llm-{number}"
        cluster.create(
            PODS,
            {
                "metadata": {"name": name, "ownerReferences": [{**owner, "apiVersion": "batch/v1"}]},
                "spec": spec,
            },
            "team",
        )
        cluster.patch(PODS, name, {"status": {"phase": "Running"}}, namespace="team", subresource="status")
    return cluster


@pytest.fixture
def kubeconfig(store: MemoryCluster, tmp_path: Path) -> Iterator[str]:
    with served(store, tmp_path) as path:
        yield path


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
    """An API server, as far as it tells its version and has empty lists, that serves no kind of ours."""

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


class ApiServer(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Whoever has asked was gone before the answer."""


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


# --- refusals of the API server -----------------------------------------------------------------------------


class Refusing(Client):
    """The store, but for one kind of request on one resource, which is answered with an error."""

    def __init__(self, store: MemoryCluster, verb: str, plural: str, error: Exception) -> None:
        super().__init__(store, "tester")
        self._on, self._error = (verb, plural), error

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        if self._on == ("get", resource.plural):
            raise self._error
        return await super().get(resource, name, namespace)

    async def list(self, resource: Resource, **asked: Any) -> ListPage:
        if self._on == ("list", resource.plural):
            raise self._error
        return await super().list(resource, **asked)


FORBIDDEN = ApiError(403, "Forbidden", "you may not")


async def looked(store: MemoryCluster, verb: str, plural: str, error: Exception) -> tuple[Case, list[str]]:
    return await look(Refusing(store, verb, plural, error), "llm", "team", NOW)


@pytest.mark.parametrize(
    ("verb", "plural", "part"),
    [
        ("get", "configmaps", Part.MODE),
        ("list", "nodes", Part.NODES),
        ("list", "nodehealths", Part.HEALTH),
        ("list", "pods", Part.RUNNING),
        ("get", "persistentvolumeclaims", Part.CLAIM),
    ],
)
async def test_what_one_may_not_read_leaves_only_its_own_checks_unmade(
    verb: str, plural: str, part: Part, store: MemoryCluster
) -> None:
    case, _ = await looked(store, verb, plural, FORBIDDEN)

    assert set(case.unread) == {part}
    assert case.unread[part]


async def test_who_may_not_list_namespaces_may_read_the_one_of_the_job(store: MemoryCluster) -> None:
    case, _ = await looked(store, "list", "namespaces", FORBIDDEN)

    assert case.namespace is not None
    assert case.unread == {}


async def test_a_failing_api_server_and_a_missing_object_are_no_missing_right(store: MemoryCluster) -> None:
    failure = ApiError(500, "InternalError", "etcd is away")
    failing, _ = await looked(store, "get", "configmaps", failure)
    missing, _ = await looked(store, "get", "configmaps", ApiError(404, "NotFound", "none"))
    forbidden, _ = await looked(store, "get", "configmaps", FORBIDDEN)

    assert names(failing.unread[Part.MODE], "rekindle-system/rekindle-state", 500, failure.message)
    assert names(missing.unread[Part.MODE], "rekindle-system/rekindle-state")
    assert not names(missing.unread[Part.MODE], 404)
    assert names(forbidden.unread[Part.MODE], FORBIDDEN.message)
    assert not names(missing.unread[Part.MODE], FORBIDDEN.message)


async def test_who_may_not_read_policies_does_not_know_of_them_and_who_may_does(store: MemoryCluster) -> None:
    refused, _ = await looked(store, "get", "mutatingadmissionpolicies", FORBIDDEN)
    missing, _ = await looked(store, "get", "mutatingadmissionpolicies", ApiError(404, "NotFound", "none"))

    assert (refused.adds_environment, missing.adds_environment) == (None, False)


async def test_recipes_of_ones_own_that_cannot_be_read_are_left_out_and_said(store: MemoryCluster) -> None:
    case, notes = await looked(store, "list", "recipes", FORBIDDEN)

    assert "paddle-autogrow-crash" in case.recipes
    (note,) = notes
    assert names(note, "recipes.rekindle.dev", FORBIDDEN.message)


async def test_a_mode_that_is_no_mode_is_not_taken_for_one(store: MemoryCluster) -> None:
    store.patch(CONFIGMAPS, "rekindle-state", {"data": {"mode": "sleep"}}, namespace="rekindle-system")

    case, _ = await looked(store, "", "", FORBIDDEN)

    assert "rekindle-system/rekindle-state" in case.unread[Part.MODE]
    assert case.mode is Mode.OBSERVE


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ApiError(404, "NotFound", "gone"), NotFound),
        (ApiError(500, "InternalError", "etcd"), CannotTell),
        (ReplyLost("GET: timeout"), CannotTell),
    ],
)
async def test_there_is_no_answer_without_the_job_itself(
    error: Exception, kind: type[Exception], store: MemoryCluster
) -> None:
    with pytest.raises(kind):
        await looked(store, "get", "jobs", error)


async def test_a_job_that_is_gone_has_nothing_to_look_at(store: MemoryCluster) -> None:
    store.delete(JOBS, "llm", Deletion(propagation=Propagation.BACKGROUND), namespace="team")

    with pytest.raises(NotFound):
        await looked(store, "", "", FORBIDDEN)
