"""Tests `rekindle why` and `rekindle status` when the API server refuses requests: what they leave out,
and what they print about it."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.cli.doctor_command import run as doctor
from recover.cli.status_command import why
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODES, RECOVERIES
from recover.kube.cluster import ListPage
from recover.kube.rest import RestCluster
from recover.model import Node
from recover.snapshot.find import NotFound, find, namespace_of
from recover.snapshot.read import CannotTell, read
from recover.stories.absence import Absence
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.overview import Overview, StatusFacts, overview
from recover.stories.why_job import why_job
from recover.stories.why_node import why_node
from recover.stories.words import Story, Tone
from recover.workloads import WORKLOADS
from tests.facts import missing
from tests.recover.cli.why_jobs import a_job
from tests.recover.stories.why_cases import LLM, finding, health


class Refusing:
    """An empty cluster that answers the list of one resource, or of all resources, with an error."""

    def __init__(self, resource: Resource | None, error: Exception) -> None:
        self._resource, self._error = resource, error

    async def list(self, resource: Resource, **_: Any) -> ListPage:
        if self._resource in (None, resource):
            raise self._error
        return ListPage([], "1")

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        raise ApiError(403, "Forbidden", "no rights")


async def test_missing_crds_say_how_to_install_them() -> None:
    cluster = Refusing(
        RECOVERIES, ApiError(404, "NotFound", "the server could not find the requested resource")
    )

    with pytest.raises(CannotTell) as raised:
        await read(cluster)

    assert not missing(str(raised.value), "recoveries.rekindle.dev", "`rekindle crds | kubectl apply -f -`")


@pytest.mark.parametrize("resource", [w.resource for w in WORKLOADS], ids=lambda r: r.kind)
async def test_a_framework_that_is_not_installed_is_no_problem(resource: Resource) -> None:
    cluster = Refusing(
        resource, ApiError(404, "NotFound", "the server could not find the requested resource")
    )

    snapshot = await read(cluster)

    assert snapshot.notes == []
    assert snapshot.hidden == set()
    with pytest.raises(NotFound) as raised:
        find(f"{resource.plural}/llm", snapshot)
    assert not missing(str(raised.value), resource.kind, resource.api_version, "CRD")


async def test_what_one_may_not_list_is_left_out_and_said() -> None:
    refusal = ApiError(403, "Forbidden", "nodes is forbidden")

    snapshot = await read(Refusing(NODES, refusal))

    (note,) = snapshot.notes
    assert not missing(note, "nodes", refusal.message)
    assert snapshot.hidden == {"nodes"}
    with pytest.raises(NotFound) as raised:
        find("node/n1", snapshot)
    assert not missing(str(raised.value), "'node/n1'", "nodes")


@pytest.mark.parametrize(
    ("asked", "namespace"),
    [("ml/llm", "ml"), ("llm", ""), ("job/llm", ""), ("Jobs/llm", ""), ("node/n1", "")],
)
def test_a_namespace_stands_before_a_name_where_no_kind_does(asked: str, namespace: str) -> None:
    assert namespace_of(asked) == namespace


async def test_who_may_view_one_namespace_need_not_say_it_twice() -> None:
    class OfOneNamespace:
        async def list(self, resource: Resource, *, namespace: str = "", **_: Any) -> ListPage:
            if namespace != "ml" or not resource.namespaced:
                raise ApiError(403, "Forbidden", "no rights")
            return ListPage([], "1")

        async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
            assert resource == NAMESPACES
            return msgspec.json.encode({"metadata": {"name": name}})

    snapshot = await read(OfOneNamespace(), instead="ml")

    assert snapshot.hidden == {"nodes", "nodehealths", "incidents", "namespaces"}
    assert snapshot.namespaces.keys() == {"ml"}, "who may not list namespaces may read their own one"


async def test_who_may_list_nothing_is_not_told_that_all_is_well() -> None:
    cluster = Refusing(None, ApiError(403, "Forbidden", "no rights"))

    with pytest.raises(CannotTell) as raised:
        await read(cluster)
    assert not missing(str(raised.value), "nodehealths", "rekindle-viewer", "-n")
    with pytest.raises(CannotTell) as raised:
        await read(cluster, namespace="ml")
    assert missing(str(raised.value), "nodehealths", "rekindle-viewer", "-n") == ["-n"]


NO_RIGHT = ApiError(403, "Forbidden", "jobs is forbidden")
NO_KIND = ApiError(404, "NotFound", "the server could not find the requested resource")
FAILING = ApiError(500, "InternalError", "the conversion webhook does not answer")
ABSENCES = [
    (None, Absence.DELETED),
    (NO_RIGHT, Absence.FORBIDDEN),
    (NO_KIND, Absence.NOT_SERVED),
    (FAILING, Absence.UNANSWERED),
]


@pytest.mark.parametrize(("error", "absence"), ABSENCES, ids=["deleted", "no right", "no kind", "failing"])
@pytest.mark.parametrize("command", ["why", "doctor"])
def test_a_job_that_is_not_listed_is_told_as_gone_only_where_it_is(
    error: ApiError | None,
    absence: Absence,
    command: str,
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if error is None:
        store.delete(JOBS, "llm", Deletion(propagation=Propagation.BACKGROUND), namespace="team")
    unhindered = RestCluster.list

    async def refusing(self: RestCluster, resource: Resource, **asked: Any) -> ListPage:
        if error is not None and resource == JOBS:
            raise error
        return await unhindered(self, resource, **asked)

    monkeypatch.setattr(RestCluster, "list", refusing)

    ended = (why if command == "why" else doctor)(["team/llm", "--kubeconfig", kubeconfig])

    printed = capsys.readouterr()
    assert ended == (0 if command == "why" else 3)
    assert absence.of(LLM) in (printed.out if command == "why" else printed.err)


@pytest.mark.parametrize("asked", ["team/odd", "odd", "job/odd"])
def test_a_job_of_which_nothing_is_known_but_that_it_cannot_be_read_is_told_with_the_reason(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str], asked: str
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": []}}
    store.create(JOBS, {"metadata": {"name": "odd"}, "spec": {"template": template}}, "team")
    store.patch(JOBS, "odd", {"spec": {"parallelism": "four"}}, namespace="team")

    assert doctor([asked, "--kubeconfig", kubeconfig]) == 3

    assert not missing(capsys.readouterr().err, "jobs", "team/odd", "Expected")


def test_a_job_that_cannot_be_decoded_is_not_told_as_gone(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.patch(JOBS, "llm", {"spec": {"parallelism": "four"}}, namespace="team")

    assert why(["team/llm", "--kubeconfig", kubeconfig]) == 0

    assert Absence.UNDECODABLE.of(LLM) in capsys.readouterr().out


async def test_what_answers_and_knows_no_nodes_is_no_api_server() -> None:
    with pytest.raises(CannotTell, match="Kubernetes") as raised:
        await read(Refusing(None, NO_KIND))

    assert "rekindle crds" not in str(raised.value), "that would not help"


async def test_a_job_whose_namespace_may_not_be_read_is_not_said_to_be_left_alone() -> None:
    class WithoutNamespaces(Refusing):
        async def list(self, resource: Resource, **asked: Any) -> ListPage:
            if resource == JOBS:
                body = {**a_job("llm"), "apiVersion": "batch/v1", "kind": "Job"}
                body["metadata"] = {"name": "llm", "namespace": "team", "uid": "u", "resourceVersion": "1"}
                return ListPage([msgspec.Raw(msgspec.json.encode(body))], "1")
            return await super().list(resource, **asked)

    found = find("team/llm", await read(WithoutNamespaces(NAMESPACES, NO_RIGHT)))

    assert isinstance(found, Job)
    assert found.consent is None
    story = why_job(found, [], [], datetime.now(UTC))
    assert not missing(story.verdict.text, "rekindle.dev/auto-recovery", "team")
    assert not any("auto-recovery" in command.run for command in story.commands)


async def test_a_namespace_that_may_not_be_listed_is_not_told_as_missing() -> None:
    snapshot = await read(Refusing(NAMESPACES, NO_RIGHT))

    with pytest.raises(NotFound) as raised:
        find("team/llm", snapshot)
    assert missing(str(raised.value), "'team/llm'", "namespaces", "'team'") == ["'team'"]


@pytest.mark.parametrize("hidden", ["nodes", "nodehealths"])
def test_nodes_that_may_not_be_read_are_not_told_as_gone_or_blind(hidden: str) -> None:
    node = Node(name="node-3", uid="u", version="1", is_accelerated=True)
    nodes = {} if hidden == "nodes" else {"node-3": node}
    report = {} if hidden == "nodehealths" else {"node-3": health(finding())}

    now = datetime.now(UTC)

    def told(hidden: set[str]) -> tuple[Overview, Story]:
        shown = overview(StatusFacts(nodes=nodes, health=report, hidden=hidden), now)
        return shown, why_node(
            "node-3", nodes.get("node-3"), report.get("node-3"), [], now, Around(hidden=hidden)
        )

    (shown, story), (as_gone, told_as_gone) = told({hidden}), told(set())
    assert shown.tables != as_gone.tables
    assert "SOURCE" not in [column for table in shown.tables for column in table.columns]
    assert story.verdict.tone is Tone.WAITING
    assert story.verdict != told_as_gone.verdict
    if hidden == "nodehealths":
        assert story.sections != told_as_gone.sections


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ApiError(401, "Unauthorized", "token expired"), ("token expired",)),
        (ApiError(500, "InternalError", "etcd"), ("incidents", "etcd")),
        (ReplyLost("GET /: timeout"), ("GET", "timeout")),
    ],
)
async def test_other_failures_are_told_in_one_line(error: Exception, named: tuple[str, ...]) -> None:
    with pytest.raises(CannotTell) as raised:
        await read(Refusing(INCIDENTS, error))

    (line,) = str(raised.value).splitlines()
    assert not missing(line, *named)


async def test_a_list_that_expires_between_pages_is_read_again() -> None:
    class Expiring:
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def list(self, resource: Resource, *, page: str = "", **_: Any) -> ListPage:
            if resource != NAMESPACES:
                return ListPage([], "1")
            self.asked.append(page)
            if page and self.asked.count(page) == 1:
                raise ApiError(410, "Expired", "the continue token is too old")
            name = "b" if page else "a"
            return ListPage(
                [msgspec.Raw(b'{"metadata":{"name":"%s"}}' % name.encode())], "1", "" if page else "more"
            )

    cluster = Expiring()

    assert sorted((await read(cluster)).namespaces) == ["a", "b"]
    assert cluster.asked == ["", "more", "", "more"]
