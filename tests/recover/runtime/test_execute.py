"""Writing a plan: chains and their ends, lost replies, preconditions, refusals."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, JOBS, NODEHEALTHS, NODES, PODS, RECIPES, RECOVERIES
from recover.kube.errors import NotLeaderError
from recover.model.actions import Action, Create, Delete, Emit, Ensure, Patch, Plan
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.execute import Executor
from recover.runtime.limiter import SLOTS_MAX
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.scripted import CONFLICT, EXISTS, INVALID, MISSING, Scripted, quarantine, raw

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPEC = {
    "gang": {"apiVersion": "v1", "kind": "Job", "namespace": "ml", "name": "llm", "uid": "llm-uid"},
    "number": 1,
    "incident": "i",
    "fault": "unknown",
    "detectedAt": "2026-11-21T12:00:00Z",
}


NOT_BOUND = ApiError(
    403,
    "Forbidden",
    'pods is forbidden: User "system:serviceaccount:rekindle-system:rekindle-controller" cannot create '
    'resource "pods" in API group "" in the namespace "ml"',
)
"""As an API server says, too, in its first seconds, when it has not read the bindings yet."""


def execute(
    cluster: Scripted,
    *chains: tuple[Action, ...],
    known: Sequence[tuple[Resource, bytes]] = (),
    metrics: Metrics | None = None,
) -> tuple[float | None, Observer]:
    """Runs the plan in virtual time; returns when to look again, and the caches."""

    async def main(clock: Clock) -> tuple[float | None, Observer]:
        observer = Observer(cluster, Settings(), lambda: None)
        for resource, there in known:
            observer.absorb(resource, there)
        executor = Executor(cluster, observer, metrics or Metrics(), clock)
        return await executor.run(Plan(chains=chains, look_again_s=45.0)), observer

    return run(main, start=START)


def patch(name: str = "r1", *, uid: str = "r1-uid") -> Patch:
    body = {"status": {"phase": "Stopping"}}
    return Patch(
        what="w",
        resource=RECOVERIES,
        name=name,
        namespace="ml",
        uid=uid,
        version="7",
        subresource="status",
        body=body,
    )


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
    """People write secrets into variables, and the controller's log is not theirs."""
    template = '{"Containers":[{"Env":[{"Name":"TOKEN","Value":"s3cret"}]}]}' + " " * 400
    words = f'Job.batch "llm" is invalid: spec.template.spec: Invalid value: {template}: field is immutable'
    cluster = Scripted(create=[ApiError(422, "Invalid", words)])
    body = {"metadata": {"name": "scan"}}
    scan = Create(what="create-scan", resource=PODS, name="scan", namespace="ml", body=body)

    _, observer = execute(cluster, (scan,))

    told = observer.world(Modes(begun(Mode.RECOVER, START))).refused["ml/scan"].words
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


class Slow(Scripted):
    """Each creation takes a while, so that others wait for their turn."""

    async def create(
        self, resource: Resource, body: Any, namespace: str = "", *, strict: bool = False
    ) -> bytes:
        answer = await super().create(resource, body, namespace, strict=strict)
        await asyncio.sleep(0.01)
        return answer


def report(name: str) -> Create:
    return Create(what="c", resource=INCIDENTS, name=name, body={"metadata": {"name": name}})


def test_what_stops_a_gang_overtakes_the_reports_of_others() -> None:
    cluster = Slow()

    execute(cluster, *[(report("i"),)] * 20, (patch("act"),))

    assert cluster.calls.index(("patch", "act")) == SLOTS_MAX


@pytest.mark.parametrize("resource", [NODEHEALTHS, RECIPES])
def test_a_report_goes_before_what_all_nodes_or_people_are_told(resource: Resource) -> None:
    """A change of one recipe is a write for each node, and triage looks again once its own are done."""
    cluster = Slow()
    told = Create(what="w", resource=resource, name="n", body={"metadata": {"name": "n"}})

    execute(cluster, *[(told,)] * 20, (report("i"),))

    assert cluster.calls.index(("create", "i")) == SLOTS_MAX


