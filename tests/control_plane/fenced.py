"""Shared parts of test_fence.py and test_fence_jobs.py: attempted writes with the controller's token, none of
which is stored, and the objects to which they are made."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, PODS
from recover.policy.settings import Images
from tests.control_plane.callers import NAMESPACE, Caller, Callers, calling
from tests.control_plane.cases import indexed_job
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import CONTROLLER_NAME, SYSTEM

__all__ = ["POLICIES", "Attempt", "answers", "changed", "fenced", "gang_pod", "scan_pod"]

ACCOUNT_S = IN_FORCE_S = 60.0
POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
Attempt = tuple[Any, ...]
"""Method, path, and a body if the request has one."""
LAST: Attempt = (
    "POST",
    JOBS.path(namespace=NAMESPACE),
    indexed_job(
        "last",
        annotations={"rekindle.dev/on-terminal": "recreate", "rekindle.dev/recovery": "{}"},
        pod={"hostNetwork": True},
    ),
)
"""A request that the policy installed last refuses."""


@asynccontextmanager
async def fenced(plane: ControlPlane) -> AsyncIterator[tuple[Callers, Caller]]:
    """Yields all callers, and the controller, to which RBAC grants everything: only a policy can refuse its
    requests."""
    async with calling(plane) as callers:
        controller = await callers.controller()
        await callers.grant("cluster-admin", controller, account=CONTROLLER_NAME)
        for namespace in (NAMESPACE, SYSTEM, "kube-system"):
            await _has_account(callers.admin, namespace)
        async with asyncio.timeout(IN_FORCE_S):  # the policies come into force one after another
            while await answers(controller, {"": LAST}) != {"": "fence-anew"}:
                await asyncio.sleep(0.05)
        yield callers, controller


async def _has_account(admin: Caller, namespace: str) -> None:
    """Waits for the account `default`, which a controller creates in each namespace. Before that the
    namespace takes no pod."""
    async with asyncio.timeout(ACCOUNT_S):
        while await admin.asks("GET", _ACCOUNTS.path("default", namespace)) != "ok":
            await asyncio.sleep(0.05)


async def answers(caller: Caller, attempts: Mapping[str, Attempt]) -> dict[str, str]:
    """Returns for each attempt `ok`, the policy that refuses it, or the error. Nothing is stored."""
    return {what: await _answer(caller, *attempt) for what, attempt in attempts.items()}


async def _answer(caller: Caller, method: str, path: str, body: Any = None) -> str:
    try:
        await caller.does(method, path, body, dryRun="All")
    except ApiError as error:
        policy = re.search(r"ValidatingAdmissionPolicy '([^']+)'", error.message)
        return policy[1].removeprefix("rekindle-") if policy else f"{error.status} {error.message}"
    return "ok"


def changed(body: Any, path: str, value: Any) -> Any:
    """Returns a copy with another value at the path, for example `a/0/b`. The value None removes the
    field."""
    result = copy.deepcopy(body)
    *parents, last = (int(part) if part.isdecimal() else part for part in path.split("/"))
    place = result
    for part in parents:
        place = place[part] if isinstance(place, list) else place.setdefault(part, {})
    if isinstance(place, list):
        place[int(last)] = value
    elif value is None:
        del place[last]
    else:
        place[last] = value
    return result


def scan_pod(name: str = "r-scan-1") -> dict[str, Any]:
    """Returns a scan pod as recover/recovery/scan_pod.py makes it; the tests of recoveries show that both are
    alike."""
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"name": name, "labels": {"rekindle.dev/scan-of": "r"}},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": 900,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "fsGroup": 1000,
                "fsGroupChangePolicy": "OnRootMismatch",
                "supplementalGroups": [7],
                "seLinuxOptions": {"level": "s0:c1,c2"},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": [{"operator": "Exists"}],
            "imagePullSecrets": [{"name": "registry"}],
            "schedulingGates": [{"name": "rekindle.dev/old-pods-ended"}],
            "volumes": [
                {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "llm", "readOnly": True}}
            ],
            "containers": [
                {
                    "name": "scan",
                    "image": Images().scan,
                    "command": ["/opt/rekindle/bin/rekindle", "checkpoints", "scan", "/ckpt"],
                    "terminationMessagePath": "/dev/termination-log",
                    "resources": {"limits": {"cpu": "1", "memory": "4Gi"}},
                    "securityContext": {
                        "runAsUser": 1000,
                        "runAsGroup": 0,
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "checkpoints", "mountPath": "/rekindle/volume", "readOnly": True}
                    ],
                }
            ],
        },
    }


def gang_pod(name: str, **metadata: Any) -> dict[str, Any]:
    """Returns a pod that is never scheduled."""
    spec = {"schedulingGates": [{"name": "a.test/never"}], "containers": [{"name": "train", "image": "none"}]}
    return {"metadata": {"name": name, **metadata}, "spec": spec}
