"""A release from installation to end on a real API server, by Helm 3 and 4. KWOK plays nodes and pods."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.processes.children import spawn
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import MergePatch, Resource
from recover.api.marks import QUARANTINE
from recover.k8s.kinds import JOBS, LEASES, NAMESPACES, NODEHEALTHS, NODES, PODS
from recover.model import Quarantine
from tests.chart.helm import CHART, HELMS, NAMESPACE, REGISTRY, Helm, HelmError, of_kind, path_of
from tests.chart.rendered import CLEANS_UP
from tests.control_plane.build import cached
from tests.control_plane.callers import ANY_STATUS
from tests.control_plane.clean import install_crds, wiped
from tests.control_plane.plane import ControlPlane, started
from tests.control_plane.rights import AGENT, CONTROLLER_NAME, ROLES, manifests, token
from tests.control_plane.stage import ANSWERED_S

pytestmark = pytest.mark.control_plane

LIMIT_S = 90.0
WAIT = ("--wait", "--timeout=180s")
GPU = {"type": "kwok", "kubernetes.io/os": "linux", "nvidia.com/gpu.present": "true"}
OTHER = {"type": "kwok", "kubernetes.io/os": "linux"}
NODE_LABELS = {"g1": GPU, "g2": GPU, "c1": OTHER, "c2": OTHER}
NOTE = Quarantine(
    incident="g2-device-lost-1", fault="device-lost", at=datetime(2026, 11, 21, tzinfo=UTC), cordoned=True
)
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
OUR_TAINT = {"key": "rekindle.dev/unhealthy", "value": "device-lost", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """Yields a separate control plane: the shared one has seen hundreds of nodes come, die and go, and once
    made no pod Ready."""
    with started(cached(), controllers=True) as plane:
        yield plane


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest, tmp_path: Path, control_plane: ControlPlane) -> Iterator[Helm]:
    """Yields Helm. The release is gone afterwards, however the test ends."""
    helm = Helm(request.param, tmp_path, control_plane.kubeconfig())
    yield helm
    with suppress(HelmError):
        helm.run("uninstall", "rekindle", f"--namespace={NAMESPACE}", "--no-hooks", *WAIT)


async def test_a_release_from_its_installation_to_its_end(helm: Helm, control_plane: ControlPlane) -> None:
    async with KubeApi(control_plane.credentials(), timeout_s=ANSWERED_S) as api:
        await install_crds(api)
        try:
            await lay_nodes(api)
            await lay_endpoints(api)
            await installed(helm, control_plane, api)
            await upgraded_and_rolled_back(helm, api)
            await removed(helm, control_plane, api)
        finally:
            await wiped(api)


async def installed(helm: Helm, plane: ControlPlane, api: KubeApi) -> None:
    said = helm.run("install", "rekindle", str(CHART), *place(), "--create-namespace", *WAIT)
    assert "mode observe" in said
    assert "pod-security.kubernetes.io/enforce" not in said
    await install_crds(api)  # waits: their storage begins again when Helm takes over the CRDs

    agents, controllers = await pods(api, "agent"), await pods(api, "controller")
    assert sorted(pod["spec"]["nodeName"] for pod in agents) == ["g1", "g2"], "a tainted node, too"
    assert sorted(pod["spec"]["nodeName"] for pod in controllers) == ["c1", "c2"], "off the GPUs, and apart"
    assert {pod["spec"]["serviceAccountName"] for pod in agents} == {AGENT}
    assert {pod["spec"]["serviceAccountName"] for pod in controllers} == {CONTROLLER_NAME}
    assert {pod["spec"]["priorityClassName"] for pod in agents} == {"system-node-critical"}
    for body in manifests():
        if body["metadata"]["name"] not in ("rekindle-environment", "rekindle-consent"):
            there = await get(api, body)
            assert {key: there.get(key) for key in ("rules", "roleRef", "subjects")} == {
                key: body.get(key) for key in ("rules", "roleRef", "subjects")
            }
    await the_network_lets_them_reach_the_api_server_where_it_listens(api)
    await an_agents_token_writes_its_own_node(api, plane, agents)
    await teams_may_read_and_delete_recoveries(api)
    tester = await helms_test_ends_well(helm, api, plane)
    cleanup = of_kind(helm.render(CLEANS_UP), "Job")["spec"]["template"]
    await only_the_agent_needs_a_privileged_namespace(helm, api, agents[0], [controllers[0], tester, cleanup])


async def the_network_lets_them_reach_the_api_server_where_it_listens(api: KubeApi) -> None:
    for component in ("agent", "controller", "cleanup", "test"):
        metadata = {"name": f"rekindle-{component}", "namespace": NAMESPACE}
        kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
        (rule,) = (await get(api, {**kind, "metadata": metadata}))["spec"]["egress"]
        assert [port["port"] for port in rule["ports"]] == [443, 6443, 8443]


async def an_agents_token_writes_its_own_node(
    api: KubeApi, plane: ControlPlane, agents: list[dict[str, Any]]
) -> None:
    """The token is like the one that a kubelet requests: it is bound to the pod, and the API server adds the
    pod's node."""
    credentials = Credentials(plane.url, token=await token(api, CONTROLLER_NAME), ca_file=str(plane.ca_file))
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as controller:
        for name in ("g1", "g2"):
            body = {"apiVersion": "rekindle.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": name}}
            await controller.request("POST", NODEHEALTHS.path(), body=body)
    (pod,) = (pod for pod in agents if pod["spec"]["nodeName"] == "g1")
    text = await token(api, AGENT, pod=pod)
    credentials = Credentials(plane.url, token=text, ca_file=str(plane.ca_file))
    async with KubeApi(credentials, timeout_s=ANSWERED_S) as agent:
        own, other = (NODEHEALTHS.path(name, subresource="status") for name in ("g1", "g2"))
        refused = ""
        async with asyncio.timeout(LIMIT_S):
            while not refused:  # a new policy is in force after a moment
                try:
                    await agent.request("PATCH", other, body=ANY_STATUS, content_type=MergePatch)
                except ApiError as error:
                    refused = error.message
        assert "'rekindle-agent'" in refused, "the policy"
        await agent.request("PATCH", own, body=ANY_STATUS, content_type=MergePatch)


