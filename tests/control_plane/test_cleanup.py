"""`rekindle cleanup` with the chart's permissions on a real API server waits for the end of the last
controller, then removes what the controllers have written on nodes, and nothing else. A broken node keeps a
plain cordon."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from chaos.processes.children import Child, spawn
from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS, LEASES, NODES
from recover.kube.lease import LEASE
from recover.stories.keys import WRITTEN_BY_US
from recover.triage.spare_node import SPARE_FOR
from tests.chart.helm import CHART
from tests.control_plane.cases import cordons
from tests.control_plane.plane import AUDIT_LAG_S, ControlPlane
from tests.control_plane.rights import BINDINGS, CONTROLLER_NAME, CONTROLLER_USER, ROLES, SYSTEM, token
from tests.control_plane.stage import RealStage, raised

pytestmark = pytest.mark.control_plane

BESIDE_S = 3.0
"""Time in seconds for which the clean-up waits beside a controller that leads and renews its lease every 2
s."""
REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
PEOPLES = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}


async def test_it_waits_for_the_last_controller_and_leaves_nodes_as_their_people_had_them(
    control_plane: ControlPlane,
) -> None:
    plane = control_plane
    async with raised(plane, nodes=3, settings=["mode=recover"], agents=0) as stage:
        await stage.patch(NODES, "n2", {"spec": {"unschedulable": True, "taints": [PEOPLES]}})
        await stage.patch(NODES, "n3", {"metadata": {"labels": {"rekindle.dev/spare": "true"}}})
        await stage.xid_79("n1")
        await stage.until("n1 cordoned", lambda: cordoned(stage, "n1"))
        await stage.until("spare in its place", lambda: lent(stage, "n3"))
        since = plane.audit_position()

        async with granted(stage):
            cleanup = await begun_cleanup(stage, plane)
            await asyncio.sleep(BESIDE_S)

            assert cleanup.alive, cleanup.last_lines()
            assert await holder(stage) == CONTROLLER_NAME
            assert await taints(stage, "n1")
            await stage.controller.stop(grace_s=30)
            async with asyncio.timeout(120):
                assert await cleanup.process.wait() == 0, cleanup.last_lines()

        assert await cordons(stage) == {"n1", "n2"}, "n1's GPU is still lost"
        assert await taints(stage, "n1") == await taints(stage, "n3") == []
        assert await taints(stage, "n2") == [PEOPLES["key"]]
        assert [name for node in await stage.all(NODES) for name in ours(node)] == []
        assert "rekindle-state" not in {
            one["metadata"]["name"] for one in await stage.all(CONFIGMAPS, SYSTEM)
        }
        assert await holder(stage) == ""
        await asyncio.sleep(AUDIT_LAG_S)
        writes = [w for w in plane.audited(since) if w.object_ref.resource == "nodes" and w.succeeded]
        of_controller = [w for w in writes if w.user_agent.startswith("rekindle-controller/")]
        of_cleanup = [w for w in writes if w.user_agent.startswith("rekindle-cleanup_")]
        assert [w.object_ref.name for w in of_cleanup] == ["n1", "n3"]
        assert all(w.stage_timestamp <= of_cleanup[0].request_received_timestamp for w in of_controller), (
            "the controller wrote beside it"
        )


@asynccontextmanager
async def granted(stage: RealStage) -> AsyncIterator[None]:
    """Grants, while the block runs, the permissions that the chart grants for a removal."""
    files = sorted((CHART / "files" / "cleanup").iterdir())
    rights = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    kinds = {kind.kind: kind for kind in (ROLES, BINDINGS)}
    for body in rights:
        await stage.create(kinds[body["kind"]], body)
    try:
        await stage.until("permissions in force", lambda: may_clean_up(stage))
        yield
    finally:
        for body in rights:
            await stage.api.request("DELETE", kinds[body["kind"]].path(body["metadata"]["name"]))


async def may_clean_up(stage: RealStage) -> bool:
    """Whether the API server grants the permissions already: it reads new rules a moment later."""
    asked = {"verb": "patch", "resource": "nodes", "subresource": "status"}
    review = {"spec": {"user": CONTROLLER_USER, "resourceAttributes": asked}}
    return bool((await stage.create(REVIEWS, review))["status"]["allowed"])


async def begun_cleanup(stage: RealStage, plane: ControlPlane) -> Child:
    """Starts the clean-up as the chart's Job does, with a token of its account."""
    file = plane.folder / "cleanup.token"
    file.write_text(await token(stage.api, CONTROLLER_NAME), encoding="utf-8")
    command = [sys.executable, "-m", "detectors.commands.main", "cleanup", "--server", plane.url]
    command += ["--ca-file", str(plane.ca_file), "--token-file", str(file)]
    return await spawn("cleanup", command, plane.folder / "cleanup.log")


async def cordoned(stage: RealStage, node: str) -> bool:
    return node in await cordons(stage)


async def lent(stage: RealStage, node: str) -> bool:
    return SPARE_FOR in (await stage.get(NODES, node))["metadata"].get("annotations", {})


async def taints(stage: RealStage, node: str) -> list[str]:
    """Returns the keys of the node's taints, without those of Kubernetes itself."""
    found = (await stage.get(NODES, node))["spec"].get("taints", [])
    return [taint["key"] for taint in found if not taint["key"].startswith("node.kubernetes.io/")]


async def holder(stage: RealStage) -> str:
    return str((await stage.get(LEASES, LEASE, SYSTEM))["spec"]["holderIdentity"])


def ours(node: dict[str, Any]) -> list[str]:
    metadata = node["metadata"]
    return [n for n in (*metadata.get("annotations", {}), *metadata.get("labels", {})) if n in WRITTEN_BY_US]
