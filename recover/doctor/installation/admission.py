"""Checks the permissions of Rekindle, and the rules that limit others: RBAC, admission policies, the
namespace's own rules. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recover.doctor.case import Finding, Place, Severity
from recover.doctor.installation.installed import AGENT, Installation
from recover.model.modes import Mode
from recover.stories.words import some

__all__ = ["egress", "environment", "pod_security", "policies", "rights"]

_ENVIRONMENT = frozenset({"rekindle-environment", "rekindle-consent"})
_POD_SECURITY = "pod-security.kubernetes.io/enforce"
_MEANS = {
    "rekindle-agent": "an agent may write the status of any node's NodeHealth, and so cause the "
    "quarantine of that node",
    "rekindle-controller": "anybody who may write Recoveries and Incidents can control the controller",
    "rekindle-handed-over": "anybody who may write ConfigMaps can set variables in the containers of "
    "resumed jobs",
    **{
        f"rekindle-fence-{what}": "anybody who steals the controller's token can use all rights of its "
        f"role on {what}"
        for what in ("nodes", "pods", "configmaps", "jobs")
    },
}
_BY_CHOICE = "rekindle-fence-anew"
"""Policy that the chart leaves out if its values say so."""


def rights(seen: Installation) -> Iterator[Finding]:
    """Reports, for each account, the permissions that the chart's roles grant and the API server denies."""
    for account in sorted({right.account for right in seen.denied}):
        lacks = [right for right in seen.denied if right.account == account]
        verbs: dict[str, list[str]] = {}
        for right in lacks:
            verbs.setdefault(right.on, []).append(right.verb)
        told = some((f"{' '.join(found)} {resource}" for resource, found in verbs.items()), 6)
        user = f"system:serviceaccount:{seen.namespace}:{account}"
        yield Finding(
            name="rights-missing",
            severity=Severity.FAILS,
            what=f"{account} lacks permissions that it needs: {told}",
            where=Place(f"ServiceAccount {seen.namespace}/{account}", "roles and bindings"),
            means="agents cannot report what they see"
            if account == AGENT
            else "Rekindle cannot take the refused actions: the controller's log names each refusal",
            fix=f"{seen.upgrade('rbac.enabled=true')}  # kubectl auth can-i --list --as={user}",
        )


def policies(seen: Installation) -> Iterator[Finding]:
    """Reports policies and bindings that are missing, or that differ from the chart's. The policies contain
    the names of Rekindle's accounts, so a policy for a release in another namespace differs, too."""
    for key, ours in seen.own_policies.items():
        kind, _, name = key.partition("/")
        theirs = seen.policies.get(key)
        if name in _ENVIRONMENT or (name == _BY_CHOICE and theirs is None):
            continue
        place = "" if theirs is None else _differs(ours["spec"], theirs.get("spec"), "spec")
        if theirs is None or place:
            yield Finding(
                name="policy-missing" if theirs is None else "policy-changed",
                severity=Severity.RISKS,
                what=f"there is no {kind} {name}"
                if theirs is None
                else (f"{kind} {name} differs from the chart's"),
                where=Place(f"{kind} {name}", place or "metadata.name"),
                means=_MEANS.get(name, "the API server allows the writes that the policy forbids"),
                fix=seen.upgrade("policies.enabled=true"),
            )


def environment(seen: Installation) -> Iterator[Finding]:
    """Reports a missing policy for the environment, if the API server has that kind of policy. In mode
    observe Rekindle hands no environment over."""
    wanted = {key for key in seen.own_policies if key.partition("/")[2] in _ENVIRONMENT}
    missing = sorted(wanted - seen.policies.keys())
    acts = seen.state is not None and seen.state.mode is not Mode.OBSERVE
    if missing and acts:
        kind, _, name = missing[0].partition("/")
        yield Finding(
            name="no-environment-policy",
            severity=Severity.ADVICE,
            what=f"there is no {kind} {name}",
            where=Place(f"{kind} {name}", "metadata.name"),
            means="pods of a Job or JobSet learn from which checkpoint to resume only by an envFrom in "
            "their template; Kubeflow's jobs always learn the checkpoint",
            fix=seen.upgrade("policies.environment=true"),
        )


def _differs(ours: Any, theirs: Any, path: str) -> str:
    """Returns the first place at which `theirs` differs from `ours`. Fields that the API server adds by
    itself do not count."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        places = (_differs(value, theirs.get(name), f"{path}.{name}") for name, value in ours.items())
        return next((place for place in places if place), "")
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        places = (_differs(one, other, f"{path}[{number}]") for number, (one, other) in pairs)
        return next((place for place in places if place), "")
    return "" if ours == theirs else path


def pod_security(seen: Installation) -> Iterator[Finding]:
    """Reports a namespace that does not admit privileged pods. An agent is privileged, because no other pod
    may open the kernel log."""
    space = seen.namespaces.get(seen.namespace)
    level = space.labels.get(_POD_SECURITY, "") if space is not None else ""
    if level in ("baseline", "restricted"):
        yield Finding(
            name="pod-security",
            severity=Severity.FAILS,
            what=f"the namespace {seen.namespace} admits no privileged pods",
            where=Place(f"Namespace {seen.namespace}", f"metadata.labels[{_POD_SECURITY}]", level),
            means="no new agent starts; running agents continue until they are replaced",
            fix=f"kubectl label namespace {seen.namespace} {_POD_SECURITY}=privileged --overwrite",
        )


def egress(seen: Installation) -> Iterator[Finding]:
    """Reports NetworkPolicies that keep the agent or controller from the API server, on the port that the API
    server has behind its Service."""
    for component in ("agent", "controller"):
        pod = next(iter(seen.pods_of(component)), None)
        limiting = [p for p in seen.network if pod is not None and p.limits(pod.metadata.labels)]
        allowed = [rule for policy in limiting for rule in policy.spec.egress]
        shut = [port for port in seen.api_ports if not any(rule.allows(port) for rule in allowed)]
        if limiting and shut:
            ports = ",".join(map(str, sorted({443, *seen.api_ports})))
            yield Finding(
                name="egress",
                severity=Severity.RISKS,
                what=f"no NetworkPolicy lets the {component} reach port {some(map(str, shut))}, on which the "
                "API server listens",
                where=Place(f"NetworkPolicy {seen.namespace}/{limiting[0].metadata.name}", "spec.egress"),
                means="if the cluster enforces NetworkPolicies, that component cannot reach the API server",
                fix=seen.upgrade(f"'networkPolicy.egressPorts={{{ports}}}'"),
            )