async def teams_may_read_and_delete_recoveries(api: KubeApi) -> None:
    """Kubernetes' own roles grant this, because its controller-manager adds Rekindle's roles to them."""
    verbs: dict[str, set[str]] = {}
    expected = {"view": {"get", "list", "watch"}, "edit": {"get", "list", "watch", "delete"}}
    async with asyncio.timeout(LIMIT_S):
        while verbs != expected:
            verbs = {name: await verbs_on_recoveries(api, name) for name in expected}


async def verbs_on_recoveries(api: KubeApi, role: str) -> set[str]:
    stored = msgspec.json.decode(await api.request("GET", ROLES.path(role)))
    return {verb for rule in stored["rules"] if "recoveries" in rule["resources"] for verb in rule["verbs"]}


async def helms_test_ends_well(helm: Helm, api: KubeApi, plane: ControlPlane) -> dict[str, Any]:
    testing = asyncio.create_task(
        asyncio.to_thread(helm.run, "test", "rekindle", f"--namespace={NAMESPACE}", "--timeout=180s")
    )
    pod = await running(api, "test")
    assert await carried_out(api, plane, pod) == 0
    assert "Succeeded" in await testing
    return pod


async def running(api: KubeApi, component: str) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT_S):
        while not (found := [p for p in await pods(api, component) if p["status"]["phase"] == "Running"]):
            await asyncio.sleep(0.05)
    (pod,) = found
    return pod


async def carried_out(api: KubeApi, plane: ControlPlane, pod: dict[str, Any]) -> int:
    """Runs the pod's command here, because KWOK starts no container. The command gets a token of the pod's
    account and the settings that the pod mounts, and its end is reported. Returns the exit status."""
    (plane.folder / "controller.toml").write_text(await stored_settings(api), encoding="utf-8")
    file = plane.folder / "pod.token"
    file.write_text(await token(api, pod["spec"]["serviceAccountName"], pod=pod), encoding="utf-8")
    given = pod["spec"]["containers"][0]["args"]
    args = [one.replace("/etc/rekindle/", f"{plane.folder}/") for one in given]
    command = [sys.executable, "-m", "detectors.commands.main", *args]
    command += ["--server", plane.url, "--ca-file", str(plane.ca_file), "--token-file", str(file)]
    child = await spawn(args[0], command, plane.folder / f"{args[0]}.log")
    status = await child.process.wait()
    sys.stdout.write(child.last_lines(20))
    path = PODS.path(pod["metadata"]["name"], NAMESPACE, "status")
    phase = {"status": {"phase": "Failed" if status else "Succeeded"}}
    await api.request("PATCH", path, body=phase, content_type=MergePatch)
    return status