def test_a_report_that_an_act_waits_for_is_as_urgent_as_the_act() -> None:
    cluster = Slow()

    execute(cluster, *[(report("i"),)] * 20, (report("first"), patch("act")))

    assert cluster.calls.index(("create", "first")) == SLOTS_MAX


def test_a_retry_after_of_the_server_holds_all_writes_back() -> None:
    cluster = Scripted(patch=[ApiError(429, "TooManyRequests", "slow down", 7.0)])

    async def main(clock: Clock) -> float:
        observer = Observer(cluster, Settings(), lambda: None)
        await Executor(cluster, observer, Metrics(), clock).run(Plan(chains=((patch(),),)))
        return (clock.now() - START).total_seconds()

    assert run(main, start=START) >= 7.0
    assert cluster.calls == [("patch", "r1")] * 2


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
    """A watch may be silent for a minute: until then the caches know no more than before."""
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


FOREIGN = Emit(reason="R", message="somebody else had put these there", regarding={"name": "llm", "uid": "u"})


def ensured(cluster: Scripted, data: dict[str, str | None]) -> None:
    environment = Ensure(
        what="e",
        resource=CONFIGMAPS,
        name="env",
        namespace="ml",
        body={"metadata": {"name": "env"}, "data": data},
        foreign=FOREIGN,
    )
    execute(cluster, (environment,))


def test_what_is_not_ours_is_removed_from_our_own_object_and_told() -> None:
    """A variable that runs code in the ranks outlived each of our writes, which merged ours into it."""
    there = b'{"metadata": {"name": "env"}, "data": {"LD_PRELOAD": "/ckpt/x.so", "BASH_ENV": "y", "A": "0"}}'
    cluster = Scripted(get=[there])

    ensured(cluster, {"A": "1", "B": None})

    change, event = cluster.bodies
    assert change["data"] == {"LD_PRELOAD": None, "BASH_ENV": None, "A": "1", "B": None}
    assert event["note"].startswith("BASH_ENV, LD_PRELOAD: ")


def test_of_many_foreign_keys_a_few_are_named() -> None:
    there = {"metadata": {"name": "env"}, "data": {f"K{number:03}": "v" for number in range(500)}}
    cluster = Scripted(get=[msgspec.json.encode(there)])

    ensured(cluster, {})

    change, event = cluster.bodies
    assert change["data"] == dict.fromkeys(there["data"])
    assert re.findall(r"\d+", event["note"]) == [*(f"{number:03}" for number in range(8)), "492"]


@pytest.mark.parametrize("there", [b'{"metadata": {"name": "env"}}', b'{"metadata": {}, "data": {"A": "0"}}'])
def test_where_nothing_is_foreign_nothing_is_told(there: bytes) -> None:
    cluster = Scripted(get=[there])

    ensured(cluster, {"A": "1"})

    assert cluster.calls == [("get", "env"), ("patch", "env")]


def test_an_environment_that_is_missing_is_created_and_nothing_told() -> None:
    cluster = Scripted(get=[MISSING])

    ensured(cluster, {"A": "1"})

    assert [method for method, _ in cluster.calls] == ["get", "create"]


def test_the_gang_is_not_started_where_foreign_variables_cannot_be_removed() -> None:
    """As from a ConfigMap that somebody has made immutable."""
    there = b'{"metadata": {"name": "env"}, "data": {"LD_PRELOAD": "/ckpt/x.so"}}'
    words = "data: Forbidden: field is immutable when `immutable` is set"
    cluster = Scripted(get=[there, there], patch=[ApiError(422, "Invalid", words)])
    environment = Ensure(
        what="e", resource=CONFIGMAPS, name="env", namespace="ml", body={"data": {}}, foreign=FOREIGN
    )

    _, observer = execute(cluster, (environment, patch()))

    assert ("patch", "r1") not in cluster.calls
    assert words in observer.world(Modes(begun(Mode.RECOVER, START))).refused["ml/env"].words


def test_an_event_that_cannot_be_written_holds_nothing_up() -> None:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    cluster = Scripted(create=[ApiError(403, "Forbidden", "no")])

    wait, _ = execute(cluster, (Emit(reason="R", message="m", regarding=about), patch()))

    assert wait == 45.0
    assert ("patch", "r1") in cluster.calls


