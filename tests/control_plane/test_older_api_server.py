"""Refusals by older API servers, tested on a separate control plane with newer features switched off."""

from __future__ import annotations

import pytest

from tests.control_plane.build import cached
from tests.control_plane.cases import indexed_job, living, no_trouble, nodes_of, recovered, trained
from tests.control_plane.plane import started
from tests.control_plane.stage import raised

pytestmark = pytest.mark.control_plane

BEFORE_1_36 = "MutableSchedulingDirectivesForSuspendedJobs=false"


async def test_a_job_is_kept_off_a_node_where_only_one_that_never_started_may_change_its_affinity() -> None:
    with started(cached(), controllers=True, gates=BEFORE_1_36) as plane:
        async with raised(plane, nodes=3, settings=["mode=recover"], agents=0) as stage:
            job = indexed_job("llm", pod={"tolerations": [{"operator": "Exists"}]})
            old = await trained(stage, job)
            bad = old[0]["spec"]["nodeName"]

            await stage.xid_79(bad)
            await recovered(stage, "llm", old)

            assert bad not in nodes_of(await living(stage, "llm"))
            no_trouble(stage)
