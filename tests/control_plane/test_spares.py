"""A spare on a real control plane: a full cluster loses a node, the gang resumes on the spare, and the spare
returns to reserve when the node returns to service."""

from __future__ import annotations

from typing import Any

import pytest

from recover.k8s.kinds import NODES
from tests.control_plane.cases import (
    hangs,
    incident_of,
    indexed_job,
    no_trouble,
    nodes_of,
    recovered,
    trained,
    uids,
    writes_to,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import RealStage, raised

pytestmark = pytest.mark.control_plane

SETTINGS = ("mode=recover", "budgets.quarantined_percent_max=100")
SPARE = {"rekindle.dev/spare": "true"}
TAINT = {"key": "rekindle.dev/spare", "value": "true", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/theirs", "value": "x", "effect": "PreferNoSchedule"}


async def kept_free(stage: RealStage, node: str, *others: Any) -> None:
    """Waits until the spare has Rekindle's taint, in addition to these taints."""

    async def found() -> bool:
        return await taints(stage, node) == [*others, TAINT]

    await stage.until(f"{node} kept free", found)


async def written(plane: ControlPlane, since: int, node: str) -> bool:
    """Whether the controller has changed the node since then. The audit log may lag."""
    return bool(writes_to(plane, since, NODES, node))


async def taints(stage: RealStage, node: str) -> list[Any]:
    return list((await stage.get(NODES, node))["spec"].get("taints", []))


async def in_place_of(stage: RealStage, node: str) -> str:
    """Returns the incident for which that node takes pods, or an empty string if the node is in reserve."""
    notes = (await stage.get(NODES, node))["metadata"].get("annotations", {})
    return str(notes.get("rekindle.dev/spare-for", ""))


async def test_a_gang_on_a_full_cluster_resumes_on_the_spare_which_is_given_back_after_the_uncordon(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=SETTINGS, agents=0) as stage:
        await stage.patch(NODES, "n3", {"spec": {"taints": [THEIRS]}})
        await stage.patch(NODES, "n3", {"metadata": {"labels": SPARE}})
        await kept_free(stage, "n3", THEIRS)
        old = await trained(stage, indexed_job("llm", dying="143"))
        assert nodes_of(old) == {"n1", "n2"}, "the spare keeps free"
        bad, good = old[0]["spec"]["nodeName"], old[1]["spec"]["nodeName"]

        await stage.xid_79(bad)
        recovery = await recovered(stage, "llm", old)

        new = await stage.running("llm", 2)
        assert nodes_of(new) == {good, "n3"}
        assert await taints(stage, "n3") == [THEIRS]
        incident = await incident_of(stage, recovery)
        assert await in_place_of(stage, "n3") == incident["metadata"]["name"]
        (told,) = [r for r in incident["status"]["actions"] if r["action"] == "lift-spare"]
        assert (told["target"], told["outcome"]) == (bad, "done")
        assert all(name in told["message"] for name in ("n3", bad))

        since = control_plane.audit_position()
        await stage.patch(NODES, bad, {"spec": {"unschedulable": None}})
        await kept_free(stage, "n3", THEIRS)

        assert await in_place_of(stage, "n3") == ""
        assert nodes_of(await stage.running("llm", 2)) == {good, "n3"}, "what runs there stays"
        await stage.until("write in the audit log", lambda: written(control_plane, since, "n3"))
        assert writes_to(control_plane, since, NODES, "n3") == ["patch"]
        no_trouble(stage)


async def test_a_gang_leaves_its_dead_node_for_the_spare_until_that_node_is_ready_again(
    control_plane: ControlPlane,
) -> None:
    settings = (*SETTINGS, "budgets.brake_nodes_min=100", "timing.fence_wait_s=1")
    async with raised(control_plane, nodes=3, settings=settings, agents=0) as stage:
        await stage.patch(NODES, "n3", {"metadata": {"labels": SPARE}})
        await kept_free(stage, "n3")
        old = await trained(stage, indexed_job("llm", dying="143"))
        dead = old[0]["spec"]["nodeName"]

        await stage.dies(dead)
        await hangs(stage, old)
        recovery = await recovered(stage, "llm", old)

        assert "n3" in nodes_of(await stage.running("llm", 2, but=uids(old)))
        assert await in_place_of(stage, "n3") == recovery["spec"]["incident"]

        await stage.patch(NODES, dead, {"metadata": {"labels": {"type": "kwok"}}})
        await kept_free(stage, "n3")

        assert await in_place_of(stage, "n3") == ""
        no_trouble(stage)
