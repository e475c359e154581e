"""Tests a patch that tests what the controller has read of an object: when it is sent, and what a failed
test means."""

from __future__ import annotations

from typing import Any

import pytest

from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import PYTORCHJOBS
from recover.model import REFUSED_AGAIN_S
from recover.model.actions import Patch
from recover.runtime.execute import REQUEUE_S, STALE_S
from tests.recover.runtime.executing import execute
from tests.recover.scripted import INVALID, MISSING, Scripted, raw

TEST_FAILED = ApiError(422, "Invalid", "the server rejected our request due to an error in our request")
OPERATIONS = ({"op": "test", "path": "/metadata/generation", "value": 1},)


def stopped(cluster: Scripted) -> float | None:
    """Writes a stop with its tests, which was decided on version 7 of a job."""
    body = {"spec": {"runPolicy": {"suspend": True}}}
    stop = Patch(
        what="stop-gang",
        resource=PYTORCHJOBS,
        name="llm",
        namespace="ml",
        uid="llm-uid",
        version="7",
        body=body,
        operations=OPERATIONS,
    )
    wait, _ = execute(cluster, (stop,), known=[(PYTORCHJOBS, pytorchjob(7))])
    return wait


def pytorchjob(version: int, **status: Any) -> bytes:
    return raw("llm", version, spec={"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}, status=status)


def test_a_patch_with_tests_of_what_was_read_names_no_version() -> None:
    cluster = Scripted(patch=[pytorchjob(9)])

    assert stopped(cluster) == 45.0
    assert cluster.bodies == [OPERATIONS]
    assert cluster.calls == [("patch", "llm")]


def test_a_test_that_fails_over_what_decisions_read_is_decided_anew() -> None:
    ended = pytorchjob(8, conditions=[{"type": "Succeeded", "status": "True"}])
    cluster = Scripted(patch=[TEST_FAILED], get=[ended, ended])

    assert stopped(cluster) == STALE_S
    assert cluster.bodies == [OPERATIONS]


@pytest.mark.parametrize("version", [7, 8])
def test_a_test_that_fails_although_nothing_read_differs_leaves_it_to_the_version(
    version: int,
) -> None:
    cluster = Scripted(patch=[TEST_FAILED, pytorchjob(9)], get=[pytorchjob(version)])

    assert stopped(cluster) == 45.0
    assert [body["metadata"]["resourceVersion"] for body in cluster.bodies[1:]] == [str(version)]


def test_a_change_that_the_schema_refuses_is_refused_in_both_forms() -> None:
    cluster = Scripted(patch=[INVALID, INVALID], get=[pytorchjob(7), pytorchjob(7)])

    assert stopped(cluster) == REFUSED_AGAIN_S
    assert len(cluster.bodies) == 2


def test_a_job_that_is_gone_is_looked_at_again() -> None:
    cluster = Scripted(patch=[TEST_FAILED, MISSING], get=[MISSING, MISSING])

    assert stopped(cluster) == REQUEUE_S
    assert len(cluster.bodies) == 2
