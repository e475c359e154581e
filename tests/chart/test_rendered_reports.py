"""The chart grants the permission to read reports of other vendors' device plugins only if a setting requires
it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm import NAMESPACE, Helm

pytestmark = pytest.mark.control_plane

ACCOUNT = {"kind": "ServiceAccount", "name": "rekindle-controller", "namespace": NAMESPACE}


@pytest.mark.parametrize(
    ("reports", "namespaces"),
    [
        ({}, []),
        ({"ascend": False}, []),
        ({"ascend": True}, ["kube-system", "mindx-dl"]),
        ({"iluvatar": True}, ["kube-system"]),
        ({"ascend": True, "iluvatar": True, "cluster_namespace": "kube-system"}, ["kube-system"]),
        ({"ascend": True, "plugin_namespace": "npu", "cluster_namespace": "ops"}, ["npu", "ops"]),
    ],
)
def test_the_controller_reads_configmaps_of_the_named_namespaces_alone(
    helm: Helm, reports: dict[str, Any], namespaces: list[str]
) -> None:
    values = {"settings": {"controller": {"signals": {"reports": reports}}}}
    found = [body for body in helm.render(values) if body["metadata"]["name"] == "rekindle-reports"]
    roles = [body for body in found if body["kind"] == "Role"]
    bindings = [body for body in found if body["kind"] == "RoleBinding"]

    assert [role["metadata"]["namespace"] for role in roles] == namespaces
    assert [one["metadata"]["namespace"] for one in bindings] == namespaces
    for role, binding in zip(roles, bindings, strict=True):
        assert role["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
        assert binding["roleRef"]["kind"] == "Role"
        assert binding["subjects"] == [ACCOUNT]
    assert not [body for body in helm.render({**values, "rbac": {"enabled": False}}) if body in roles]


@pytest.mark.parametrize("maps", [True, False])
def test_configmaps_of_accelerator_resources_may_be_listed_where_a_setting_asks_for_them(
    helm: Helm, maps: bool
) -> None:
    found = helm.render({"settings": {"controller": {"accelerator_maps": maps}}})
    roles = [body for body in found if body["metadata"]["name"] == "rekindle-resources"]

    assert [(body["kind"], body["metadata"]["namespace"]) for body in roles] == (
        [("Role", "kube-public"), ("RoleBinding", "kube-public")] if maps else []
    )
