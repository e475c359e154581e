"""Actions that are forbidden to agents, controller and teams, tried on a real API server with real tokens."""

from __future__ import annotations

from typing import Any

import pytest

from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, LEASES, NODEHEALTHS, NODES, PODS, PYTORCHJOBS, RECOVERIES
from tests.control_plane.callers import ANY_STATUS, NAMESPACE, Caller, body, calling, incident, recovery
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import AGENT, BINDINGS, SYSTEM

pytestmark = pytest.mark.control_plane

SECRETS = Resource("", "v1", "secrets", "Secret")
OWN = NODEHEALTHS.path("n1")
OWN_STATUS = NODEHEALTHS.path("n1", subresource="status")
OTHER_STATUS = NODEHEALTHS.path("n2", subresource="status")
RECOVERY = RECOVERIES.path("first", NAMESPACE)
RECOVERY_STATUS = RECOVERIES.path("first", NAMESPACE, "status")
LABEL = {"metadata": {"labels": {"a": "b"}}}
ANNOTATION = {"metadata": {"annotations": {"a": "b"}}}
SUCCEEDED = {"status": {"phase": "Succeeded"}}

Asked = tuple[Any, ...]
"""Method, path, and a body if the request has one."""


async def answers(caller: Caller, asked: dict[str, Asked]) -> dict[str, str]:
    return {what: await caller.asks(*question) for what, question in asked.items()}


def all_answer(asked: dict[str, Asked], answer: str) -> dict[str, str]:
    return dict.fromkeys(asked, answer)


async def test_an_agent_writes_the_status_of_its_own_node(control_plane: ControlPlane) -> None:
    async with calling(control_plane) as callers:
        agent = await callers.agent()

        written = await agent.does("PATCH", OWN_STATUS, ANY_STATUS)
        asked = await agent.does("PATCH", OWN_STATUS, {})

        assert written["status"]["bootId"] == "b00t"
        assert asked["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]


async def test_nothing_but_the_status_comes_with_a_patch_of_the_status(control_plane: ControlPlane) -> None:
    smuggled = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a/b"]},
        "spec": {"request": "made up"},
    }
    async with calling(control_plane) as callers:
        agent = await callers.agent()
        await agent.does("PATCH", OWN_STATUS, {**ANY_STATUS, **smuggled})

        kept = await callers.admin.does("GET", OWN)

        assert not {"labels", "annotations", "finalizers"} & set(kept["metadata"])
        assert kept.get("spec", {}) == {}


async def test_an_agent_may_do_nothing_else(control_plane: ControlPlane) -> None:
    asked: dict[str, Asked] = {
        "read its own NodeHealth": ("GET", OWN),
        "read all NodeHealths": ("GET", NODEHEALTHS.path()),
        "write its own spec": ("PATCH", OWN, {"spec": {"request": "made up"}}),
        "label its own NodeHealth": ("PATCH", OWN, LABEL),
        "delete its own NodeHealth": ("DELETE", OWN),
        "create a NodeHealth": ("POST", NODEHEALTHS.path(), body(NODEHEALTHS, "n3")),
        "read its node": ("GET", NODES.path("n1")),
        "cordon its node": ("PATCH", NODES.path("n1"), {"spec": {"unschedulable": True}}),
        "label its node": ("PATCH", NODES.path("n1"), LABEL),
        "read secrets": ("GET", SECRETS.path(namespace=SYSTEM)),
        "read pods": ("GET", PODS.path(namespace=NAMESPACE)),
        "read ConfigMaps": ("GET", CONFIGMAPS.path(namespace=SYSTEM)),
        "read Incidents": ("GET", INCIDENTS.path()),
        "create an Incident": ("POST", INCIDENTS.path(), incident("forged")),
        "create a Recovery": ("POST", RECOVERIES.path(namespace=NAMESPACE), recovery("forged")),
        "write a Recovery's status": ("PATCH", RECOVERY_STATUS, SUCCEEDED),
    }
    async with calling(control_plane) as callers:
        agent = await callers.agent()

        assert await answers(agent, asked) == all_answer(asked, "refused by RBAC")
        assert await agent.asks("PATCH", OTHER_STATUS, ANY_STATUS) == "refused by policy"
        assert await agent.asks("PATCH", OTHER_STATUS, {}) == "refused by policy", "it would read it so"


