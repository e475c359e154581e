"""Attackers who try what they may not do: the thief of an agent's token, and a tenant who administers a
namespace."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi
from tests.cluster.cases import apply, until
from tests.cluster.cluster import Cluster
from tests.cluster.installed.agents import in_agent
from tests.cluster.installed.steppers import TENANT
from tests.cluster.record import ClusterError
from tests.control_plane.callers import Caller

__all__ = ["ask_kubelet", "calling_as", "stolen_token", "tenant_token"]

_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
KUBELET_PORT = 10250
ANSWERED_S = 60.0
"""Time limit in seconds for an answer: an API server needs a while to refuse a request that is much too
large."""


@asynccontextmanager
async def calling_as(cluster: Cluster, token: str) -> AsyncIterator[Caller]:
    credentials = Credentials(cluster.plane.url, token=token, ca_file=str(cluster.plane.ca_file))
    async with KubeApi(credentials, user_agent="attacker", timeout_s=ANSWERED_S) as api:
        yield Caller(api)


def stolen_token(cluster: Cluster, node: str) -> str:
    """Returns the token of the agent on that node, as the kubelet has put it into the agent's container."""
    return in_agent(cluster, node, "python", "-c", f"print(end=open('{_TOKEN}').read())")


def tenant_token(cluster: Cluster) -> str:
    """Returns the token of an account with the permissions that Kubernetes gives to an administrator of one
    namespace."""
    account = {"kind": "ServiceAccount", "name": "boss", "namespace": TENANT}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "boss", "namespace": TENANT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [account],
    }
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "boss", "namespace": TENANT}}
    apply(cluster, made, binding)
    until("the binding in force", lambda: _may_make_jobs(cluster))
    return cluster.kubectl("create", "token", "boss", f"--namespace={TENANT}").strip()


def _may_make_jobs(cluster: Cluster) -> bool:
    boss = f"--as=system:serviceaccount:{TENANT}:boss"
    try:
        cluster.kubectl("auth", "can-i", "create", "jobs", f"--namespace={TENANT}", boss)
    except ClusterError:  # the answer is no
        return False
    return True


def ask_kubelet(cluster: Cluster, node: str, path: str, token: str) -> str:
    """Returns the kubelet's answer: `ok`, or status and text of a refusal."""
    url = f"https://{cluster.nodes[node].address}:{KUBELET_PORT}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    trust = ssl.create_default_context(cafile=str(cluster.plane.ca_file))
    try:
        urllib.request.urlopen(request, context=trust, timeout=ANSWERED_S).close()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    return "ok"
