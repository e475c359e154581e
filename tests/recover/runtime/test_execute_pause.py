"""The executor drops a decision that waits to be written once people have paused Rekindle."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, PYTORCHJOBS, RECOVERIES
from recover.model.actions import Create, Patch, Plan
from recover.policy.settings import Settings
from recover.runtime.execute import DECISION_S_MAX, REQUEUE_S, Executor
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.runtime.executing import SPEC, START
from tests.recover.scripted import Scripted


def pause(observer: Observer, data: dict[str, str]) -> None:
    metadata = {"name": "rekindle-pause", "namespace": "rekindle-system", "resourceVersion": "1"}
    observer._pause.absorb(msgspec.json.encode({"metadata": metadata, "data": data}))


@pytest.mark.parametrize(
    ("data", "is_paused"),
    [
        ({}, True),
        ({"until": "nobody knows"}, True),
        ({"until": "2026-11-21T13:00:00Z"}, True),
        ({"until": "2026-11-21T11:00:00Z"}, False),
        (None, False),
    ],
)
def test_what_begins_something_is_dropped_in_a_pause_and_reports_are_written(
    data: dict[str, str] | None, is_paused: bool
) -> None:
    cluster = Scripted()
    begins = Create(
        what="open-recovery",
        resource=RECOVERIES,
        name="r1",
        namespace="ml",
        body={"metadata": {"name": "r1"}, "spec": SPEC},
    )
    report = Create(what="open-incident", resource=INCIDENTS, name="i", body={"metadata": {"name": "i"}})

    async def main(clock: Clock) -> tuple[float | None, Observer]:
        observer = Observer(cluster, Settings(), lambda: None)
        executor = Executor(cluster, observer, Metrics(), clock)
        writing = [executor.begin((action,)) for action in (begins, report)]
        if data is not None:
            pause(observer, data)
        again_s, _ = await asyncio.gather(*writing)
        return again_s, observer

    again_s, observer = run(main, start=START)

    assert (("create", "r1") in cluster.calls) is not is_paused
    assert ("create", "i") in cluster.calls
    assert again_s == (REQUEUE_S if is_paused else None)
    assert CONFIGMAPS not in observer._caches, "no other ConfigMap is kept"
    assert observer.world(None).refused == {}, "nobody has refused it"  # type: ignore[arg-type]


STOP = Patch(
    what="stop-gang", resource=PYTORCHJOBS, name="llm", namespace="ml", uid="llm-uid", body={"spec": {}}
)


def test_a_stop_that_was_decided_in_a_pause_is_sent() -> None:
    """A gang that Rekindle has stopped before is stopped again also in a pause: it is down already."""
    cluster = Scripted()

    async def main(clock: Clock) -> float | None:
        observer = Observer(cluster, Settings(), lambda: None)
        pause(observer, {})
        return await Executor(cluster, observer, Metrics(), clock).run(Plan(chains=((STOP,),)))

    assert run(main, start=START) is None
    assert cluster.calls == [("patch", "llm")]


@pytest.mark.parametrize(("wait_s", "is_sent"), [(DECISION_S_MAX - 1, True), (DECISION_S_MAX + 1, False)])
def test_what_begins_something_is_decided_again_after_a_long_wait_for_its_turn(
    wait_s: float, is_sent: bool
) -> None:
    """In the meantime people may have set a hold, or the brake may have engaged."""
    cluster = Scripted(patch=[ApiError(429, "TooManyRequests", "slow down", wait_s)])

    async def main(clock: Clock) -> float | None:
        observer = Observer(cluster, Settings(), lambda: None)
        return await Executor(cluster, observer, Metrics(), clock).run(Plan(chains=((STOP,),)))

    again_s = run(main, start=START)

    assert cluster.calls == [("patch", "llm")] * (2 if is_sent else 1)
    assert again_s == (None if is_sent else REQUEUE_S)
