"""A person deletes the Node object of a broken node, and the kubelet registers the node again in the same
boot."""

from __future__ import annotations

import pytest

from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES
from tests.control_plane.cases import no_trouble
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import RealStage, gpu_node, raised

pytestmark = pytest.mark.control_plane


async def test_it_is_taken_out_again_by_what_its_agent_tells_again(control_plane: ControlPlane) -> None:
    async with raised(control_plane, nodes=2, settings=("mode=recover",), agents=1) as stage:
        await stage.xid_79("n1")
        await stage.until("n1 cordoned", lambda: is_out(stage))

        await stage.api.request("DELETE", NODES.path("n1"))
        await stage.until("Incident closed, NodeHealth gone", lambda: nothing_is_left(stage))
        boot = stage.agents["n1"].host.boot_id
        await stage.create(NODES, gpu_node("n1", boot))

        await stage.until("n1 cordoned again", lambda: is_out(stage))
        phases = await stage.until("Incident of its own", lambda: two_incidents(stage))
        assert sorted(phases) == ["Closed", "Open"]
        no_trouble(stage)


async def is_out(stage: RealStage) -> bool:
    return bool((await stage.get(NODES, "n1"))["spec"].get("unschedulable"))


async def nothing_is_left(stage: RealStage) -> bool:
    names = [health["metadata"]["name"] for health in await stage.all(NODEHEALTHS)]
    return "n1" not in names and [i["status"].get("phase") for i in await stage.all(INCIDENTS)] == ["Closed"]


async def two_incidents(stage: RealStage) -> list[str] | None:
    found = [i["status"].get("phase", "Open") for i in await stage.all(INCIDENTS)]
    return found if len(found) == 2 else None
