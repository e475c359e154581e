"""The chart's grants are short and named. Tests on a control plane show that they suffice and are
enforced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from detectors.wire.contract import key
from recover.api.marks import SCAN_OF
from recover.policy.settings import Images
from recover.recovery.scan_place import MOUNTABLE
from recover.recovery.scan_spec import CONTAINER, PROGRAM, VOLUME
from recover.stories.keys import WRITTEN_BY_US
from recover.workloads import WORKLOADS, Workload
from tests.rights import granted_over

FILES = Path(__file__).parents[2] / "charts" / "rekindle" / "files"
ACCOUNTS = {"rekindle-agent", "rekindle-controller"}
FENCE = {f"rekindle-fence-{what}" for what in ("nodes", "pods", "configmaps", "jobs", "anew")}


def manifests(folder: str) -> list[dict[str, Any]]:
    return [
        body for file in sorted((FILES / folder).iterdir()) for body in yaml.safe_load_all(file.read_text())
    ]


def test_a_removal_may_end_the_controllers_and_delete_configmaps_and_no_more() -> None:
    (role,) = (body for body in manifests("cleanup") if body["kind"] == "ClusterRole")

    assert [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]] == [
        (["deployments"], ["rekindle-controller"], ["delete"]),
        (["configmaps"], None, ["delete"]),
        (["nodes/status"], None, ["patch"]),
    ]


OPERATOR = "rekindle-operator"
NODE_OPERATOR = "rekindle-node-operator"


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
    """recover.kube does not use PUT, and no loop reads a single namespace."""
    granted = [rule for account, rule in rules() if account == "rekindle-controller"]
    namespaces = [rule["verbs"] for rule in granted if "namespaces" in rule["resources"]]

    assert not any("update" in rule["verbs"] for rule in granted)
    assert namespaces == [["list", "watch"]]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.resource.kind)
def test_the_controller_may_do_nothing_more_to_a_kind(workload: Workload) -> None:
    assert granted_over(workload) == workload.permissions


def test_the_agent_has_one_right() -> None:
    assert [rule for account, rule in rules() if account == "rekindle-agent"] == [
        {"apiGroups": ["rekindle.dev"], "resources": ["nodehealths/status"], "verbs": ["patch"]}
    ]


def test_teams_read_our_objects_and_delete_recoveries() -> None:
    """Objects that a team could write, above all a Recipe, would affect other teams' jobs."""
    granted = {
        account: rule for account, rule in rules() if account not in (*ACCOUNTS, OPERATOR, NODE_OPERATOR)
    }

    assert granted.keys() == {"rekindle-viewer", "rekindle-editor"}
    assert granted["rekindle-viewer"]["verbs"] == ["get", "list", "watch"]
    assert (granted["rekindle-editor"]["resources"], granted["rekindle-editor"]["verbs"]) == (
        ["recoveries"],
        ["delete"],
    )


def test_operators_write_the_pause_alone_and_have_no_right_outside_the_releases_namespace() -> None:
    """RBAC cannot restrict the name of an object that is created."""
    (role,) = [body for body in manifests("rbac") if body["metadata"]["name"] == OPERATOR]
    writing = [rule for rule in role["rules"] if set(rule["verbs"]) - {"get"}]

    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "rekindle-system")
    assert [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in writing] == [
        (["configmaps"], None, ["create"]),
        (["configmaps"], ["rekindle-pause"], ["get", "patch", "delete"]),
    ]
    bound = {body["roleRef"]["name"] for body in manifests("rbac") if "roleRef" in body}
    assert OPERATOR not in bound, "people bind it"


def test_operators_of_nodes_patch_nodes_and_write_nothing_else_and_nobody_is_bound() -> None:
    granted = [rule for account, rule in rules() if account == NODE_OPERATOR]
    writing = [(rule["resources"], rule["verbs"]) for rule in granted if set(rule["verbs"]) - {"get", "list"}]

    assert writing == [(["nodes"], ["get", "list", "patch"])]
    assert NODE_OPERATOR not in {b["roleRef"]["name"] for b in manifests("rbac") if "roleRef" in b}


def test_rights_are_bound_to_the_accounts_that_the_chart_makes() -> None:
    made = {b["metadata"]["name"] for b in manifests("rbac") if b["kind"] == "ServiceAccount"}
    bound = {subject["name"] for b in manifests("rbac") for subject in b.get("subjects", [])}

    assert made == bound == ACCOUNTS


@pytest.mark.parametrize(
    ("account", "is_it", "expected"),
    [
        ("rekindle-agent", "==", {"rekindle-agent"}),
        ("rekindle-controller", "==", FENCE),
        ("rekindle-controller", "!=", {"rekindle-controller", "rekindle-handed-over"}),
    ],
)
def test_each_account_has_the_policies_that_name_it(account: str, is_it: str, expected: set[str]) -> None:
    user = f"request.userInfo.username {is_it} 'system:serviceaccount:rekindle-system:{account}'"

    assert expected == {
        body["metadata"]["name"]
        for body in manifests("policies")
        if any(one["expression"] == user for one in body["spec"].get("matchConditions", []))
    }


def test_every_kind_that_the_controller_writes_and_people_have_is_fenced() -> None:
    fenced = {
        kind for b in manifests("policies") if b["metadata"]["name"] in FENCE for kind in names_kinds(b)
    }
    written = {
        (group, resource)
        for account, rule in rules()
        if account == "rekindle-controller" and {"create", "patch", "delete"} & {*rule["verbs"]}
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    ours = {"rekindle.dev", "events.k8s.io", "coordination.k8s.io"}

    for group, resource in written:
        kind, _, part = resource.partition("/")
        assert group in ours or (group, f"{kind}/*" if part else kind) in fenced


def test_the_fence_knows_the_labels_and_annotations_that_the_controller_writes() -> None:
    (ours,) = (one["expression"] for one in fence("nodes")["variables"] if one["name"] == "ours")

    assert {key(name) for name in re.findall('"([^"]+)"', ours)} == WRITTEN_BY_US


def fence(what: str) -> dict[str, Any]:
    """Returns the spec of that policy."""
    (spec,) = (
        body["spec"]
        for body in manifests("policies")
        if body["kind"] == "ValidatingAdmissionPolicy"
        and body["metadata"]["name"] == f"rekindle-fence-{what}"
    )
    return dict(spec)


def test_the_fence_knows_what_a_scan_is_made_of() -> None:
    text = yaml.safe_dump(fence("pods"), width=10_000)

    for word in (PROGRAM, VOLUME, CONTAINER, SCAN_OF, Images().scan, *MOUNTABLE):
        assert word in text


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
    assert {name for name, policy in policies.items() if policy == "Fail"} == {
        *ACCOUNTS,
        "rekindle-handed-over",
        *FENCE,
    }


def test_what_warns_of_jobs_matches_every_kind_that_is_restarted() -> None:
    (policy,) = (
        b for b in manifests("policies") if b["metadata"]["name"] == "rekindle-warns-job" and names_kinds(b)
    )

    assert names_kinds(policy) == {(w.resource.group, w.resource.plural) for w in WORKLOADS}


def names_kinds(policy: dict[str, Any]) -> set[tuple[str, str]]:
    rules = policy["spec"].get("matchConstraints", {}).get("resourceRules", [])
    return {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}


def test_what_changes_objects_is_bound_and_lets_in_whatever_it_cannot_change() -> None:
    """The policies match only built-in kinds: after its start an API server refuses for seconds to create
    objects of another kind that such a policy matches, whatever the policy's failurePolicy is."""
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
