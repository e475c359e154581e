"""`rekindle bench scale` on a real API server: every figure is measured, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chaos.bench.scale.course import Pace, at_size
from chaos.bench.scale.size import Size
from detectors.client.kubeapi import KubeApi
from recover.k8s.kinds import EVENTS, INCIDENTS, JOBS, LEASES, NODEHEALTHS, NODES, PODS, RECOVERIES
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import ANSWERED_S

pytestmark = pytest.mark.control_plane

PACE = Pace(runs=2, rounds=2, pods=10, pods_per_s=100.0, burst=20, idle_s=1.0, incident_limit_s=1.0)
SETTINGS = ("mode=recover", "lease.duration_s=9", "lease.renew_deadline_s=6", "lease.retry_s=0.3")
MADE = (NODES, NODEHEALTHS, PODS, JOBS, INCIDENTS, RECOVERIES, EVENTS, LEASES)


async def test_every_figure_is_measured_with_a_client_certificate_and_nothing_is_left(
    api_server: ControlPlane, tmp_path: Path
) -> None:
    certificate, key = api_server.client_certificate("bench", group="system:masters")
    access = ["--server", api_server.url, "--ca-file", str(api_server.ca_file)]
    access += ["--client-certificate", str(certificate), "--client-key", str(key)]

    async with KubeApi(api_server.credentials(), timeout_s=ANSWERED_S) as api:
        found = await at_size(api, access, tmp_path, Size(20, 120, 40), SETTINGS, PACE)
        left = {kind.plural: await names(api, kind.path()) for kind in MADE}

    figures = {figure.name: figure.value for figure in found.figures}
    assert set(figures) >= {
        *("sync", "sync cpu", "sync stall", "memory", "idle", "stall"),
        *(
            "rank",
            "rank of large",
            "rank burst",
            "rank burst rate",
            "other",
            "node",
            "finding",
            "cordon",
            "cordon cpu",
        ),
        *("storm", "storm cpu", "braked incidents", "failover clean", "failover crash"),
    }
    assert figures["braked"] == 1, "the share of the cluster that may be out is one node of twenty"
    assert figures["failover clean"] < 60
    assert {plural: found for plural, found in left.items() if found} == {}


async def names(api: KubeApi, path: str) -> list[str]:
    """Returns the names of the objects, without the API server's own objects."""
    items = msgspec.json.decode(await api.request("GET", path))["items"]
    return [item["metadata"]["name"] for item in items if item["metadata"].get("namespace") != "kube-system"]
