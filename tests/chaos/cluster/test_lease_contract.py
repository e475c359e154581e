"""The contract of any API server for the Lease by which one controller leads. These tests know only the
`Cluster` protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import LEASES
from recover.kube.cluster import Cluster

NS = "default"
AT = "2026-11-21T10:00:00.123456Z"
SPEC = {
    "holderIdentity": "one",
    "leaseDurationSeconds": 15,
    "acquireTime": AT,
    "renewTime": AT,
    "leaseTransitions": 0,
}


@pytest.fixture(autouse=True)
async def removed(cluster: Cluster) -> AsyncIterator[None]:
    """Removes the lease, because a real API server outlives the test."""
    yield
    await cluster.delete(LEASES, "lease", namespace=NS)


async def made(cluster: Cluster) -> dict[str, Any]:
    return read(await cluster.create(LEASES, {"metadata": {"name": "lease"}, "spec": SPEC}, NS))


async def changed(cluster: Cluster, spec: dict[str, Any], version: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": version} if version else {}
    return read(await cluster.patch(LEASES, "lease", {"metadata": metadata, "spec": spec}, namespace=NS))


def read(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(raw)
    return found


async def test_of_two_that_renew_by_the_same_version_one_is_refused(cluster: Cluster) -> None:
    version = (await made(cluster))["metadata"]["resourceVersion"]
    renewed = await changed(cluster, {"renewTime": "2026-11-21T10:00:02.000000Z"}, version)
    assert renewed["spec"] == {**SPEC, "renewTime": "2026-11-21T10:00:02.000000Z"}

    with pytest.raises(ApiError) as refused:
        await changed(cluster, {"holderIdentity": "two", "leaseTransitions": 1}, version)

    assert (refused.value.status, refused.value.stale) == (409, True)
    assert read(await cluster.get(LEASES, "lease", NS))["spec"]["holderIdentity"] == "one"


async def test_a_renewal_without_news_changes_no_version(cluster: Cluster) -> None:
    """Therefore a client that watches a lease for signs of life must see a different time each time."""
    before = await made(cluster)
    assert await changed(cluster, {"renewTime": AT}) == before


async def test_a_holder_may_be_emptied_by_hand(cluster: Cluster) -> None:
    await made(cluster)
    assert (await changed(cluster, {"holderIdentity": ""}))["spec"]["holderIdentity"] == ""
    assert "holderIdentity" not in (await changed(cluster, {"holderIdentity": None}))["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        {"renewTime": "2026-11-21T10:00:05Z"},
        {"acquireTime": "2026-11-21T10:00:05.5Z"},
        {"renewTime": "yesterday"},
        {"leaseDurationSeconds": 0},
        {"leaseTransitions": -1},
    ],
    ids=lambda spec: "=".join(str(part) for item in spec.items() for part in item),
)
async def test_a_lease_that_kubernetes_would_refuse_is_refused(
    cluster: Cluster, spec: dict[str, Any]
) -> None:
    """The times of a Lease have exactly six decimals."""
    await made(cluster)
    with pytest.raises(ApiError) as refused:
        await changed(cluster, spec)
    assert refused.value.status == 422
