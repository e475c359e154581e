"""The cluster under test. The contract tests see only the `Cluster` protocol, through the fixture `cluster`:
the simulated API server, in process and over loopback HTTP, and a real one. Where they disagree, the real one
is right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from chaos.cluster.client import Client
from chaos.cluster.rest import serve
from chaos.cluster.store import MemoryCluster
from detectors.kubeapi import Credentials, KubeApi
from recover.crds import manifests
from recover.kube.cluster import Cluster
from recover.kube.rest import RestCluster
from tests.control_plane.clean import install_crds, wiped
from tests.control_plane.plane import ControlPlane

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.fixture
def now() -> Callable[[], datetime]:
    return lambda: START


@pytest.fixture
def store(now: Callable[[], datetime]) -> MemoryCluster:
    return MemoryCluster(now, seed=7)


REAL = pytest.param("real API server", marks=pytest.mark.control_plane)


@pytest.fixture(params=["in process", "over HTTP", REAL])
async def cluster(request: pytest.FixtureRequest, store: MemoryCluster) -> AsyncIterator[Cluster]:
    if request.param == "real API server":
        plane: ControlPlane = request.getfixturevalue("api_server")
        async with KubeApi(plane.credentials(), timeout_s=10.0) as api:
            await install_crds(api)
            yield RestCluster(api)
            await wiped(api)
        return
    for crd in manifests():
        store.add_crd(crd)
    if request.param == "in process":
        yield Client(store, "tester")
        return
    async with (
        serve(store, users={"secret": "tester"}) as server,
        KubeApi(Credentials(server.url, token="secret"), timeout_s=5.0) as api,
    ):
        yield RestCluster(api)
