"""The cluster under test. The contract tests see only the `Cluster` protocol, through the fixture `cluster`:
today in process and over loopback HTTP, and whatever else is added as a parameter here (a real API server).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from chaos.cluster.client import Client
from chaos.cluster.rest import serve
from chaos.cluster.store import MemoryCluster
from detectors.kubeapi import Credentials, KubeApi
from recover.kube.cluster import Cluster
from recover.kube.rest import RestCluster

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.fixture
def now() -> Callable[[], datetime]:
    return lambda: START


@pytest.fixture
def store(now: Callable[[], datetime]) -> MemoryCluster:
    return MemoryCluster(now, seed=7)


@pytest.fixture(params=["in process", "over HTTP"])
async def cluster(request: pytest.FixtureRequest, store: MemoryCluster) -> AsyncIterator[Cluster]:
    if request.param == "in process":
        yield Client(store, "tester")
        return
    async with (
        serve(store, users={"secret": "tester"}) as server,
        KubeApi(Credentials(server.url, token="secret"), timeout_s=5.0) as api,
    ):
        yield RestCluster(api)
