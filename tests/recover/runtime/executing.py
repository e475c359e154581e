"""Runs the executor on a scripted API server, for the executor's tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.k8s.kinds import RECOVERIES
from recover.model.actions import Action, Patch, Plan
from recover.policy.settings import Settings
from recover.runtime.execute import Executor
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.scripted import Scripted

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
"""Error of an account without permission. An API server also gives this error in its first seconds, before
it has read the bindings."""


def execute(
    cluster: Scripted,
    *chains: tuple[Action, ...],
    known: Sequence[tuple[Resource, bytes]] = (),
    metrics: Metrics | None = None,
) -> tuple[float | None, Observer]:
    """Runs the plan in virtual time. Returns the seconds until the next reconcile pass, and the caches."""

    async def main(clock: Clock) -> tuple[float | None, Observer]:
        observer = Observer(cluster, Settings(), lambda: None)
        for resource, there in known:
            observer.absorb(resource, there)
        executor = Executor(cluster, observer, metrics or Metrics(), clock)
        return await executor.run(Plan(chains=chains, requeue_after_s=45.0)), observer

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
