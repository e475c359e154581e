"""Tests the checks of an installation that concern permissions, policies, and rules of namespaces and
networks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from recover.doctor.installation import shipped
from recover.doctor.installation.installed import Right, State
from recover.doctor.installation.release_objects import NetworkPolicy
from recover.model import NamespaceView
from recover.model.modes import Mode
from recover.policy.settings import DeviceReports, Settings, Signals
from tests.facts import names
from tests.recover.doctor.installation.cases import (
    NAMESPACE,
    NOW,
    changed,
    found,
    healthy,
    only,
)


def test_rights_that_are_not_in_force_are_told_by_account_and_kind() -> None:
    denied = [
        Right(account="rekindle-controller", verb=verb, group="batch", resource="jobs")
        for verb in ("patch", "delete")
    ]
    denied.append(
        Right(account="rekindle-agent", verb="patch", group="rekindle.dev", resource="nodehealths/status")
    )

    agents, controllers = found(changed(denied=tuple(denied)))

    assert names(agents.what, "rekindle-agent", "patch", "nodehealths/status.rekindle.dev")
    assert names(controllers.what, "rekindle-controller", "patch", "delete", "jobs.batch")


def test_the_rights_of_the_chart_are_asked_for_in_the_releases_namespace() -> None:
    rights = shipped.rights("ops", Settings())
    status = Right(account="rekindle-controller", verb="patch", group="", resource="nodes/status")

    assert status not in rights
    assert status in shipped.rights("ops", Settings(node_condition=True))
    assert Right(account="rekindle-controller", verb="patch", group="", resource="nodes") in rights
    assert {right.namespace for right in rights} == {"", "ops"}
    assert len(rights) == len(set(rights)) > 50


def test_rights_that_a_setting_asks_for_are_asked_for_in_its_namespaces() -> None:
    reports = DeviceReports(ascend=True, plugin_namespace="npu")
    settings = Settings(accelerator_maps=True, signals=Signals(reports=reports))

    further = set(shipped.rights("ops", settings)) - set(shipped.rights("ops"))

    assert {(right.namespace, right.verb) for right in further} == {
        *(("npu", verb) for verb in ("list", "watch")),
        *(("mindx-dl", verb) for verb in ("list", "watch")),
        ("kube-public", "list"),
    }
    assert {(right.account, right.on) for right in further} == {
        ("rekindle-controller", f"configmaps in {namespace}")
        for namespace in ("npu", "mindx-dl", "kube-public")
    }


@pytest.mark.parametrize(
    ("key", "change", "field"),
    [
        ("ValidatingAdmissionPolicy/rekindle-controller", None, "metadata.name"),
        (
            "ValidatingAdmissionPolicy/rekindle-agent",
            {"matchConditions": [{"name": "is-an-agent", "expression": "request.userInfo.username == 'x'"}]},
            "spec.matchConditions[0].expression",
        ),
        (
            "ValidatingAdmissionPolicyBinding/rekindle-agent",
            {"validationActions": ["Warn"]},
            "spec.validationActions",
        ),
    ],
    ids=["missing", "of another account", "that only warns"],
)
def test_a_policy_that_is_not_the_charts_is_told_with_the_place(
    key: str, change: dict[str, Any] | None, field: str
) -> None:
    policies = dict(healthy().policies)
    theirs = policies.pop(key)
    if change is not None:
        policies[key] = {**theirs, "spec": {**theirs["spec"], **change, "paramKind": "added by others"}}

    finding = only(changed(policies=policies))

    assert finding.name == ("policy-missing" if change is None else "policy-changed")
    assert finding.where.field == field


def test_without_the_policy_of_the_environment_it_is_told_what_ranks_miss() -> None:
    policies = {key: body for key, body in healthy().policies.items() if not key.startswith("Mutating")}

    assert only(changed(policies=policies)).name == "no-environment-policy"
    observing = changed(policies=policies, state=State(Mode.OBSERVE, NOW))
    assert "no-environment-policy" not in {finding.name for finding in found(observing)}


def test_a_namespace_that_admits_no_privileged_pods_is_told() -> None:
    space = NamespaceView(NAMESPACE, {"pod-security.kubernetes.io/enforce": "baseline"})

    assert only(changed(namespaces={NAMESPACE: space})).name == "pod-security"


@pytest.mark.parametrize(("ports", "is_open"), [([443], False), ([443, 6443], True), ([], True)])
def test_a_network_policy_that_leaves_the_api_servers_port_out_is_told(
    ports: list[int], is_open: bool
) -> None:
    egress = [{"ports": [{"port": port} for port in ports]}]
    spec = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/component": "agent"}},
        "policyTypes": ["Ingress", "Egress"],
        "egress": egress,
    }
    policy = msgspec.convert({"metadata": {"name": "rekindle-agent"}, "spec": spec}, NetworkPolicy)

    findings = found(changed(network=(policy,)))

    assert [finding.name for finding in findings] == ([] if is_open else ["egress"])