async def test_an_agent_with_all_rights_still_writes_its_own_status_only(control_plane: ControlPlane) -> None:
    asked: dict[str, Asked] = {
        "another node's status": ("PATCH", OTHER_STATUS, ANY_STATUS),
        "another node's spec": ("PATCH", NODEHEALTHS.path("n2"), LABEL),
        "its own spec": ("PATCH", OWN, {"spec": {"request": "made up"}}),
        "its own labels": ("PATCH", OWN, LABEL),
        "an empty patch of its own NodeHealth": ("PATCH", OWN, {}),
        "a new NodeHealth": ("POST", NODEHEALTHS.path(), body(NODEHEALTHS, "n3")),
        "deletion of its own NodeHealth": ("DELETE", OWN),
        "deletion of all NodeHealths": ("DELETE", NODEHEALTHS.path()),
        "a new Incident": ("POST", INCIDENTS.path(), incident("forged")),
        "an Incident's status": ("PATCH", INCIDENTS.path("first", subresource="status"), {}),
        "a new Recovery": ("POST", RECOVERIES.path(namespace=NAMESPACE), recovery("forged")),
        "a later cause": ("PATCH", RECOVERY, {"spec": {"causes": []}}),
        "a Recovery's status": ("PATCH", RECOVERY_STATUS, SUCCEEDED),
    }
    async with calling(control_plane) as callers:
        agent = await callers.agent()
        await callers.grant("cluster-admin", agent, account=AGENT)

        assert await answers(agent, asked) == all_answer(asked, "refused by policy")
        assert await agent.asks("PATCH", OTHER_STATUS, {}, dryRun="All") == "refused by policy"
        assert await agent.asks("PATCH", OWN_STATUS, ANY_STATUS) == "ok"
        assert len((await callers.admin.does("GET", NODEHEALTHS.path()))["items"]) == 2


async def test_a_token_that_names_no_node_writes_no_status(control_plane: ControlPlane) -> None:
    unplaced = {
        "metadata": {"name": "unplaced"},
        "spec": {
            "serviceAccountName": AGENT,
            "schedulingGates": [{"name": "rekindle.dev/never"}],
            "containers": [{"name": "agent", "image": "none"}],
        },
    }
    async with calling(control_plane) as callers:
        pod = await callers.admin.does("POST", PODS.path(namespace=SYSTEM), unplaced)
        unbound = await callers.account(AGENT)
        of_unplaced_pod = await callers.account(AGENT, pod=pod)

        for caller in (unbound, of_unplaced_pod):
            assert await caller.asks("PATCH", OWN_STATUS, ANY_STATUS) == "refused by policy"
            assert await caller.asks("PATCH", OWN_STATUS, {}) == "refused by policy"


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        ("edit", "refused by RBAC"),
        ("admin", "refused by RBAC"),
        ("cluster-admin", "refused by policy"),
    ],
)
async def test_whoever_administers_a_namespace_cannot_steer_us(
    control_plane: ControlPlane, role: str, refused: str
) -> None:
    asked: dict[str, Asked] = {
        "create": ("POST", RECOVERIES.path(namespace=NAMESPACE), recovery("forged")),
        "edit": ("PATCH", RECOVERY, {"spec": {"gang": {"name": "another"}}}),
        "label": ("PATCH", RECOVERY, LABEL),
        "annotate": ("PATCH", RECOVERY, ANNOTATION),
        "write the status": ("PATCH", RECOVERY_STATUS, SUCCEEDED),
    }
    async with calling(control_plane) as callers:
        await callers.grant(role, callers.team, namespace=NAMESPACE)

        assert await answers(callers.team, asked) == all_answer(asked, refused)


async def test_a_cluster_administrator_deletes_what_we_remember_and_does_not_change_it(
    control_plane: ControlPlane,
) -> None:
    first = INCIDENTS.path("first")
    asked: dict[str, Asked] = {
        "create an Incident": ("POST", INCIDENTS.path(), incident("forged")),
        "edit an Incident": ("PATCH", first, {"spec": {"node": "n2"}}),
        "label an Incident": ("PATCH", first, LABEL),
        "write an Incident's status": ("PATCH", f"{first}/status", {"status": {"phase": "Closed"}}),
        "edit a Recovery": ("PATCH", RECOVERY, {"spec": {"number": 2}}),
        "annotate a Recovery": ("PATCH", RECOVERY, ANNOTATION),
        "write a Recovery's status": ("PATCH", RECOVERY_STATUS, SUCCEEDED),
        "create a NodeHealth": ("POST", NODEHEALTHS.path(), body(NODEHEALTHS, "n3")),
        "edit a NodeHealth": ("PATCH", OWN, {"spec": {"request": "made up"}}),
        "annotate a NodeHealth": ("PATCH", OWN, ANNOTATION),
    }
    async with calling(control_plane) as callers:
        assert await answers(callers.admin, asked) == all_answer(asked, "refused by policy")
        for path in (first, RECOVERY, OWN):
            assert await callers.admin.asks("DELETE", path) == "ok"


