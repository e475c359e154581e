"""An upgrade in place: the controller of an earlier version is ended with a Recovery in each phase and with
quarantined nodes, the chart is upgraded, and this version completes everything.

The earlier controller really runs, so its objects are real. KWOK plays the nodes and the release's own pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import KubeApi
from recover.api.crds import manifests
from recover.api.marks import QUARANTINE, UNHEALTHY
from recover.k8s.kinds import CONFIGMAPS, LEASES, NAMESPACES, NODES, RECOVERIES
from tests.chart.earlier import Earlier, laid
from tests.chart.helm import CHART, Helm
from tests.chart.helm import NAMESPACE as SYSTEM
from tests.chart.left_behind import (
    BLIND,
    BROKEN,
    HOSTS,
    IDLE,
    PHASES,
    all_train,
    are_at,
    begins_from,
    dead_node,
    hold,
    in_every_phase,
    phases,
)
from tests.control_plane.build import cached
from tests.control_plane.cases import (
    IN_STEP,
    cordons,
    end_at_last,
    no_trouble,
    nodes_of,
    pods_of,
    recoveries,
    seconds_later,
    told_to,
    uids,
)
from tests.control_plane.clean import CRDS
from tests.control_plane.controllers import PROGRAM, start_controller
from tests.control_plane.operator import training_operator
from tests.control_plane.plane import ControlPlane, started
from tests.control_plane.refusing import refusing
from tests.control_plane.rights import CONTROLLER_NAME
from tests.control_plane.stage import NAMESPACE, RealStage, gpu_node

pytestmark = pytest.mark.control_plane

WAIT = ("--wait", "--timeout=180s")
OFFICE = "example.com/office"
LINUX = {"kubernetes.io/os": "linux"}
WITH_AGENT = {"nvidia.com/gpu.present": "true"}
VALUES = {
    "mode": "recover",
    "controller": {"replicas": 1, "nodeSelector": {OFFICE: ""}},
    "agent": {"maxUnavailable": "100%"},
    "settings": {
        "controller": {
            # Nobody restarts a controller here, so none may end because a busy machine answers late.
            "lease": {"duration_s": 20, "renew_deadline_s": 15, "retry_s": 0.5},
            # A start without room is soon Blocked, and no scan ends by its time limit.
            "timing": {"resume_deadline_s": 10, "scan_deadline_s": 600},
            "budgets": {"quarantined_percent_max": 100, "pool_percent_max": 100, "brake_nodes_min": 100},
        }
    },
}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yields a separate control plane, on which the earlier version has installed all objects of the
    chart."""
    with started(cached(), controllers=True) as plane, training_operator(cached(), plane):
        yield plane


async def test_an_upgrade_in_place_finishes_what_the_version_before_it_has_begun(
    plane: ControlPlane, tmp_path: Path
) -> None:
    earlier = laid(tmp_path / "earlier")
    assert earlier.imports("recover").is_relative_to(earlier.folder)
    helm = Helm("helm3", tmp_path, plane.kubeconfig())
    async with KubeApi(plane.credentials(), timeout_s=30.0) as api:
        await api.request("POST", NAMESPACES.path(), body={"metadata": {"name": NAMESPACE}})
        await lay_nodes(api)
        await released(helm, "install", earlier.chart, "--create-namespace", *WAIT)
        async with controlled(api, plane, earlier, "before") as stage:
            old = await all_train(stage)
            async with refusing(
                stage, RECOVERIES, "not now", prefix="pytorchjob-planned-", subresource="status"
            ):
                await in_every_phase(stage, old)
                await stage.controller.kill()
        assert await phases(stage) == PHASES

        await released(helm, "upgrade", CHART, "--reuse-values")
        await the_definitions_are_new(api)
        async with controlled(api, plane, None, "after") as stage:
            await finished(stage, old)

        await asyncio.to_thread(helm.run, "rollback", "rekindle", "1", f"--namespace={SYSTEM}")
        async with controlled(api, plane, earlier, "again") as stage:
            await recovers_once_more(stage, "planned")


async def lay_nodes(api: KubeApi) -> None:
    """Creates the nodes. All nodes except one have the label that attracts an agent's pod. One node has room
    only for the controllers' pods."""
    for name in (IDLE, *(host for hosts in HOSTS.values() for host in hosts)):
        body = gpu_node(name)
        body["metadata"]["labels"] |= LINUX | ({} if name == BLIND else WITH_AGENT)
        await api.request("POST", NODES.path(), body=body)
    labels, room = {"type": "kwok", OFFICE: "", **LINUX}, {"cpu": "8", "memory": "8Gi", "pods": "9"}
    status = {"allocatable": room, "capacity": room}
    body = {"metadata": {"name": "office", "labels": labels}, "status": status}
    await api.request("POST", NODES.path(), body=body)


async def released(helm: Helm, verb: str, chart: Path, *flags: str) -> None:
    place = (f"--namespace={SYSTEM}", *helm.values(VALUES), *flags)
    await asyncio.to_thread(helm.run, verb, "rekindle", str(chart), *place)


