"""`rekindle bench loop` on the real control plane: every row is measured, and nothing is left behind."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from chaos.bench import BENCHES
from chaos.bench.loop import Loop
from chaos.bench.rounds import ROWS
from detectors.client.kubeapi import KubeApi
from recover.k8s.kinds import INCIDENTS, NODES, PODS, PYTORCHJOBS, RECOVERIES
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import ANSWERED_S

pytestmark = pytest.mark.control_plane

ROUNDS = 2
GONE_S = 60.0
"""Time in seconds within which Kubernetes removes the objects that belonged to a job."""


def test_every_row_is_measured_by_the_real_programs(
    training: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--kubeconfig", str(training.kubeconfig()), "--nodes", "8", f"--rounds={ROUNDS}", "--json"]

    status = BENCHES["loop"].run(args)

    printed = capsys.readouterr()
    assert status == 0, printed.err
    found = msgspec.json.decode(printed.out, type=Loop)
    assert found.not_measured == ()
    measured = {row.name: row for row in found.rows if row.rounds == ROUNDS}
    assert set(measured) == set(ROWS)
    assert 0 < measured["crash stop"].p50_ms < measured["crash running"].p50_ms
    assert {hop.what for hop in found.hops} >= {"quarantine-node", "stop-gang", "start-gang"}


async def test_nothing_of_it_is_left(training: ControlPlane) -> None:
    async with KubeApi(training.credentials(), timeout_s=ANSWERED_S) as api, asyncio.timeout(GONE_S):
        for resource in (NODES, PODS, PYTORCHJOBS, INCIDENTS, RECOVERIES):
            while msgspec.json.decode(await api.request("GET", resource.path()))["items"]:
                await asyncio.sleep(0.1)
