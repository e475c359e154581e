"""Tests what the executor remembers: refusals, and quarantines and starts that are being written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import JOBS, PADDLEJOBS, PODS, PYTORCHJOBS, RECOVERIES
from recover.model import Mark
from recover.model.actions import Create, Delete, Patch, Plan
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.execute import Executor
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from recover.workloads.pytorchjob import PyTorchJob
from tests.builders import gang
from tests.recover.runtime.executing import NOT_BOUND, START, execute, patch
from tests.recover.scripted import Scripted, quarantine

DENIED = ApiError(403, "Forbidden", "denied by a policy")


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
    """No object records the refusal, and otherwise the pod's recovery would wait in vain."""
    scan = Create(
        what="create-scan", resource=PODS, name="s", namespace="ml", body={"metadata": {"name": "s"}}
    )
    last = str(answers[-1])

    _, observer = execute(Scripted(create=answers), (scan,))

    refusal = observer.world(Modes(begun(Mode.RECOVER, START))).refused["pods/ml/s"]
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

    refusal = observer.world(Modes(begun(Mode.RECOVER, START))).refused.get("jobs/ml/llm")
    assert (refusal and refusal.words) == words


def test_the_refusal_of_a_job_is_none_of_a_job_of_another_kind_with_its_name() -> None:
    stop = Patch(
        what="stop-gang", resource=PYTORCHJOBS, name="llm", namespace="ml", body={"spec": {"suspend": True}}
    )

    _, observer = execute(Scripted(patch=[DENIED], get=[b"{}"]), (stop,))

    world = observer.world(Modes(begun(Mode.RECOVER, START)))
    assert world.refusal(PYTORCHJOBS, "llm", "ml") is not None
    assert world.refusal(PADDLEJOBS, "llm", "ml") is None


@pytest.mark.parametrize("status", [403, 500])
def test_a_removal_that_is_refused_is_remembered_until_it_succeeds(status: int) -> None:
    free = Delete(what="free-pod", resource=PODS, name="p", namespace="ml", uid="p-uid")
    error = ApiError(status, "Forbidden", "denied")
    key = "pods/ml/p"

    _, observer = execute(Scripted(delete=[error] * 4), (free,))
    assert key in observer.world(Modes(begun(Mode.RECOVER, START))).refused

    observer.refusals.forget(free)
    assert key not in observer.world(Modes(begun(Mode.RECOVER, START))).refused


@pytest.mark.parametrize(("answer", "wait_s"), [(NOT_BOUND, 5.0), (DENIED, 45.0)])
def test_an_api_server_that_does_not_know_our_rights_yet_is_asked_again_soon(
    answer: ApiError, wait_s: float
) -> None:
    assert execute(Scripted(patch=[answer]), (patch(),))[0] == wait_s


@pytest.mark.parametrize(("answer", "wait_s"), [(NOT_BOUND, 5.0), (DENIED, 10.0)])
def test_the_decision_after_a_refused_quarantine_comes_when_the_pause_is_over(
    answer: ApiError, wait_s: float
) -> None:
    wait, observer = execute(Scripted(patch=[answer]), (quarantine("NoSchedule"),))

    refusal = observer.world(Modes(begun(Mode.RECOVER, START))).refused["nodes/n1"]
    assert wait == wait_s
    assert refusal.left_s(refusal.at) == wait_s
    assert refusal.left_s(refusal.at - timedelta(hours=1)) == 0, "the clock was set back"


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
            known.append(set(executor.being_quarantined))
            return await answers(*asked, **options)

        cluster.patch = patch  # type: ignore[method-assign]
        await executor.run(Plan(chains=((quarantine(effect),),)))
        known.append(set(executor.being_quarantined))
        assert known == [counted, set()]

    run(main, start=START)


@pytest.mark.parametrize("what", ["start-gang", "open-recovery", "delete-job"])
def test_a_start_is_known_to_all_loops_for_as_long_as_it_is_written(what: str) -> None:
    job = gang()
    writes = {
        "start-gang": PyTorchJob().start(job, Mark("r", 1, "resumed"))[0],
        "open-recovery": Create(
            what=what,
            resource=RECOVERIES,
            name="r",
            namespace="ml",
            body={"metadata": {"name": "r"}, "spec": {"gang": {"uid": "llm-uid"}}},
        ),
        "delete-job": Delete(
            what=what, resource=PYTORCHJOBS, name="llm", namespace="ml", uid="llm-uid", version="1"
        ),
    }

    async def main(clock: Clock) -> None:
        cluster = Scripted()
        executor = Executor(cluster, Observer(cluster, Settings(), lambda: None), Metrics(), clock)
        start = executor.begin((writes[what],))

        assert executor.being_started == {"llm-uid"}
        await start
        assert executor.being_started == set()

    run(main, start=START)


def test_a_quarantine_that_two_loops_write_is_known_until_both_have_ended() -> None:
    async def main(clock: Clock) -> None:
        cluster = Scripted()
        executor = Executor(cluster, Observer(cluster, Settings(), lambda: None), Metrics(), clock)
        of_triage, of_repair = (executor.begin((quarantine("NoSchedule"),)) for _ in range(2))

        await of_triage
        assert executor.being_quarantined == {"n1"}
        await of_repair
        assert executor.being_quarantined == set()

    run(main, start=START)