async def only_the_agent_needs_a_privileged_namespace(
    helm: Helm, api: KubeApi, agent: dict[str, Any], others: Sequence[dict[str, Any]]
) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    none = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
    namespace = NAMESPACES.path(NAMESPACE)
    await api.request("PATCH", namespace, body=label, content_type=MergePatch)
    try:
        async with asyncio.timeout(LIMIT_S):
            while await is_let_in(api, agent):  # until the label is in force
                await asyncio.sleep(0.05)
        with pytest.raises(ApiError, match=r"violates PodSecurity .*privileged"):
            await tried(api, agent)
        for pod in others:
            await tried(api, pod)
        said = helm.run("upgrade", "rekindle", str(CHART), *place(), "--dry-run=server")
        assert "`restricted`" in said
        assert "pod-security.kubernetes.io/enforce=privileged" in said
    finally:
        await api.request("PATCH", namespace, body=none, content_type=MergePatch)


async def is_let_in(api: KubeApi, pod: dict[str, Any]) -> bool:
    try:
        await tried(api, pod)
    except ApiError:
        return False
    return True


async def tried(api: KubeApi, pod: dict[str, Any]) -> None:
    """Checks whether the same pod would be admitted again. Raises ApiError."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again"}, "spec": spec}
    await api.request("POST", PODS.path(namespace=NAMESPACE), params={"dryRun": "All"}, body=body)


async def upgraded_and_rolled_back(helm: Helm, api: KubeApi) -> None:
    before = uids(await pods(api, "agent")), uids(await pods(api, "controller"))
    leads = {"spec": {"holderIdentity": "somebody"}}
    lease = LEASES.path(CONTROLLER_NAME, NAMESPACE)
    await api.request("PATCH", lease, body=leads, content_type=MergePatch)

    said = helm.run("upgrade", "rekindle", str(CHART), *place(), "--set=mode=recover", *WAIT)

    assert "mode recover" in said
    assert uids(await pods(api, "agent")) == before[0], "their settings are the same"
    async with asyncio.timeout(LIMIT_S):  # Helm 3 waits only for the new pods
        while uids(await pods(api, "controller")) & before[1]:
            await asyncio.sleep(0.05)
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}
    environment = {**policy, "metadata": {"name": "rekindle-environment"}}
    assert await get(api, environment)
    said = helm.run("upgrade", "rekindle", str(CHART), *place(), "--set=mode=repair", *WAIT)
    assert "mode repair" in said
    assert 'mode = "repair"' in await stored_settings(api)
    helm.run("rollback", "rekindle", "1", f"--namespace={NAMESPACE}", *WAIT)
    assert not await get(api, environment)
    assert 'mode = "observe"' in await stored_settings(api)
    held = msgspec.json.decode(await api.request("GET", lease))
    assert held["spec"]["holderIdentity"] == "somebody", "whoever leads goes on leading"


async def stored_settings(api: KubeApi) -> str:
    metadata = {"name": "rekindle-settings", "namespace": NAMESPACE}
    stored = await get(api, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    return str(stored["data"]["controller.toml"])


async def removed(helm: Helm, plane: ControlPlane, api: KubeApi) -> None:
    """Asserts that the release is not removed while Rekindle's changes on the nodes could not be undone.
    After the removal nothing is left on the nodes, nor in the release's namespace."""
    objects = helm.render({"mode": "recover", **CLEANS_UP})
    role = of_kind(objects, "ClusterRole", "rekindle-cleanup")
    with pytest.raises(HelmError, match=r"rekindle-cleanup|pre-delete"):
        await uninstalled(helm, api)
    assert await pods(api, "agent"), "nothing is removed"
    with pytest.raises(HelmError, match="has no deployed releases"):
        helm.run("upgrade", "rekindle", str(CHART), *place())
    revisions = msgspec.json.decode(
        helm.run("history", "rekindle", f"--namespace={NAMESPACE}", "--output=json")
    )
    helm.run("rollback", "rekindle", str(revisions[-1]["revision"]), f"--namespace={NAMESPACE}", *WAIT)
    helm.run("upgrade", "rekindle", str(CHART), *place(), *WAIT)
    given_away = {"spec": {"holderIdentity": ""}}
    lease = LEASES.path(CONTROLLER_NAME, NAMESPACE)
    await api.request("PATCH", lease, body=given_away, content_type=MergePatch)

    await uninstalled(helm, api, plane)

    (node,) = (one for one in await listed(api, NODES.path()) if one["metadata"]["name"] == "g2")
    assert node["spec"]["unschedulable"] is True, "no agent shows that its fault is over"
    assert OUR_TAINT["key"] not in {taint["key"] for taint in node["spec"].get("taints", [])}
    assert not await get(api, role), "granted for the removal only"
    async with asyncio.timeout(LIMIT_S):  # Kubernetes removes pods after their owner
        while await pods(api, "controller") or await listed(api, JOBS.path(namespace=NAMESPACE)):
            await asyncio.sleep(0.05)
    left = {body["metadata"]["name"] for body in objects if await get(api, body)}

    assert left == {f"{kind}.rekindle.dev" for kind in ("nodehealths", "incidents", "recipes", "recoveries")}
    assert [h["metadata"]["name"] for h in await listed(api, NODEHEALTHS.path())] == ["g1", "g2"]


