"""Nodes that fall silent under a gang. The cases show which gangs Rekindle leaves alone, what proves that a
node is off, and that the gang continues elsewhere. The wait of 300 s without any proof is tested in virtual
time, in tests/chaos."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, NODES
from tests.control_plane.cases import (
    ended,
    hangs,
    incident_of,
    indexed_job,
    living,
    no_trouble,
    nodes_of,
    on,
    pods_of,
    recovered,
    recoveries,
    refusals,
    trained,
    uids,
    writes_to,
)
from tests.control_plane.clean import removed
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

SETTINGS = ("mode=recover", "budgets.quarantined_percent_max=100", "budgets.brake_nodes_min=100")
"""Settings without an effective brake: on a very busy machine more nodes than the test intends may miss a
lease."""
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CLAIM = {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}


async def test_a_gang_leaves_its_dead_node_once_it_hangs_and_one_that_trains_on_is_never_stopped(
    control_plane: ControlPlane,
) -> None:
    """Three gangs of two ranks each have one rank on a node that dies. Two of the gangs hang. The proofs that
    their nodes are off are the out-of-service taint and the deleted Node."""
    async with raised(control_plane, nodes=8, settings=SETTINGS, agents=0) as stage:
        hosts = {"tainted": ("n1", "n2", "n7"), "deleted": ("n3", "n4", "n8"), "trains": ("n5", "n6")}
        old = {name: await trained(stage, indexed_job(name, pod=on(*nodes))) for name, nodes in hosts.items()}
        dead = {name: pods[0]["spec"]["nodeName"] for name, pods in old.items()}
        since = control_plane.audit_position()

        await asyncio.gather(*(stage.dies(node) for node in dead.values()))
        await stage.until("refusals StillTraining", lambda: all_are_left_alone(stage, list(hosts)))
        assert await recoveries(stage, "trains") == []

        for name in ("tainted", "deleted"):
            await hangs(stage, old[name])
            await ended(stage, name, "Fencing")
        await stage.steps(old["trains"][1], 1, 160)
        taints = (await stage.get(NODES, dead["tainted"]))["spec"].get("taints", [])
        await stage.patch(NODES, dead["tainted"], {"spec": {"taints": [*taints, OUT_OF_SERVICE]}})
        await stage.api.request("DELETE", NODES.path(dead["deleted"]))

        for name in ("tainted", "deleted"):
            recovery = await recovered(stage, name, old[name])
            assert (await incident_of(stage, recovery))["status"]["blame"] == "node"
            assert dead[name] not in nodes_of(await living(stage, name))
        assert writes_to(control_plane, since, JOBS, "trains") == []
        assert uids(await pods_of(stage, "trains")) == uids(old["trains"])
        no_trouble(stage)


async def all_are_left_alone(stage: RealStage, jobs: list[str]) -> bool:
    return all([set((await refusals(stage, job)).values()) == {"StillTraining"} for job in jobs])


async def test_a_dead_node_that_nothing_proves_off_keeps_a_gang_with_a_claim_down_and_asks_a_person(
    control_plane: ControlPlane,
) -> None:
    """Neither the wait nor its end frees a pod that may still write to its volume. The two gangs share no
    node: the dead node of the held gang must not be the one that the other gang continues on."""
    settings = (*SETTINGS, "timing.fence_wait_s=2")
    async with raised(control_plane, nodes=5, settings=settings, agents=0) as stage, a_claim(stage):
        safe = await trained(stage, indexed_job("safe", pod=on("n1", "n2", "n5")))
        pod = {**on("n3", "n4"), "volumes": [CLAIM]}
        held = await trained(stage, indexed_job("held", pod=pod))
        dead = {name: pods[0]["spec"]["nodeName"] for name, pods in (("safe", safe), ("held", held))}
        await asyncio.gather(*(stage.dies(node) for node in set(dead.values())))

        await hangs(stage, safe)
        await hangs(stage, held)
        blocked = await ended(stage, "held", "Blocked", "NeedsFencingProof")
        await recovered(stage, "safe", safe)

        assert dead["held"] in blocked["status"]["message"]
        assert dead["safe"] not in nodes_of(await living(stage, "safe"))
        assert (await stage.get(JOBS, "held", NAMESPACE))["spec"]["suspend"] is True
        kept = [p for p in await pods_of(stage, "held") if p["spec"]["nodeName"] == dead["held"]]
        assert [p["status"]["phase"] for p in kept] == ["Running"]


@asynccontextmanager
async def a_claim(stage: RealStage) -> AsyncIterator[None]:
    """Creates a claim and binds it to a volume by hand, so that the scheduler lets its pods start. Both are
    removed again."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    volume = {"capacity": size, "nfs": {"server": "nfs.example", "path": "/scratch"}}
    asked = {"resources": {"requests": size}, "volumeName": "scratch"}
    shared = {"accessModes": modes, "storageClassName": ""}
    specs = {VOLUMES: {**volume, **shared}, CLAIMS: {**asked, **shared}}
    for resource, spec in specs.items():
        await stage.create(resource, {"metadata": {"name": "scratch"}, "spec": spec}, NAMESPACE)
    try:
        yield
    finally:
        for resource in specs:
            await removed(stage.api, resource, "scratch", NAMESPACE)
