"""Findings of `rekindle doctor` about an installation on a real control plane: the chart installed by Helm,
KWOK's nodes and pods, the shipped controller as a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.processes.children import Child
from detectors import __version__
from detectors.agent.publish import patch_body
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.contract import Coverage, CoverageState, NodeHealth, Source
from detectors.wire.resource import MergePatch, Resource
from recover.cli.doctor_command import run
from recover.doctor.case import Finding
from recover.doctor.installation.inspect import look
from recover.doctor.installation.told import InstallationReport, examined
from recover.k8s.kinds import JOBS, LEASES, NAMESPACES, NODEHEALTHS, NODES, PODS, RECIPES
from tests.chart.helm import CHART, NAMESPACE, REGISTRY, Helm
from tests.control_plane.build import cached
from tests.control_plane.cases import indexed_job
from tests.control_plane.clean import CRDS, install_crds
from tests.control_plane.controllers import start_controller
from tests.control_plane.plane import ADMIN, ControlPlane, started
from tests.control_plane.rights import CONTROLLER_NAME, ROLES
from tests.control_plane.stage import ANSWERED_S, gpu_node

pytestmark = pytest.mark.control_plane

LIMIT_S = 120.0
BROKEN = {
    "clock",
    "definition-outdated",
    "kmsg-blind",
    "leader-is-no-pod",
    "misread",
    "nodes-without-agent-label",
    "pod-security",
    "policy-changed",
    "policy-missing",
    "recipe-not-accepted",
    "rights-missing",
}
LABEL = "nvidia.com/gpu.present"
ENFORCED = "pod-security.kubernetes.io/enforce"
_ADMISSION = "admissionregistration.k8s.io"
_BINDINGS = Resource(_ADMISSION, "v1", "validatingadmissionpolicybindings", "", namespaced=False)


@pytest.fixture
def untouched() -> Iterator[ControlPlane]:
    """Yields a control plane for this module alone: the doctor would also find what other tests leave
    behind."""
    with started(cached(), controllers=True) as plane:
        yield plane


async def test_an_installation_that_is_all_right_and_what_is_said_of_each_thing_that_is_not(
    untouched: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin, nobody = (str(untouched.kubeconfig(user)) for user in (ADMIN, "nobody"))
    async with KubeApi(untouched.credentials(), timeout_s=ANSWERED_S) as api:
        assert await asyncio.to_thread(run, ["--kubeconfig", admin]) == 3
        bare = capsys.readouterr().err
        assert bare.startswith("rekindle: ")
        assert "helm install rekindle charts/rekindle" in bare
        await install_crds(api)
        assert await asyncio.to_thread(run, ["--kubeconfig", admin]) == 3
        of_definitions = capsys.readouterr().err
        assert "helm install rekindle charts/rekindle" in of_definitions
        assert of_definitions != bare, "its definitions are there"

        async with installed(api, untouched, Helm("helm4", tmp_path, Path(admin))):
            assert await until(api, set()) == {}
            report = await told(api)
            assert report.not_made == ()
            assert (report.facts.agents_ready, report.facts.accelerator_nodes) == (2, 2)
            assert (report.facts.controllers_ready, report.facts.controllers) == (2, 2)
            assert (report.facts.leader or "").startswith(f"{CONTROLLER_NAME}-")

            assert await asyncio.to_thread(run, ["-n", "elsewhere", "--kubeconfig", admin]) == 3
            wrong = capsys.readouterr().err
            assert all(name in wrong for name in ("elsewhere", NAMESPACE))

            await broken(api)
            found = await until(api, BROKEN)
            assert found["definition-outdated"].where.value == "status.summary"
            assert "get list watch patch nodes" in found["rights-missing"].what
            assert found["nodes-without-agent-label"].fix.endswith(",example.com/gpu}'")
            assert found["policy-changed"].where.field == "spec.validationActions"
            assert found["kmsg-blind"].where.value == "/dev/kmsg: Operation not permitted"
            assert all(name in found["clock"].what for name in ("60 min", "g1"))

            capsys.readouterr()
            assert await asyncio.to_thread(run, ["-o", "json", "--kubeconfig", admin]) == 1
            told_as_json = msgspec.json.decode(capsys.readouterr().out)["installation"]
            assert {finding["name"] for finding in told_as_json["findings"]} == BROKEN

            assert await asyncio.to_thread(run, ["-o", "json", "--kubeconfig", nobody]) == 6
            told_as_json = msgspec.json.decode(capsys.readouterr().out)["installation"]
            not_made = {one["check"] for one in told_as_json["notMade"]}
            assert not_made >= {"rights", "coverage", "catalogue", "agents-version", "clocks"}

            assert await asyncio.to_thread(run, ["--kubeconfig", nobody]) == 6
            printed = capsys.readouterr()
            assert printed.err == ""
            (line,) = (line for line in printed.out.splitlines() if "you have no permission to read" in line)
            assert all(name in line for name in ("rights", "coverage", "clocks", "nodehealths"))


async def told(api: KubeApi) -> InstallationReport:
    return examined(await look(api))


async def until(api: KubeApi, names: set[str]) -> dict[str, Finding]:
    """Returns the findings by name, once they have these names. Permissions and policies are in force a
    moment after they were written."""
    found: dict[str, Finding] | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(LIMIT_S):
            while found is None or found.keys() != names:
                found = {finding.name: finding for finding in (await told(api)).findings}
    assert found is not None
    assert found.keys() == names
    return found


@asynccontextmanager
async def installed(api: KubeApi, plane: ControlPlane, helm: Helm) -> AsyncIterator[None]:
    """Installs Rekindle in mode recover, with two agents that read all sources."""
    controller: Child | None = None
    try:
        for name in ("g1", "g2"):
            node = gpu_node(name)
            node["metadata"]["labels"] |= {LABEL: "true", "kubernetes.io/os": "linux"}
            await api.request("POST", NODES.path(), body=node)
        place = [f"--namespace={NAMESPACE}", "--create-namespace", "--take-ownership"]
        place += [f"--set=image.registry={REGISTRY}", "--wait", "--timeout=180s"]
        helm.run("install", "rekindle", str(CHART), *place, "--set=mode=recover")
        pods = await listed(api, PODS, "app.kubernetes.io/component=controller")
        controller = await start_controller(api, plane, ["mode=recover"], pods[0]["metadata"]["name"])
        for name in ("g1", "g2"):
            await covered(api, name)
        yield
    finally:
        if controller is not None:
            await controller.stop()


async def listed(api: KubeApi, resource: Resource, labels: str) -> list[Any]:
    answer = await api.request("GET", resource.path(), params={"labelSelector": labels})
    return list(msgspec.json.decode(answer)["items"])


async def covered(api: KubeApi, node: str, *, at: datetime | None = None, blind: str = "") -> None:
    """Publishes what the node's agent would report, as soon as the controller has created the NodeHealth."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with suppress(ApiError):
                raw = await api.request("GET", NODEHEALTHS.path(node))
                break
            await asyncio.sleep(0.1)
    now = datetime.now(UTC)  # after the wait: an old time would look like a slow clock
    status = msgspec.structs.replace(
        msgspec.json.decode(raw, type=NodeHealth).status,
        agent_version=__version__,
        observed_at=at or now,
        coverage=[
            Coverage(
                source=source,
                since=now,
                state=CoverageState.BLIND if source == blind else CoverageState.COVERED,
                why="/dev/kmsg: Operation not permitted" if source == blind else "",
            )
            for source in Source
        ],
    )
    path = NODEHEALTHS.path(node, subresource="status")
    await api.request("PATCH", path, body=patch_body(status), content_type=MergePatch)


