"""The cluster under test. The contract tests see only the `Cluster` protocol, through the fixture `cluster`:
the simulated API server, in process and over loopback HTTP, and a real one. If they disagree, the real one is
right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from chaos.apiserver.client import Client
from chaos.apiserver.kinds import KINDS
from chaos.apiserver.rest import serve
from chaos.apiserver.store import MemoryCluster
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import Resource
from recover.api.crds import manifests
from recover.kube.cluster import Cluster
from recover.kube.rest import RestCluster
from tests.control_plane.clean import install_crds, wiped
from tests.control_plane.plane import ControlPlane

SERVED_S = 60.0
ANSWERED_S = 30.0
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
    if request.param == "in process":
        _install_crds(store)
        yield Client(store, "tester")
        return
    async with _reached(request, store) as api:
        yield RestCluster(api)


@pytest.fixture(params=["over HTTP", REAL])
async def rest(request: pytest.FixtureRequest, store: MemoryCluster) -> AsyncIterator[KubeApi]:
    """Yields a client for behaviour that only a request can show."""
    async with _reached(request, store) as api:
        yield api


@asynccontextmanager
async def _reached(request: pytest.FixtureRequest, store: MemoryCluster) -> AsyncIterator[KubeApi]:
    if request.param == "real API server":
        plane: ControlPlane = request.getfixturevalue("api_server")
        async with KubeApi(plane.credentials(), timeout_s=ANSWERED_S) as api:
            await install_crds(api)
            yield api
            await wiped(api)
        return
    _install_crds(store)
    async with (
        serve(store, users={"secret": "tester"}) as server,
        KubeApi(Credentials(server.url, token="secret"), timeout_s=ANSWERED_S) as api,
    ):
        yield api


def _install_crds(store: MemoryCluster) -> None:
    for crd in manifests():
        store.add_crd(crd)


@pytest.fixture
def lose_history(
    request: pytest.FixtureRequest, cluster: Cluster, store: MemoryCluster
) -> Callable[[], Awaitable[None]]:
    """Returns a function that compacts the history: from then on the cluster knows no version older than the
    present one."""

    async def simulated() -> None:
        for resource in KINDS:
            store.history(resource).forget()

    async def real() -> None:
        plane: ControlPlane = request.getfixturevalue("api_server")
        plane.lose_history()  # in this thread, because a program dies with the thread that has started it
        async with asyncio.timeout(SERVED_S):
            for resource in KINDS:
                while not await _is_served(cluster, resource):
                    await asyncio.sleep(0.05)

    return real if request.node.callspec.params["cluster"] == "real API server" else simulated


async def _is_served(cluster: Cluster, resource: Resource) -> bool:
    """Whether the API server serves this kind. An API server that has just started refuses to list or watch
    for a moment (429)."""
    try:
        await cluster.list(resource, limit=1)
    except ApiError as error:
        if error.status not in (404, 429):
            raise
        return error.not_found
    return True