@asynccontextmanager
async def controlled(
    api: KubeApi, plane: ControlPlane, earlier: Earlier | None, identity: str
) -> AsyncIterator[RealStage]:
    """Yields a stage with a controller that has the release's settings, once it leads. KWOK starts no
    container, so the controller runs as a process here."""
    stored = msgspec.json.decode(await api.request("GET", CONFIGMAPS.path("rekindle-settings", SYSTEM)))
    settings = plane.folder / f"{identity}.toml"
    settings.write_text(stored["data"]["controller.toml"], encoding="utf-8")
    program, environment = (earlier.controller, earlier.environment) if earlier else (PROGRAM, {})
    controller = await start_controller(
        api, plane, [], identity, program=program, environment=environment, settings_file=settings
    )
    try:
        stage = RealStage(api, controller)
        await stage.until(f"{identity} leading", partial(leads, stage, identity))
        await stage.until(f"{identity} in step", partial(is_in_step, stage))
        yield stage
    finally:
        await controller.stop()


async def leads(stage: RealStage, identity: str) -> bool:
    assert stage.controller.alive, stage.controller.last_lines()
    lease = await stage.get(LEASES, CONTROLLER_NAME, SYSTEM)
    return bool(lease["spec"].get("holderIdentity") == identity)


async def is_in_step(stage: RealStage) -> bool:
    """Whether the controller's caches are up to date. From then on it sees each change. It never learns of a
    pod that fails and is replaced before that."""
    assert stage.controller.alive, stage.controller.last_lines()
    return IN_STEP in stage.controller.log.read_text(encoding="utf-8")


# --- this version, and the earlier one again ----------------------------------------------------------------


async def finished(stage: RealStage, old: dict[str, list[Any]]) -> None:
    """Asserts that each Recovery waits for the event that its phase needs, and that no node is returned to
    service too early."""
    started_before = uids(await stage.running("verifying", 2))
    await stage.until("end of Planned", partial(has_left_planned, stage))
    assert await cordons(stage) == set(BROKEN)

    await end_at_last(stage, await pods_of(stage, "stopping"))
    await hold(stage, None)
    await begins_from(stage, "choosing", 100)
    taints = (await stage.get(NODES, dead_node(old)))["spec"].get("taints", [])
    await stage.patch(NODES, dead_node(old), {"spec": {"taints": [*taints, OUT_OF_SERVICE]}})
    for node in BROKEN:
        await stage.boots(node, f"second-boot-of-{node}")
        await stage.uncordons(node)
    new = {name: await stage.running(name, 2, but=uids(pods)) for name, pods in old.items()}
    await stage.patch(NODES, BLIND, {"metadata": {"labels": WITH_AGENT}})
    await stage.covered(BLIND)
    for name, pods in new.items():
        (recovery,) = await recoveries(stage, name)
        assert {await told_to(stage, pod) for pod in pods} == {recovery["metadata"]["name"]}
        await stage.steps(pods[0], 101, 101)
    await stage.until("end of all Recoveries", partial(are_at, stage, dict.fromkeys(HOSTS, "Succeeded")))

    assert uids(new["verifying"]) == started_before
    assert dead_node(old) not in nodes_of(new["fencing"])
    for name, pods in new.items():
        assert sorted(uids(await stage.running(name, 2))) == sorted(uids(pods)), f"{name} was stopped twice"
        (recovery,) = await recoveries(stage, name)
        status = recovery["status"]
        again = [1] if name == "resuming" else []  # no proof keeps it off its node any more
        assert (status["attempt"] - len(again), status.get("uncounted", [])) == (1, again)
    await stage.until("nodes without a trace of ours", partial(are_given_back, stage))
    told = [one.get("data", {}) for one in await stage.all(CONFIGMAPS, NAMESPACE)]
    assert not any("REKINDLE_RESUME_FROM" in data for data in told)


async def the_definitions_are_new(api: KubeApi) -> None:
    for crd in manifests():
        stored = msgspec.json.decode(await api.request("GET", CRDS.path(crd["metadata"]["name"])))
        assert [one["schema"] for one in stored["spec"]["versions"]] == [
            one["schema"] for one in crd["spec"]["versions"]
        ]


async def recovers_once_more(stage: RealStage, name: str) -> None:
    """Asserts that the gang recovers again after a downgrade: nothing that this version has written hinders
    the earlier version."""
    old = await stage.running(name, 2)
    await seconds_later(old)
    await stage.end(old[1], exit_code=1)
    new = await stage.running(name, 2, but=uids(old))
    await stage.steps(new[0], 102, 102)
    await stage.until("second Recovery that Succeeded", partial(have_succeeded, stage, name, 2))
    no_trouble(stage)


async def have_succeeded(stage: RealStage, name: str, count: int) -> bool:
    return [r["status"]["phase"] for r in await recoveries(stage, name)] == ["Succeeded"] * count


async def has_left_planned(stage: RealStage) -> bool:
    return (await phases(stage))["planned"] != "Planned"


async def are_given_back(stage: RealStage) -> bool:
    return not any(
        node["spec"].get("unschedulable")
        or QUARANTINE in node["metadata"].get("annotations", {})
        or UNHEALTHY in {taint["key"] for taint in node["spec"].get("taints", [])}
        for node in await stage.all(NODES)
    )
