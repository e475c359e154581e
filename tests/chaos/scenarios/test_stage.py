"""chaos/scenarios/stage.py: the cluster of the demo has everything that its job needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.apiserver.kinds import CLAIMS
from chaos.scenarios.manifests import CLAIM, NAMESPACE
from chaos.scenarios.stage import raised

pytestmark = pytest.mark.processes


async def test_the_claim_of_the_checkpoints_is_there_and_all_ranks_can_mount_it(tmp_path: Path) -> None:
    async with raised(tmp_path, nodes=1, mode="observe") as stage:
        claim = stage.cluster.store.read(CLAIMS, CLAIM, NAMESPACE).body

    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