@pytest.mark.parametrize(
    ("answers", "may_pass"),
    [
        ([ApiError(403, "Forbidden", "exceeded quota: q")], False),
        ([ApiError(500, "InternalError", "w")] * 4, True),
        ([ApiError(401, "Unauthorized", "Unauthorized")], True),
        ([NOT_BOUND], True),
    ],
)
def test_a_pod_that_is_refused_is_remembered_in_the_api_servers_words(
    answers: list[Any], may_pass: bool
) -> None:
    """No object tells of it, and its recovery would wait for nothing."""
    scan = Create(
        what="create-scan", resource=PODS, name="s", namespace="ml", body={"metadata": {"name": "s"}}
    )
    last = str(answers[-1])

    _, observer = execute(Scripted(create=answers), (scan,))

    refusal = observer.world(Modes(begun(Mode.RECOVER, START))).refused["ml/s"]
    assert (refusal.words, refusal.may_pass) == (last, may_pass)
    assert refusal.at >= START


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ApiError(422, "Invalid", "denied request"), "422 Invalid: denied request"),
        (ApiError(409, "Conflict", "newer"), None),
    ],
)
def test_a_patch_that_is_refused_is_remembered_too_unless_it_only_came_too_late(
    answer: ApiError, words: str | None
) -> None:
    stop = Patch(
        what="stop-gang", resource=JOBS, name="llm", namespace="ml", body={"spec": {"suspend": True}}
    )

    _, observer = execute(Scripted(patch=[answer], get=[b"{}"]), (stop,))

    refusal = observer.world(Modes(begun(Mode.RECOVER, START))).refused.get("ml/llm")
    assert (refusal and refusal.words) == words


@pytest.mark.parametrize("status", [403, 500])
def test_a_removal_that_is_refused_is_remembered_until_it_succeeds(status: int) -> None:
    free = Delete(what="free-pod", resource=PODS, name="p", namespace="ml", uid="p-uid")
    error = ApiError(status, "Forbidden", "denied")
    key = "ml/p"

    _, observer = execute(Scripted(delete=[error] * 4), (free,))
    assert key in observer.world(Modes(begun(Mode.RECOVER, START))).refused

    observer.accepted(free)
    assert key not in observer.world(Modes(begun(Mode.RECOVER, START))).refused


@pytest.mark.parametrize(
    ("answer", "wait_s"), [(NOT_BOUND, 5.0), (ApiError(403, "Forbidden", "denied by a policy"), 45.0)]
)
def test_an_api_server_that_does_not_know_our_rights_yet_is_asked_again_soon(
    answer: ApiError, wait_s: float
) -> None:
    assert execute(Scripted(patch=[answer]), (patch(),))[0] == wait_s


@pytest.mark.parametrize(("effect", "counted"), [("NoSchedule", {"n1"}), ("PreferNoSchedule", set())])
def test_a_quarantine_is_known_to_all_loops_for_as_long_as_it_is_written(
    effect: str, counted: set[str]
) -> None:
    async def main(clock: Clock) -> None:
        cluster, known = Scripted(), []
        observer = Observer(cluster, Settings(), lambda: None)
        executor = Executor(cluster, observer, Metrics(), clock)
        answers = cluster.patch

        async def patch(*asked: Any, **options: Any) -> bytes:
            known.append(set(executor.taking))
            return await answers(*asked, **options)

        cluster.patch = patch  # type: ignore[method-assign]
        await executor.run(Plan(chains=((quarantine(effect),),)))
        known.append(set(executor.taking))
        assert known == [counted, set()]

    run(main, start=START)


def test_a_quarantine_that_two_loops_write_is_known_until_both_have_ended() -> None:
    async def main(clock: Clock) -> None:
        cluster = Scripted()
        executor = Executor(cluster, Observer(cluster, Settings(), lambda: None), Metrics(), clock)
        of_triage, of_repair = (executor.begin((quarantine("NoSchedule"),)) for _ in range(2))

        await of_triage
        assert executor.taking == {"n1"}
        await of_repair
        assert executor.taking == set()

    run(main, start=START)
