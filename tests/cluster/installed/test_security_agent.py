"""Tests what an attacker who has broken into an agent may do with the very token that the kubelet has given
to the agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, LEASES, NODEHEALTHS, NODES, PODS, RECOVERIES
from tests.cluster.cluster import Cluster
from tests.cluster.install import SYSTEM, listed, one
from tests.cluster.installed.agents import agent_on, in_agent, until_ready
from tests.cluster.installed.attackers import ask_kubelet, calling_as, stolen_token
from tests.cluster.installed.people import doings
from tests.cluster.installed.steppers import NAMESPACE
from tests.cluster.installed.usage import MIB, until_quiet
from tests.control_plane.callers import ANY_STATUS, incident, recovery

pytestmark = pytest.mark.real_nodes

NODE, OTHER = "worker-1", "worker-2"
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
BY_RBAC, BY_POLICY = "refused by RBAC", "refused by policy"
OWN_STATUS = NODEHEALTHS.path(NODE, subresource="status")
VOID_S = 120.0
"""Time in seconds within which a token becomes void: an API server accepts a token that it has just checked
for some seconds more."""
FINDING = {
    "id": "b00t-kmsg-1",
    "code": "xid-79",
    "fault": "device-lost",
    "origin": "kernel",
    "severity": "fatal",
    "subject": {"kind": "node"},
    "bootId": "b00t",
    "firstSeen": "2026-11-21T10:00:00Z",
    "lastSeen": "2026-11-21T10:00:00Z",
}
PYTHON = "/opt/rekindle/bin/python"
SYSLOG_MKNOD_AND_CHOWN = 1 << 34 | 1 << 27 | 1 << 0
Asked = tuple[Any, ...]
"""Method, path, and a body if the request has one."""


def test_an_agent_has_given_up_the_rights_of_its_container(cluster: Cluster) -> None:
    """The node has no NVIDIA device file, which NVML may have to create one day, so the agent keeps the
    capability for that."""
    status = in_agent(cluster, NODE, PYTHON, "-c", "print(open('/proc/1/status').read())")
    said = cluster.kubectl("logs", agent_on(cluster, NODE), f"--namespace={SYSTEM}")

    held = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {int(held[which], 16) for which in ("CapEff", "CapPrm", "CapBnd")} == {SYSLOG_MKNOD_AND_CHOWN}
    assert held["NoNewPrivs"] == "1"
    assert '"event": "confined"' in said


async def test_a_stolen_token_of_an_agent_opens_nothing(cluster: Cluster) -> None:
    status = NODEHEALTHS.path(OTHER, subresource="status")
    of_controller = listed(cluster, "pods", "--selector=app.kubernetes.io/component=controller")[0]
    name = of_controller["metadata"]["name"]
    asked: dict[str, tuple[str, Asked]] = {
        "write another NodeHealth's status": (BY_POLICY, ("PATCH", status, ANY_STATUS)),
        "read another NodeHealth by an empty patch": (BY_POLICY, ("PATCH", status, {})),
        "read its own NodeHealth": (BY_RBAC, ("GET", NODEHEALTHS.path(NODE))),
        "write its own NodeHealth's spec": (
            BY_RBAC,
            ("PATCH", NODEHEALTHS.path(NODE), {"spec": {"request": "forged"}}),
        ),
        "cordon another node": (BY_RBAC, ("PATCH", NODES.path(OTHER), {"spec": {"unschedulable": True}})),
        "label its own node": (BY_RBAC, ("PATCH", NODES.path(NODE), {"metadata": {"labels": {"a": "b"}}})),
        "patch a pod": (BY_RBAC, ("PATCH", PODS.path(name, SYSTEM), {"metadata": {"labels": {"a": "b"}}})),
        "delete a pod": (BY_RBAC, ("DELETE", PODS.path(name, SYSTEM))),
        "run in a pod": (BY_RBAC, ("POST", PODS.path(name, SYSTEM, "exec"), {})),
        "create a pod": (BY_RBAC, ("POST", PODS.path(namespace=SYSTEM), {"metadata": {"name": "forged"}})),
        "list the pods of other nodes": (BY_RBAC, ("GET", PODS.path())),
        "list the pods of its own namespace": (BY_RBAC, ("GET", PODS.path(namespace=SYSTEM))),
        "read all secrets": (BY_RBAC, ("GET", SECRETS.path())),
        "read its namespace's secrets": (BY_RBAC, ("GET", SECRETS.path(namespace=SYSTEM))),
        "read our settings": (BY_RBAC, ("GET", CONFIGMAPS.path("rekindle-settings", SYSTEM))),
        "set back since when the mode holds": (
            BY_RBAC,
            ("PATCH", CONFIGMAPS.path("rekindle-state", SYSTEM), {"data": {"mode": "repair"}}),
        ),
        "take the lease": (
            BY_RBAC,
            ("PATCH", LEASES.path("rekindle-controller", SYSTEM), {"spec": {"holderIdentity": "forged"}}),
        ),
        "create an Incident": (BY_RBAC, ("POST", INCIDENTS.path(), incident("forged"))),
        "create a Recovery": (BY_RBAC, ("POST", RECOVERIES.path(namespace=NAMESPACE), recovery("forged"))),
        "create an Event": (BY_RBAC, ("POST", EVENTS.path(namespace=SYSTEM), {"metadata": {"name": "f"}})),
        "get another token": (BY_RBAC, ("POST", ACCOUNTS.path("rekindle-agent", SYSTEM, "token"), {})),
        "get the controller's token": (
            BY_RBAC,
            ("POST", ACCOUNTS.path("rekindle-controller", SYSTEM, "token"), {}),
        ),
    }
    token = stolen_token(cluster, NODE)
    until_quiet(cluster)
    before = doings(cluster), told(cluster, OTHER)

    async with calling_as(cluster, token) as thief:
        answers = {what: await thief.asks(*question) for what, (_, question) in asked.items()}
        assert answers == {what: answer for what, (answer, _) in asked.items()}
        # The token is valid: the agent's own actions succeed with it.
        assert await thief.asks("PATCH", OWN_STATUS, {}) == "ok"

    for node in (NODE, OTHER):
        for path in ("/pods", "/logs/", "/metrics"):
            assert ask_kubelet(cluster, node, path, token).startswith("403 Forbidden")
    assert (doings(cluster), told(cluster, OTHER)) == before


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_an_oversized_nodehealth_is_refused_whoever_writes_it(cluster: Cluster) -> None:
    refused = {
        r"422 Invalid: .*status.findings: Too many: 10000": {"findings": [FINDING] * 10_000},
        r"422 Invalid: .*findings\[0\].evidence: Too long": {
            "findings": [{**FINDING, "evidence": "x" * MIB}]
        },
        r"422 Invalid: .*status.bootId: Too long": {"bootId": "x" * MIB},
        r"413 RequestEntityTooLarge": {"known to no schema": "x" * 8 * MIB},
    }
    until_quiet(cluster)
    before = doings(cluster), told(cluster, NODE)

    async with calling_as(cluster, stolen_token(cluster, NODE)) as thief:
        for words, status in refused.items():
            with pytest.raises(ApiError, match=words):
                await thief.does("PATCH", OWN_STATUS, {"status": status})

    assert (doings(cluster), told(cluster, NODE)) == before


async def test_a_token_is_worth_nothing_once_its_pod_is_gone(cluster: Cluster) -> None:
    token = stolen_token(cluster, NODE)
    cluster.kubectl("delete", "pod", agent_on(cluster, NODE), f"--namespace={SYSTEM}")

    async with calling_as(cluster, token) as thief:
        async with asyncio.timeout(VOID_S):
            while (answer := await thief.asks("PATCH", OWN_STATUS, {})) == "ok":
                await asyncio.sleep(0.5)

    assert answer == "401 Unauthorized"
    until_ready(cluster, NODE)


def told(cluster: Cluster, node: str) -> dict[str, Any]:
    """Returns the content of the node's NodeHealth, without the times and the read position of the agent."""
    found = one(cluster, "nodehealth", node)
    passing = {"observedAt", "kmsg"}
    status = {name: value for name, value in found["status"].items() if name not in passing}
    return {"spec": found.get("spec", {}), "status": status}
