"""Tests what commands say about a document that Rekindle cannot restart as a job."""

from __future__ import annotations

import pytest

from recover.snapshot.manifests import why_no_job
from recover.workloads import WORKLOADS
from recover.workloads.base import Workload


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.resource.kind)
def test_a_kind_that_rekindle_restarts_is_never_called_a_kind_that_it_does_not_restart(
    workload: Workload,
) -> None:
    group = workload.resource.group
    old = f"{group}/v1beta2" if group else "v1beta2"

    why = why_no_job({"kind": workload.resource.kind, "apiVersion": old})

    assert why == f"field apiVersion: value {old!r}: expected {workload.resource.api_version}"