async def uninstalled(helm: Helm, api: KubeApi, plane: ControlPlane | None = None) -> None:
    """Uninstalls the release. Without a plane the Job's command is not run, and its pod fails. Raises
    HelmError."""
    removing = asyncio.create_task(
        asyncio.to_thread(helm.run, "uninstall", "rekindle", f"--namespace={NAMESPACE}", *WAIT)
    )
    pod = await running(api, "cleanup")
    if plane is not None:
        assert await carried_out(api, plane, pod) == 0
    else:
        path = PODS.path(pod["metadata"]["name"], NAMESPACE, "status")
        await api.request("PATCH", path, body={"status": {"phase": "Failed"}}, content_type=MergePatch)
    await removing


def place() -> list[str]:
    """Returns Helm's flags. Tests leave definitions and RBAC objects that no release owns; the flags make
    this test independent of them."""
    return [f"--namespace={NAMESPACE}", "--take-ownership", f"--set=image.registry={REGISTRY}"]


def uids(found: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in found}


async def lay_nodes(api: KubeApi) -> None:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    for name, labels in NODE_LABELS.items():
        body: dict[str, Any] = {
            "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
            "status": {"allocatable": room, "capacity": room},
        }
        if name == "g2":
            body["metadata"]["annotations"] = {QUARANTINE: msgspec.json.encode(NOTE).decode()}
            body["spec"] = {"taints": [OUR_TAINT], "unschedulable": True}
        await api.request("POST", NODES.path(), body=body)
    async with asyncio.timeout(LIMIT_S):
        while any(_starts(node) for node in await listed(api, NODES.path())):
            await asyncio.sleep(0.05)


async def lay_endpoints(api: KubeApi) -> None:
    """Creates the endpoints that an API server publishes about itself. The API server of the tests has that
    switched off."""
    body = {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
    }
    with suppress(ApiError):  # from the previous test
        await api.request("POST", SLICES.path(namespace="default"), body=body)


def _starts(node: dict[str, Any]) -> bool:
    """Whether the node is not ready, or still has the taint for that: a scheduler would ignore it."""
    ready = [c for c in node["status"].get("conditions", []) if (c["type"], c["status"]) == ("Ready", "True")]
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    return not ready or "node.kubernetes.io/not-ready" in taints


async def pods(api: KubeApi, component: str) -> list[dict[str, Any]]:
    """Returns the pods that are not being deleted."""
    params = {"labelSelector": f"app.kubernetes.io/component={component}"}
    found = await listed(api, PODS.path(namespace=NAMESPACE), params)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


async def listed(api: KubeApi, path: str, params: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(await api.request("GET", path, params=params))["items"])


async def get(api: KubeApi, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the object as it is stored, or an empty mapping if there is none."""
    try:
        return dict(msgspec.json.decode(await api.request("GET", path_of(body))))
    except ApiError as error:
        if not error.not_found:
            raise
        return {}
