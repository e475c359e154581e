"""Tests the writing of a plan: chains and their ends, lost replies, preconditions, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.api import Act
from recover.api.marks import UNHEALTHY
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, NODES, PODS
from recover.kube.errors import NotLeaderError
from recover.model.actions import Action, Create, Delete, Emit, Ensure, Patch, Plan
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.execute import REQUEUE_S, Executor
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.runtime.executing import SPEC, START, execute, patch
from tests.recover.scripted import CONFLICT, EXISTS, INVALID, MISSING, Scripted, raw


def test_a_write_carries_its_preconditions_and_its_answer_is_known_at_once() -> None:
    cluster = Scripted(patch=[raw("r1", 8, spec=SPEC, status={"phase": "Stopping"})])

    wait, observer = execute(cluster, (patch(),))

    assert cluster.bodies[0]["metadata"] == {"uid": "r1-uid", "resourceVersion": "7"}
    assert observer.recoveries.rows["ml/r1"].status.phase == "Stopping"
    assert wait == 45.0


def test_the_words_of_an_event_are_cut_by_bytes_as_the_api_server_counts_them() -> None:
    told = Emit(reason="RecoveryFailed", message="显" * 900, regarding={"name": "llm", "uid": "u"}, key="k")
    cluster = Scripted(create=[raw("e", 1)])

    execute(cluster, (told,))

    assert cluster.bodies[0]["note"] == "显" * 341


def test_a_refusal_is_told_without_the_pod_template_that_the_api_server_quotes() -> None:
    """People write secrets into variables, and other people may read the controller's log."""
    template = '{"Containers":[{"Env":[{"Name":"TOKEN","Value":"s3cret"}]}]}' + " " * 400
    words = f'Job.batch "llm" is invalid: spec.template.spec: Invalid value: {template}: field is immutable'
    cluster = Scripted(create=[ApiError(422, "Invalid", words)])
    body = {"metadata": {"name": "scan"}}
    scan = Create(what="create-scan", resource=PODS, name="scan", namespace="ml", body=body)

    _, observer = execute(cluster, (scan,))

    told = observer.world(Modes(begun(Mode.RECOVER, START))).refused["pods/ml/scan"].words
    where = '422 Invalid: Job.batch "llm" is invalid: spec.template.spec'
    assert told == f"{where}: Invalid value: (...): field is immutable"


def test_events_are_written_last_so_that_no_act_waits_for_them() -> None:
    cluster = Scripted()
    told = Emit(reason="NodeQuarantined", message="m", regarding={"name": "n1", "uid": "u"}, key="k")

    execute(cluster, (told, patch("r1")))

    assert [method for method, _ in cluster.calls] == ["patch", "create"]


@pytest.mark.parametrize(
    ("there", "patched"),
    [
        (
            raw(
                "n1", 8, namespace="", status={"conditions": [{"type": "MemoryPressure", "status": "False"}]}
            ),
            2,
        ),
        (raw("n1", 8, namespace="", spec={"unschedulable": True}), 1),
    ],
)
def test_a_conflict_over_what_no_decision_reads_is_tried_again_at_once_and_any_other_decided_anew(
    there: bytes, patched: int
) -> None:
    cluster = Scripted(patch=[CONFLICT], get=[there])
    cordon = Patch(what="w", resource=NODES, name="n1", uid="n1-uid", version="7", body={"spec": {}})

    wait, _ = execute(cluster, (cordon,), known=[(NODES, raw("n1", 7, namespace=""))])

    versions = [body["metadata"]["resourceVersion"] for body in cluster.bodies]
    assert versions == ["7", "8"][:patched]
    assert (wait == 45.0) is (patched == 2)


class Watched(Scripted):
    """Lets a watch bring one of these objects during each patch."""

    def __init__(self, brought: list[bytes], **answers: list[Any]) -> None:
        super().__init__(**answers)
        self.brought = brought
        self.observer = Observer(self, Settings(), lambda: None)

    async def patch(self, resource: Resource, *args: Any, **kwargs: Any) -> bytes:
        if self.brought:
            self.observer.absorb(NODES, self.brought.pop(0))
        return await super().patch(resource, *args, **kwargs)


def cordoned(cluster: Watched, *first: Patch) -> list[str]:
    """Writes these patches and then the cordon of n1, which was decided on version 7. Returns the versions
    that the patches name."""
    cordon = Patch(what="w", resource=NODES, name="n1", uid="n1-uid", version="7", body={"spec": {}})

    async def main(clock: Clock) -> None:
        cluster.observer.absorb(NODES, raw("n1", 7, namespace=""))
        await Executor(cluster, cluster.observer, Metrics(), clock).run(Plan(chains=((*first, cordon),)))

    run(main, start=START)
    of_node = (body["metadata"] for body in cluster.bodies if body["metadata"]["uid"] == "n1-uid")
    return [metadata["resourceVersion"] for metadata in of_node]


