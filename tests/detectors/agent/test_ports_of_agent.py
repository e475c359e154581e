"""The whole agent on a node with RDMA adapters reads files of /sys and publishes findings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from detectors.service.settings import Fabric
from detectors.wire.contract import CoverageState, Family, NodeHealthStatus, Severity, Source
from tests.detectors.agent.host import SETTINGS, Host
from tests.detectors.client.node_api import node_api
from tests.detectors.sources.rdma_tree import RdmaTree

PCI = "0000:0d:00.0"
SOON = msgspec.structs.replace(SETTINGS, fabric=Fabric(every_s=0.05, settle_s=0.2))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def tree(host: Host) -> RdmaTree:
    return RdmaTree(host.root)


def is_covered(status: NodeHealthStatus) -> bool:
    return any(
        entry.source is Source.FABRIC
        and entry.state is CoverageState.COVERED
        and entry.families == [Family.NETWORK]
        for entry in status.coverage
    )


def is_over(status: NodeHealthStatus) -> bool:
    return bool(status.findings) and all(finding.cleared_at is not None for finding in status.findings)


async def test_a_port_that_is_lost_is_published_and_so_is_its_return(host: Host, tree: RdmaTree) -> None:
    device = tree.adapter("mlx5_0", PCI)
    tree.port(device)
    async with node_api("n1") as api, host.agent(api, SOON):
        await api.until(is_covered)
        tree.port(device, state=1, phys_state=2)
        lost = await api.until(lambda status: bool(status.findings))
        tree.port(device)
        back = await api.until(is_over)

    (found,) = lost.findings
    assert (found.code, found.severity, found.subject.pci) == ("port-down", Severity.SUSPECT, PCI)
    assert "mlx5_0" in found.evidence
    assert [finding.id for finding in back.findings] == [found.id]


async def test_a_node_without_rdma_is_covered_and_its_samples_cost_no_write(
    host: Host, tree: RdmaTree
) -> None:
    async with node_api("n1") as api, host.agent(api, SOON):
        await api.until(lambda status: len(status.coverage) == len(Source) and is_covered(status))
        await asyncio.sleep(0.3)
        before = len(api.patches)
        await asyncio.sleep(0.5)

        assert len(api.patches) == before
