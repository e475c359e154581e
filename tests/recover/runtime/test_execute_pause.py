"""The executor drops a decision that waits to be written once people have paused Rekindle."""

from __future__ import annotations

import msgspec
import pytest

from chaos.cluster.virtual import Clock, run
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, RECOVERIES
from recover.model.actions import Create, Plan
from recover.policy.settings import Settings
from recover.runtime.execute import REQUEUE_S, Executor
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.runtime.executing import SPEC, START
from tests.recover.scripted import Scripted


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
        if data is not None:
            metadata = {"name": "rekindle-pause", "namespace": "rekindle-system", "resourceVersion": "1"}
            observer._pause.absorb(msgspec.json.encode({"metadata": metadata, "data": data}))
        executor = Executor(cluster, observer, Metrics(), clock)
        return await executor.run(Plan(chains=((begins,), (report,)))), observer

    again_s, observer = run(main, start=START)

    assert (("create", "r1") in cluster.calls) is not is_paused
    assert ("create", "i") in cluster.calls
    assert again_s == (REQUEUE_S if is_paused else None)
    assert CONFIGMAPS not in observer._caches, "no other ConfigMap is kept"
    assert observer.world(None).refused == {}, "nobody has refused it"  # type: ignore[arg-type]