@pytest.mark.parametrize(
    ("there", "named"),
    [({"status": {"phase": "Running"}}, "8"), ({"spec": {"unschedulable": True}}, "7")],
    ids=["what no decision reads", "what one reads"],
)
def test_a_patch_that_waited_goes_to_the_version_that_a_watch_has_brought_unless_decisions_read_what_is_new(
    there: dict[str, Any], named: str
) -> None:
    cluster = Watched([raw("n1", 8, namespace="", **there)])

    assert cordoned(cluster, patch("r1")) == [named]


def test_after_a_conflict_an_object_that_a_watch_has_brought_is_not_read_again() -> None:
    cluster = Watched([raw("n1", 8, namespace="")], patch=[CONFLICT])

    assert cordoned(cluster) == ["7", "8"]
    assert ("get", "n1") not in cluster.calls


def test_a_chain_ends_at_its_first_failure_and_the_others_go_on() -> None:
    cluster = Scripted(patch=[CONFLICT])

    execute(cluster, (patch("r1"), patch("r2")), (Delete(what="d", resource=PODS, name="p", uid="u"),))

    assert ("patch", "r2") not in cluster.calls
    assert ("delete", "p") in cluster.calls


@pytest.mark.parametrize("failure", [CONFLICT, ReplyLost("no answer")], ids=["409", "lost reply"])
def test_what_is_stale_or_unknown_is_read_again_and_looked_at_again_soon(failure: Exception) -> None:
    cluster = Scripted(patch=[failure], get=[raw("r1", 9, spec=SPEC, status={"phase": "Stopping"})])

    wait, observer = execute(cluster, (patch(),))

    assert cluster.calls == [("patch", "r1"), ("get", "r1")]
    assert observer.recoveries.rows["ml/r1"].status.phase == "Stopping"
    assert wait is not None
    assert wait < 1


def test_an_object_that_exists_already_is_success_and_keeps_the_status_that_it_has() -> None:
    there = raw("i1", 5, namespace="", spec={}, status={"phase": "Open", "summary": "richer"})
    cluster = Scripted(create=[EXISTS], get=[there])
    create = Create(
        what="c", resource=INCIDENTS, name="i1", body={"metadata": {"name": "i1"}}, status={"phase": "Open"}
    )

    wait, _ = execute(cluster, (create,))

    assert wait == 45.0
    assert [method for method, _ in cluster.calls] == ["create", "get"]


def test_a_fresh_object_gets_its_status_although_the_schema_has_filled_in_defaults() -> None:
    filled = raw("i1", 5, namespace="", spec={}, status={"phase": "Open", "blame": "unknown"})
    cluster = Scripted(create=[filled])
    create = Create(
        what="c", resource=INCIDENTS, name="i1", body={"metadata": {"name": "i1"}}, status={"summary": "s"}
    )

    execute(cluster, (create,))

    assert [method for method, _ in cluster.calls] == ["create", "patch"]


def test_a_crash_between_the_create_and_its_status_is_made_good() -> None:
    cluster = Scripted(create=[EXISTS], get=[raw("i1", 5, namespace="", spec={})])
    create = Create(
        what="c", resource=INCIDENTS, name="i1", body={"metadata": {"name": "i1"}}, status={"phase": "Open"}
    )

    execute(cluster, (create,))

    assert [method for method, _ in cluster.calls] == ["create", "get", "patch"]


@pytest.mark.parametrize(
    "action",
    [
        Create(what="c", resource=INCIDENTS, name="i1", body={"metadata": {"name": "i1"}}),
        patch(),
    ],
    ids=["create", "patch"],
)
def test_an_object_that_the_api_calls_invalid_is_not_written_again_and_again(action: Action) -> None:
    cluster = Scripted(create=[INVALID], patch=[INVALID])

    wait, _ = execute(cluster, (action,))

    assert wait == 45.0  # not sooner than planned


def test_a_wrong_uid_means_that_another_object_bears_the_name_now() -> None:
    cluster = Scripted(patch=[INVALID], get=[raw("r1", 9, uid="another", spec=SPEC)])

    wait, _ = execute(cluster, (patch(),))

    assert wait is not None
    assert wait < 1


def test_an_overloaded_server_is_asked_again_a_few_times_and_then_later() -> None:
    cluster = Scripted(patch=[ApiError(429, "TooManyRequests", "slow down")] * 9)

    wait, _ = execute(cluster, (patch(),))

    assert len([c for c in cluster.calls if c[0] == "patch"]) == 4
    assert wait is not None
    assert wait < 1