async def broken(api: KubeApi) -> None:
    """Breaks one thing for nearly each check."""

    async def patch(resource: Resource, name: str, body: Any, namespace: str = "") -> None:
        await api.request("PATCH", resource.path(name, namespace), body=body, content_type=MergePatch)

    definition = msgspec.json.decode(await api.request("GET", CRDS.path("incidents.rekindle.dev")))
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del spec["properties"]["summary"]
    await patch(CRDS, "incidents.rekindle.dev", {"spec": definition["spec"]})
    role = msgspec.json.decode(await api.request("GET", ROLES.path(CONTROLLER_NAME)))
    await patch(
        ROLES, CONTROLLER_NAME, {"rules": [r for r in role["rules"] if "nodes" not in r["resources"]]}
    )
    await patch(_BINDINGS, "rekindle-agent", {"spec": {"validationActions": ["Audit"]}})
    await api.request("DELETE", _BINDINGS.path("rekindle-controller"))
    await patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {ENFORCED: "restricted"}}})
    bare = gpu_node("g3")
    bare["metadata"]["labels"]["example.com/gpu"] = "h100"
    bare["metadata"]["labels"]["rekindle.dev/manged"] = "false"
    await api.request("POST", NODES.path(), body=bare)
    await covered(api, "g1", at=datetime.now(UTC) + timedelta(hours=1))
    await covered(api, "g2", blind="kmsg")
    job = indexed_job("mistyped")
    job["metadata"]["annotations"] = {"rekindle.dev/hang-timeout": "soon"}
    with suppress(ApiError):
        await api.request("POST", NAMESPACES.path(), body={"metadata": {"name": "ml"}})
    await api.request("POST", JOBS.path(namespace="ml"), body=job)
    recipe = {"apiVersion": RECIPES.api_version, "kind": RECIPES.kind, "metadata": {"name": "night"}}
    match = {"allOf": [{"log": "good {night"}]}
    change = {"advise": "Let it sleep."}
    spec = {"title": "It stops at night", "source": "a test of doctor", "match": match, "change": change}
    await api.request("POST", RECIPES.path(), body={**recipe, "spec": spec})
    await patch(
        LEASES,
        CONTROLLER_NAME,
        {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}},
        NAMESPACE,
    )
