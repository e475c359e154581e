"""Tests live reads in the executor: a result ends its chain or lets the chain continue, and goes into the
caches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, NODES, PODS, RECOVERIES
from recover.kube.cluster import ListPage
from recover.model import World
from recover.model.actions import Action, ConfirmGone, ConfirmListed, Patch, Plan
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.confirm import NO_NEWS_S, READ_S
from recover.runtime.execute import Executor
from recover.runtime.limiter import READS_OF_ONE_MAX, Urgency
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.runtime.test_execute import START
from tests.recover.scripted import MISSING, Scripted, raw

NODE = ConfirmGone(what="confirm-node-gone", resource=NODES, name="n1")
JOB = ConfirmGone(what="confirm-job-gone", resource=JOBS, name="llm", namespace="ml", uid="llm-uid")
PODS_ENDED = ConfirmListed(what="confirm-pods-ended", resource=PODS, namespace="ml", labels="job=llm")
ACT = Patch(what="act", resource=NODES, name="n9", body={})


def node(version: int = 5, uid: str = "n1-uid") -> bytes:
    return raw("n1", version, namespace="", uid=uid, apiVersion="v1", kind="Node")


def job(uid: str = "", **parts: Any) -> bytes:
    return raw("llm", 5, uid=uid, **{"apiVersion": "batch/v1", "kind": "Job", **parts})


def pod(name: str, version: int, node_name: str = "n1", phase: str = "Running") -> bytes:
    owner = [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "llm",
            "uid": "llm-uid",
            "controller": True,
        }
    ]
    metadata = {"name": name, "namespace": "ml", "uid": f"{name}-uid", "ownerReferences": owner}
    spec = {"nodeName": node_name, "containers": []}
    body = {
        "metadata": {**metadata, "resourceVersion": str(version)},
        "spec": spec,
        "status": {"phase": phase},
    }
    return msgspec.json.encode(body)


def confirm(
    cluster: Scripted, *chain: Action, before: Callable[[Observer], None] = lambda _: None
) -> tuple[float | None, Observer]:
    async def main(clock: Clock) -> tuple[float | None, Observer]:
        observer = Observer(cluster, Settings(), lambda: None)
        before(observer)
        executor = Executor(cluster, observer, Metrics(), clock)
        return await executor.run(Plan(chains=(chain,), requeue_after_s=45.0)), observer

    return run(main, start=START)


def world(observer: Observer) -> World:
    return observer.world(Modes(begun(Mode.RECOVER, START)))


def acted(cluster: Scripted) -> bool:
    return ("patch", "n9") in cluster.calls


def test_a_node_that_the_api_server_does_not_have_is_proven_gone_and_the_chain_goes_on() -> None:
    cluster = Scripted(get=[MISSING])

    _, observer = confirm(cluster, NODE, ACT)

    assert acted(cluster)
    assert world(observer).has_no_node("n1")
    assert not world(observer).has_no_node("n2"), "nobody has asked"


def test_a_node_that_exists_is_in_the_cache_then_and_the_decision_is_made_again() -> None:
    cluster = Scripted(get=[node()])

    wait_s, observer = confirm(cluster, NODE, ACT)

    assert not acted(cluster)
    assert wait_s is not None
    assert wait_s < 1
    assert "n1" in observer.nodes.rows


def test_a_node_that_is_in_the_cache_by_now_ends_the_chain_too() -> None:
    cluster = Scripted(get=[node()])

    confirm(cluster, NODE, ACT, before=lambda observer: observer.absorb(NODES, node()))

    assert not acted(cluster)


@pytest.mark.parametrize("answer", [ApiError(500, "InternalError", "etcd"), ReplyLost("no route")])
def test_no_answer_proves_nothing(answer: Exception) -> None:
    cluster = Scripted(get=[answer] * 9)

    _, observer = confirm(cluster, NODE, ACT)

    assert not acted(cluster)
    assert not world(observer).has_no_node("n1")


@pytest.mark.parametrize("what", ["the node registers", "a pod is bound to it"])
def test_a_proof_is_forgotten_once_something_newer_speaks_of_the_node(what: str) -> None:
    _, observer = confirm(Scripted(get=[MISSING]), NODE)
    assert world(observer).has_no_node("n1")

    if what == "the node registers":
        observer.absorb(NODES, node())
        assert not world(observer).has_no_node("n1")
        observer.nodes.apply(_deleted(node(7)))
    else:
        observer.absorb(PODS, pod("llm-0", 6))

    assert not world(observer).has_no_node("n1")
    assert world(observer).is_unsure_of_node("n1")


def test_an_answer_that_may_be_older_than_a_pod_bound_to_the_node_proves_nothing() -> None:
    """The node joined, and its pod appeared, while the answer was under way."""
    cluster = Scripted()
    seen: list[Observer] = []

    async def get(*_: Any) -> bytes:
        seen[0].absorb(PODS, pod("llm-0", 6))
        raise MISSING

    cluster.get = get  # type: ignore[method-assign]

    _, observer = confirm(cluster, NODE, ACT, before=seen.append)

    assert not acted(cluster)
    assert not world(observer).has_no_node("n1")


def test_a_status_of_a_pod_that_was_bound_before_is_no_news_of_its_node() -> None:
    cluster = Scripted(get=[MISSING])

    _, observer = confirm(cluster, NODE, before=lambda seen: seen.absorb(PODS, pod("llm-0", 4)))
    observer.absorb(PODS, pod("llm-0", 6, phase="Failed"))

    assert world(observer).has_no_node("n1")


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [(MISSING, True), (job("another"), True), (job(), False)],
)
def test_a_job_is_gone_if_none_of_its_uid_is_there(answer: Any, goes_on: bool) -> None:
    cluster = Scripted(get=[answer])

    confirm(cluster, JOB, ACT)

    assert acted(cluster) is goes_on


@pytest.mark.parametrize(
    "other",
    [
        job("another", kind="Secret", apiVersion="v1"),
        job("another", apiVersion="batch/v2"),
        job("another", namespace="kube-system"),
        raw("other", 5, uid="another", apiVersion="batch/v1", kind="Job"),
        b'{"kind":"JobList","items":[]}',
        b'"ok"',
    ],
)
def test_an_answer_that_is_not_the_object_that_was_asked_for_proves_nothing_and_is_not_kept(
    other: bytes,
) -> None:
    cluster = Scripted(get=[other])

    wait_s, observer = confirm(cluster, JOB, ACT)

    assert not acted(cluster)
    assert wait_s == NO_NEWS_S, "it is not asked without end"
    assert observer.unreadable()["Job"] == 0
    assert world(observer).gangs == {}


@pytest.mark.parametrize("parts", [{"namespace": "other"}, {"kind": "Secret"}])
def test_a_list_that_holds_something_else_proves_nothing_and_it_is_not_kept(parts: dict[str, str]) -> None:
    item = raw("llm-0", 5, **{"kind": "Pod", "spec": {"containers": []}, **parts})  # type: ignore[arg-type]
    cluster = Scripted(list=[ListPage([msgspec.Raw(item)], "9")])

    wait_s, observer = confirm(cluster, PODS_ENDED, ACT)

    assert not acted(cluster)
    assert wait_s == NO_NEWS_S
    assert observer.unreadable()["Pod"] == 0
    assert observer.pods.rows == {}


class Hanging(Scripted):
    """Never answers a read of an object of `tenant`. `most` is the largest number of reads that were under
    way at once."""

    in_flight = most = 0

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        if namespace != "tenant":
            raise MISSING
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(1e6)
        finally:
            self.in_flight -= 1
        return b""


def test_reads_that_hang_delay_neither_the_acts_nor_the_reads_of_others() -> None:
    reads = [
        ConfirmGone(what="confirm-recovery-gone", resource=RECOVERIES, name=f"r{n}", namespace="tenant")
        for n in range(300)
    ]
    cluster = Hanging()

    async def main(clock: Clock) -> None:
        executor = Executor(cluster, Observer(cluster, Settings(), lambda: None), Metrics(), clock)
        theirs = asyncio.create_task(executor.run(Plan(chains=tuple((read, ACT) for read in reads))))
        await asyncio.sleep(2.0)
        began_s = asyncio.get_running_loop().time()
        await executor.run(Plan(chains=((JOB, ACT), (ACT,))))

        assert asyncio.get_running_loop().time() - began_s < 0.1
        assert acted(cluster)
        assert executor.limiter.waiting()[Urgency.ACT] == len(reads) - cluster.most
        theirs.cancel()
        await asyncio.gather(theirs, return_exceptions=True)

    run(main, start=START)

    assert cluster.most == READS_OF_ONE_MAX
    assert cluster.in_flight == 0


def test_a_read_that_is_not_answered_soon_is_given_up_and_proves_nothing() -> None:
    read = ConfirmGone(what="confirm-recovery-gone", resource=RECOVERIES, name="r", namespace="tenant")
    cluster = Hanging()

    wait_s, _ = confirm(cluster, read, ACT)

    assert not acted(cluster)
    assert wait_s is not None
    assert wait_s < READ_S < 10, "before the client gives up itself"
    assert cluster.in_flight == 0


@pytest.mark.parametrize(
    ("cached", "goes_on"),
    [
        ([], False),
        ([pod("llm-0", 3)], False),
        ([pod("llm-0", 3, phase="Succeeded")], True),
        ([pod("llm-0", 5, phase="Succeeded"), pod("llm-1", 3)], True),
    ],
)
def test_a_list_lets_its_chain_go_on_only_if_the_cache_showed_each_pod_as_it_is(
    cached: list[bytes], goes_on: bool
) -> None:
    """A newer version counts only if a decision reads something new in it."""
    listed = ListPage([msgspec.Raw(pod("llm-0", 5, phase="Succeeded"))], "9")
    cluster = Scripted(list=[listed])

    def know(observer: Observer) -> None:
        for one in cached:
            observer.absorb(PODS, one)

    _, observer = confirm(cluster, PODS_ENDED, ACT, before=know)

    assert acted(cluster) is goes_on
    assert "ml/llm-0" in observer.pods.rows


def test_a_pod_that_cannot_be_read_is_news_only_once() -> None:
    """Otherwise an old pod with a strange field would prevent every start of its gang."""
    strange = msgspec.json.encode(
        {"metadata": {"name": "x", "namespace": "ml", "resourceVersion": "5"}, "spec": 1}
    )
    listed = ListPage([msgspec.Raw(strange)], "9")

    fresh, known = Scripted(list=[listed]), Scripted(list=[listed])
    confirm(fresh, PODS_ENDED, ACT)
    confirm(known, PODS_ENDED, ACT, before=lambda seen: seen.absorb(PODS, strange))

    assert (acted(fresh), acted(known)) == (False, True)


def test_all_pages_of_a_list_are_read() -> None:
    pages = [ListPage([], "9", next_page="2"), ListPage([msgspec.Raw(pod("llm-1", 5))], "9")]
    cluster = Scripted(list=pages)

    confirm(cluster, PODS_ENDED, ACT)

    assert [name for method, name in cluster.calls if method == "list"] == ["", "2"]
    assert not acted(cluster)


def _deleted(item: bytes) -> WatchEvent:
    return WatchEvent("DELETED", msgspec.Raw(item))