async def test_kubernetes_itself_still_takes_finalizers_off_and_rewrites_objects(
    control_plane: ControlPlane,
) -> None:
    """The garbage collector removes finalizers after a deletion in the foreground, and a storage migration
    rewrites objects."""
    async with calling(control_plane) as callers:
        admin = callers.admin
        assert await admin.asks("PATCH", RECOVERY, {"metadata": {"finalizers": ["a.test/b"]}}) == "ok"
        assert await admin.asks("PUT", RECOVERY, await admin.does("GET", RECOVERY)) == "ok"
        assert await admin.asks("DELETE", RECOVERY) == "ok"
        assert await admin.asks("PATCH", RECOVERY, {"metadata": {"finalizers": None}}) == "ok"

        assert await admin.asks("GET", RECOVERY) == "404 NotFound"


async def test_the_controller_writes_what_it_must_remember(control_plane: ControlPlane) -> None:
    asked: dict[str, Asked] = {
        "an Incident": ("POST", INCIDENTS.path(), incident("second")),
        "its status": ("PATCH", INCIDENTS.path("second", subresource="status"), {"status": {}}),
        "its end": ("DELETE", INCIDENTS.path("second")),
        "a Recovery": ("POST", RECOVERIES.path(namespace=NAMESPACE), recovery("second")),
        "a later cause": ("PATCH", RECOVERY, {"spec": {"causes": []}}),
        "a Recovery's status": ("PATCH", RECOVERY_STATUS, {"status": {"phase": "Stopping"}}),
        "a NodeHealth": ("POST", NODEHEALTHS.path(), body(NODEHEALTHS, "n3")),
        "a NodeHealth's spec": ("PATCH", OWN, {"spec": {"request": "r1"}}),
        "a cordon": ("PATCH", NODES.path("n1"), {"spec": {"unschedulable": True}}),
        "the lease": ("PATCH", LEASES.path("rekindle-controller", SYSTEM), {"spec": {}}),
    }
    async with calling(control_plane) as callers:
        assert await answers(await callers.controller(), asked) == all_answer(asked, "ok")


async def test_the_controller_reads_no_secret_and_changes_nothing_else(control_plane: ControlPlane) -> None:
    widened = {
        "metadata": {"name": "widened"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    }
    asked: dict[str, Asked] = {
        "read secrets": ("GET", SECRETS.path()),
        "read its own namespace's secrets": ("GET", SECRETS.path(namespace=SYSTEM)),
        "write a NodeHealth's status": ("PATCH", OWN_STATUS, ANY_STATUS),
        "edit an Incident": ("PATCH", INCIDENTS.path("first"), LABEL),
        "delete a node": ("DELETE", NODES.path("n1")),
        "write a node's status": ("PATCH", NODES.path("n1", subresource="status"), {"status": {}}),
        "list ConfigMaps": ("GET", CONFIGMAPS.path()),
        "delete a ConfigMap": ("DELETE", CONFIGMAPS.path("llm-rekindle-job", NAMESPACE)),
        "fail a training": ("PATCH", PYTORCHJOBS.path("llm", NAMESPACE, "status"), {"status": {}}),
        "run in a pod": ("POST", PODS.path("llm-0", NAMESPACE, "exec"), {}),
        "evict a pod": ("POST", PODS.path("llm-0", NAMESPACE, "eviction"), {}),
        "another lease": ("PATCH", LEASES.path("another", SYSTEM), {"spec": {}}),
        "a lease elsewhere": ("POST", LEASES.path(namespace="kube-system"), body(LEASES, "another")),
        "grant itself more": ("POST", BINDINGS.path(), widened),
    }
    async with calling(control_plane) as callers:
        assert await answers(await callers.controller(), asked) == all_answer(asked, "refused by RBAC")
