"""`rekindle status` requests no more jobs from the API server than it needs."""

from __future__ import annotations

from typing import Any

import pytest

from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS
from recover.kube.cluster import ListPage
from recover.snapshot.read import WhichJobs, read
from recover.workloads import WORKLOADS
from tests.recover.scripted import Scripted

KINDS = {workload.resource.plural for workload in WORKLOADS}


class Noting(Scripted):
    """Records the label selector of each list of jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.selectors: dict[str, str] = {}

    async def list(self, resource: Resource, *, labels: str = "", **others: Any) -> ListPage:
        if resource.plural in KINDS:
            self.selectors[resource.plural] = labels
        return await super().list(resource, labels=labels, **others)


async def test_of_plain_jobs_only_those_with_the_label_are_listed() -> None:
    cluster = Noting()

    await read(cluster, jobs=WhichJobs.LABELLED)

    assert cluster.selectors == dict.fromkeys(KINDS, "") | {JOBS.plural: "rekindle.dev/auto-recovery"}


@pytest.mark.parametrize(
    ("jobs", "asked"),
    [(WhichJobs.ALL, dict.fromkeys(KINDS, "")), (WhichJobs.NONE, {})],
    ids=["all", "none"],
)
async def test_all_jobs_or_none(jobs: WhichJobs, asked: dict[str, str]) -> None:
    cluster = Noting()

    await read(cluster, jobs=jobs)

    assert cluster.selectors == asked
