"""An agent reports the culprit while Rekindle is already stopping the gang because of the failure of another
rank."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recover.k8s.kinds import INCIDENTS, NODES, PODS
from tests.control_plane.cases import (
    RECREATE,
    ended,
    indexed_job,
    is_suspended,
    no_trouble,
    nodes_of,
    recovered,
    trained,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane


async def test_a_gang_is_kept_off_the_culprit_that_is_told_of_late_in_the_same_restart(
    control_plane: ControlPlane,
) -> None:
    """Rekindle may not quarantine the culprit, because a person has put a hold on the node."""
    async with raised(control_plane, nodes=3, settings=("mode=recover",), agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying="never", annotations=RECREATE))
        victim, culprit = old
        node = culprit["spec"]["nodeName"]
        await stage.patch(NODES, node, {"metadata": {"annotations": {"rekindle.dev/hold": "true"}}})
        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode
        await stage.end(victim, exit_code=1)
        await stage.until("stopped Job", lambda: is_suspended(stage, "llm"))
        recovery = await ended(stage, "llm", "Stopping")
        await stage.until("blame", lambda: is_blamed(stage, "application"))

        await stage.xid_79(node)
        own = await stage.until("corrected blame", lambda: superseded(stage, recovery))
        path = PODS.path(culprit["metadata"]["name"], NAMESPACE)
        await stage.api.request("DELETE", path, body={"gracePeriodSeconds": 0})
        recovery = await recovered(stage, "llm", old)

        assert (own["blame"], own["blamedNode"]) == ("node", node)
        assert all(code in own["summary"] for code in ("xid-79", "exit-1")), "also what it said at first"
        assert recovery["status"].get("attempt", 1) == 1
        assert recovery["status"]["avoidNodes"] == [node]
        assert [cause["node"] for cause in recovery["status"]["causes"]] == [node, node]
        new = await stage.running("llm", 2, but=[pod["metadata"]["uid"] for pod in old])
        assert node not in nodes_of(new)
        no_trouble(stage)


async def is_blamed(stage: RealStage, blame: str) -> bool:
    """Whether the Incident names this culprit. An Incident is written after the Recovery that it has
    caused."""
    return [incident["status"]["blame"] for incident in await stage.all(INCIDENTS)] == [blame]


async def superseded(stage: RealStage, recovery: Any) -> Any:
    incident = await stage.get(INCIDENTS, recovery["spec"]["incident"])
    return incident["status"] if incident["status"].get("supersededBy") else None
