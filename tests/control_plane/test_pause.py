"""A pause on a real control plane, as kubectl writes it. Rekindle cordons and stops nothing meanwhile, and
afterwards acts only on faults that occur again. The chart's permissions let the controller see the pause."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recover.k8s.kinds import CONFIGMAPS, INCIDENTS
from recover.model.pause import PAUSE
from recover.policy.settings import Settings
from tests.control_plane.cases import cordons, indexed_job, no_trouble, recovered, recoveries, trained
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import RealStage, raised

pytestmark = pytest.mark.control_plane

SYSTEM = Settings().namespace
SETTINGS = ("mode=recover", "budgets.quarantined_percent_max=100")


async def is_paused(stage: RealStage) -> bool:
    state = await stage.get(CONFIGMAPS, "rekindle-state", SYSTEM)
    return json.loads(state["data"]["modes"])["paused"] is not None


async def is_not_paused(stage: RealStage) -> bool:
    return not await is_paused(stage)


async def told(stage: RealStage, reason: str) -> Any:
    """Waits until an Incident gives this reason for the node's quarantine."""

    async def found() -> bool:
        records = [r for i in await stage.all(INCIDENTS) for r in i.get("status", {}).get("actions", [])]
        return any(r["action"] == "quarantine-node" and r.get("reason") == reason for r in records)

    await stage.until(f"a quarantine that is not done: {reason}", found)


async def test_a_fault_in_a_pause_cordons_nothing_and_acts_after_the_resume_only_when_it_is_shown_again(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying="143"))
        bad = old[0]["spec"]["nodeName"]
        data = {"reason": "new switches"}
        await stage.create(CONFIGMAPS, {"metadata": {"name": PAUSE}, "data": data}, SYSTEM)
        await stage.until("the pause seen", lambda: is_paused(stage))

        await stage.xid_79(bad)
        await told(stage, "Paused")
        assert await cordons(stage) == set()
        assert await recoveries(stage, "llm") == []

        await stage.api.request("DELETE", CONFIGMAPS.path(PAUSE, SYSTEM))
        await told(stage, "StaleEvidence")
        await stage.until("the end of the pause stored", lambda: is_not_paused(stage))
        assert await cordons(stage) == set()
        assert await recoveries(stage, "llm") == []

        await stage.xid_79(bad)
        await recovered(stage, "llm", old)
        assert await cordons(stage) == {bad}
        no_trouble(stage)