@pytest.mark.parametrize("strict", [False, True])
def test_only_what_asks_for_it_is_refused_for_a_field_that_the_api_server_does_not_know(strict: bool) -> None:
    cluster = Scripted()
    made = Create(what="w", resource=INCIDENTS, name="i", body={"metadata": {"name": "i"}}, strict=strict)

    execute(cluster, (made,))

    assert cluster.strict == ([True] if strict else [False])


def test_a_write_that_the_lease_does_not_allow_is_no_success_and_ends_its_chain() -> None:
    cluster = Scripted(patch=[NotLeaderError("not the leader")])
    metrics = Metrics()

    wait, _ = execute(cluster, (patch(), patch("r2")), metrics=metrics)

    assert cluster.calls == [("patch", "r1")]
    assert wait == 1.0
    labels = {"what": "w", "outcome": "unfinished"}
    assert metrics.registry.get_sample_value("rekindle_writes_total", labels) == 1


@pytest.mark.parametrize(
    ("refused", "there", "wait_s"),
    [
        (CONFLICT, raw("r1", 9), 0.02),
        (CONFLICT, raw("r1", 7), 0.2),
        (CONFLICT, ReplyLost("no answer"), 0.2),
        (MISSING, MISSING, 0.2),
    ],
    ids=["is newer", "is what was patched", "is unknown", "is gone"],
)
def test_a_patch_is_decided_anew_at_once_only_where_something_newer_was_read(
    refused: ApiError, there: bytes | Exception, wait_s: float
) -> None:
    """A watch may be silent for a minute, and until then the caches contain nothing newer."""
    wait, _ = execute(Scripted(patch=[refused], get=[there]), (patch(),))

    assert wait == wait_s


def test_what_is_gone_already_is_deleted() -> None:
    cluster = Scripted(delete=[MISSING])

    wait, _ = execute(cluster, (Delete(what="d", resource=PODS, name="p", uid="u"), patch()))

    assert wait == 45.0
    assert ("patch", "r1") in cluster.calls


def test_our_own_object_is_created_where_it_is_missing_without_the_nulls_of_a_patch() -> None:
    body = {"metadata": {"name": "env"}, "data": {"A": "1", "B": None}}
    cluster = Scripted(patch=[MISSING])

    execute(cluster, (Ensure(what="e", resource=CONFIGMAPS, name="env", namespace="ml", body=body),))

    assert cluster.bodies[-1]["data"] == {"A": "1"}


class Cut(Scripted):
    """Loses the reply to a patch, and then answers no read for ten seconds."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        await super().get(resource, name, namespace)
        if len(self.calls) < 4:
            await asyncio.sleep(5)
            raise ReplyLost("connection refused")
        return raw("n1", 8, namespace="")


def test_a_quarantine_without_an_answer_counts_until_the_node_was_read() -> None:
    """Otherwise another node would take the place of the first in the budget."""
    taint = {"key": UNHEALTHY, "value": "device-lost", "effect": "NoSchedule"}
    body = {"spec": {"unschedulable": True, "taints": [taint]}}
    cordon = Patch(what=Act.QUARANTINE_NODE, resource=NODES, name="n1", uid="n1-uid", body=body)
    cluster = Cut(patch=[ReplyLost("connection reset")])

    async def main(clock: Clock) -> float | None:
        executor = Executor(cluster, Observer(cluster, Settings(), lambda: None), Metrics(), clock)
        writing = asyncio.create_task(executor.begin((cordon,)))
        await asyncio.sleep(9)
        assert executor.being_quarantined == {"n1"}
        again_s = await writing
        assert not executor.being_quarantined
        return again_s

    assert run(main, start=START) == REQUEUE_S
    assert cluster.calls == [("patch", "n1"), *[("get", "n1")] * 3]


class SlowEvents(Scripted):
    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        await asyncio.sleep(5)
        return await super().create(resource, body, namespace, strict=strict)


def test_nobody_waits_for_an_event_that_may_be_a_task_of_its_own() -> None:
    """Events are often in an etcd of their own, which may hang."""
    told = Emit(reason="R", message="m", regarding={"name": "n1", "uid": "u"}, key="k")
    cluster = SlowEvents()

    async def main(clock: Clock) -> None:
        executor = Executor(cluster, Observer(cluster, Settings(), lambda: None), Metrics(), clock)
        async with asyncio.TaskGroup() as events:
            await executor.run(Plan(chains=((patch(), told),)), events)
            assert (clock.now() - START).total_seconds() < 1

    run(main, start=START)
    assert [method for method, _ in cluster.calls] == ["patch", "create"]


def test_an_event_that_cannot_be_written_holds_nothing_up() -> None:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    cluster = Scripted(create=[ApiError(403, "Forbidden", "no")])

    wait, _ = execute(cluster, (Emit(reason="R", message="m", regarding=about), patch()))

    assert wait == 45.0
    assert ("patch", "r1") in cluster.calls
