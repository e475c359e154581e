"""What the chart grants is short and named. That it suffices, and holds, is shown on a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from detectors.resource import Resource
from recover.workloads import WORKLOADS

FILES = Path(__file__).parents[2] / "charts" / "rekindle" / "files"
ACCOUNTS = {"rekindle-agent", "rekindle-controller"}


def manifests(folder: str) -> list[dict[str, Any]]:
    return [
        body for file in sorted((FILES / folder).iterdir()) for body in yaml.safe_load_all(file.read_text())
    ]


def test_a_removal_may_end_the_controllers_and_delete_configmaps_and_no_more() -> None:
    (role,) = (body for body in manifests("leaving") if body["kind"] == "ClusterRole")

    assert [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]] == [
        (["deployments"], ["rekindle-controller"], ["delete"]),
        (["configmaps"], None, ["delete"]),
    ]


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for body in manifests("rbac"):
        for rule in body.get("rules", []):
            yield body["metadata"]["name"], rule


def test_no_right_is_a_wildcard_and_none_reads_secrets_or_runs_in_pods() -> None:
    for _, rule in rules():
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not {"secrets", "pods/exec", "pods/attach", "pods/eviction"} & {*rule["resources"]}
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & {*rule["verbs"]}


def test_the_controller_patches_and_never_replaces_and_of_namespaces_it_only_keeps_a_list() -> None:
    """recover.kube knows no PUT; no loop reads a single namespace."""
    granted = [rule for account, rule in rules() if account == "rekindle-controller"]
    namespaces = [rule["verbs"] for rule in granted if "namespaces" in rule["resources"]]

    assert not any("update" in rule["verbs"] for rule in granted)
    assert namespaces == [["list", "watch"]]


@pytest.mark.parametrize("kind", [w.resource for w in WORKLOADS], ids=lambda r: r.kind)
def test_the_controller_may_do_to_every_kind_that_it_recovers_what_a_recovery_does(kind: Resource) -> None:
    verbs = [r["verbs"] for _, r in rules() if kind.group in r["apiGroups"] and kind.plural in r["resources"]]

    assert verbs == [["get", "list", "watch", "create", "patch", "delete"]]


def test_the_agent_has_one_right() -> None:
    assert [rule for account, rule in rules() if account == "rekindle-agent"] == [
        {"apiGroups": ["rekindle.dev"], "resources": ["nodehealths/status"], "verbs": ["patch"]}
    ]


def test_teams_read_our_objects_and_delete_recoveries() -> None:
    """What they may write, of a Recipe above all, would reach other teams' jobs."""
    granted = {account: rule for account, rule in rules() if account not in ACCOUNTS}

    assert granted.keys() == {"rekindle-viewer", "rekindle-editor"}
    assert granted["rekindle-viewer"]["verbs"] == ["get", "list", "watch"]
    assert (granted["rekindle-editor"]["resources"], granted["rekindle-editor"]["verbs"]) == (
        ["recoveries"],
        ["delete"],
    )


def test_rights_are_bound_to_the_accounts_that_the_chart_makes() -> None:
    made = {b["metadata"]["name"] for b in manifests("rbac") if b["kind"] == "ServiceAccount"}
    bound = {subject["name"] for b in manifests("rbac") for subject in b.get("subjects", [])}

    assert made == bound == ACCOUNTS


@pytest.mark.parametrize("account", sorted(ACCOUNTS))
def test_each_account_has_the_policy_that_names_it(account: str) -> None:
    (policy,) = (
        b for b in manifests("policies") if b["kind"] == "ValidatingAdmissionPolicy" and names(b, account)
    )

    assert policy["metadata"]["name"] == account
    assert policy["spec"]["failurePolicy"] == "Fail"


def names(policy: dict[str, Any], account: str) -> bool:
    user = f"'system:serviceaccount:rekindle-system:{account}'"
    return any(user in condition["expression"] for condition in policy["spec"]["matchConditions"])


def test_a_policy_denies_or_only_warns_and_what_only_warns_lets_in_whatever_it_cannot_judge() -> None:
    policies = {
        b["metadata"]["name"]: b["spec"]["failurePolicy"]
        for b in manifests("policies")
        if b["kind"] == "ValidatingAdmissionPolicy"
    }
    actions = {
        b["spec"]["policyName"]: b["spec"]["validationActions"]
        for b in manifests("policies")
        if b["kind"] == "ValidatingAdmissionPolicyBinding"
    }

    assert actions == {
        name: ["Deny", "Audit"] if policy == "Fail" else ["Warn"] for name, policy in policies.items()
    }
    assert {name for name, policy in policies.items() if policy == "Fail"} == ACCOUNTS


def test_what_warns_of_jobs_matches_every_kind_that_is_restarted() -> None:
    (policy,) = (
        b for b in manifests("policies") if b["metadata"]["name"] == "rekindle-warns-job" and names_kinds(b)
    )

    assert names_kinds(policy) == {(w.resource.group, w.resource.plural) for w in WORKLOADS}


def names_kinds(policy: dict[str, Any]) -> set[tuple[str, str]]:
    rules = policy["spec"].get("matchConstraints", {}).get("resourceRules", [])
    return {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}


def test_what_changes_objects_is_bound_and_lets_in_whatever_it_cannot_change() -> None:
    """And only kinds that are built in: after its start an API server refuses, for seconds, to create objects
    of another kind that such a policy matches, whatever its failurePolicy says."""
    policies = [b for b in manifests("policies") if b["kind"] == "MutatingAdmissionPolicy"]
    bindings = [b for b in manifests("policies") if b["kind"] == "MutatingAdmissionPolicyBinding"]

    assert [b["spec"]["policyName"] for b in bindings] == [p["metadata"]["name"] for p in policies]
    for policy in policies:
        assert policy["spec"]["failurePolicy"] == "Ignore"
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            assert (rule["apiGroups"], rule["resources"]) in (([""], ["pods"]), (["batch"], ["jobs"]))
            assert rule["operations"] == ["CREATE"]


def test_whatever_stands_in_a_namespace_stands_in_the_one_that_the_chart_puts_in() -> None:
    for body in manifests("rbac") + manifests("policies"):
        places = [body["metadata"], *body.get("subjects", [])]
        assert {place["namespace"] for place in places if "namespace" in place} <= {"rekindle-system"}
