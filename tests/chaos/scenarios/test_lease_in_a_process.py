"""The shipped controller process and its lease: how the process ends when it loses the lease, and on a
signal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from chaos.scenarios.stage import CONTROLLER, Stage, raised
from recover.cli.controller_command import EXIT_LEASE_LOST
from recover.k8s.kinds import LEASES
from recover.kube.lease import LEASE
from recover.policy.settings import Settings

pytestmark = pytest.mark.processes

NAMESPACE = Settings().namespace
LIMIT_S = 20.0


def holder(stage: Stage) -> str:
    return str(stage.cluster.store.read(LEASES, LEASE, NAMESPACE).body["spec"]["holderIdentity"])


async def test_a_controller_that_loses_its_lease_ends_at_once_says_why_and_leaves_the_lease_alone(
    tmp_path: Path,
) -> None:
    async with raised(tmp_path, nodes=1, mode="observe") as stage:
        assert stage.controller is not None
        assert holder(stage) == CONTROLLER
        other = {"spec": {"holderIdentity": "other"}}
        await stage.client.patch(LEASES, LEASE, other, namespace=NAMESPACE)

        async with asyncio.timeout(LIMIT_S):
            assert await stage.controller.process.wait() == EXIT_LEASE_LOST

        last = msgspec.json.decode(stage.controller.last_lines(1))
        assert last["level"] == "error"
        assert "other" in last["why"]
        assert holder(stage) == "other"


async def test_a_controller_that_is_asked_to_end_releases_its_lease(tmp_path: Path) -> None:
    async with raised(tmp_path, nodes=1, mode="observe") as stage:
        assert stage.controller is not None

        assert await stage.controller.stop() == 0

        assert holder(stage) == ""
