"""The rights that the chart grants to the controller: a decision that needs another one fails its own test.

Objects of groups that the chart does not know are left out: people grant the right to the maintenance object
of a repair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from chaos.apiserver.store import Audit
from detectors.wire.resource import Resource
from recover.model.actions import Action, ConfirmGone, ConfirmListed, Create, Delete, Ensure, Patch
from recover.policy.settings import Settings
from recover.workloads import Workload

__all__ = ["demanded", "granted_over", "lacking", "not_granted", "unknown_to_policies"]

_FILES = Path(__file__).parents[1] / "charts" / "rekindle" / "files"
_FILE = _FILES / "rbac" / "controller.yaml"
_BY_KIND = ("rekindle-fence-jobs", "rekindle-fence-anew", "rekindle-warns-job")
"""The policies that list the kinds of jobs."""


def lacking(action: Action) -> list[str]:
    """The rights that it needs and that the chart does not grant, as `patch recoveries.rekindle.dev`."""
    granted = _granted()
    groups = {group for _, group, _ in granted}
    return [
        f"{verb} {'/'.join((resource.plural, *sub))}.{resource.group}"
        for verb, resource, *sub in _needed(action)
        if resource.group in groups
        and (verb, resource.group, "/".join((resource.plural, *sub))) not in granted
    ]


def demanded(workloads: Iterable[Workload]) -> set[str]:
    """The rights that these frameworks' files name and that the chart does not grant."""
    return {
        f"{verb} {name}.{workload.resource.group}"
        for workload in workloads
        for verb, name in workload.rights
        if (verb, workload.resource.group, name) not in _granted()
    }


def granted_over(workload: Workload) -> set[tuple[str, str]]:
    """Verb and resource of the rights that the chart grants over the framework's jobs."""
    group, plural = workload.resource.group, workload.resource.plural
    return {(verb, name) for verb, of, name in _granted() if of == group and name.partition("/")[0] == plural}


def unknown_to_policies(workload: Workload) -> list[str]:
    """The places in the chart's policies that must name the framework's kind and do not: else what the
    controller writes for its jobs is refused, or not judged."""
    kind, policies = workload.resource, _policies()
    places = {
        f"resourceRules of {name}": any(
            kind.plural in rule["resources"] and kind.group in rule["apiGroups"]
            for rule in policies[name]["matchConstraints"]["resourceRules"]
        )
        for name in _BY_KIND
    }
    places["variables of rekindle-fence-anew: its pod templates"] = workload.pod_templates[1] in str(
        policies["rekindle-fence-anew"]["variables"]
    )
    # Of a kind whose pods are those of Jobs, the template stays as it is.
    field, of_jobs = workload.pod_templates[1], policies["rekindle-fence-jobs"]
    for part, words in (("variables", f".?{field}."), ("validations", f"'{field}'")):
        expressions = "".join(one["expression"] for one in of_jobs[part])
        places[f"{part} of rekindle-fence-jobs: what a start changes"] = (
            workload.makes_jobs or words in expressions
        )
    places["isOfAJob of rekindle-fence-pods"] = workload.makes_jobs or f"'{kind.kind}'" in str(
        policies["rekindle-fence-pods"]["variables"]
    )
    for name, spec in policies.items():
        for kinds in re.findall(r"-rekindle\(?-\(([a-z|]+)\)", str(spec)):
            places[f"{name}: -rekindle-({kinds})"] = kind.kind.lower() in kinds.split("|")
    return [place for place, names_it in places.items() if not names_it]


@cache
def _policies() -> dict[str, dict[str, Any]]:
    bodies = [
        one
        for file in sorted((_FILES / "policies").iterdir())
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    return {one["metadata"]["name"]: one["spec"] for one in bodies if one["kind"].endswith("AdmissionPolicy")}


def not_granted(write: Audit) -> str:
    """The right that a write in a simulation used and that the chart does not grant; empty where it does. Of
    the controller's own namespace nothing is asked."""
    resource = write.resource
    groups = {group for _, group, _ in _granted()}
    if write.namespace == Settings().namespace or resource.group not in groups:
        return ""
    name = "/".join((resource.plural, write.subresource)) if write.subresource else resource.plural
    return "" if (write.verb, resource.group, name) in _granted() else f"{write.verb} {name}.{resource.group}"


def _needed(action: Action) -> list[tuple[str, Resource] | tuple[str, Resource, str]]:
    match action:
        case Create(resource=resource, status=status):
            follows = [("patch", resource, "status")] if status is not None else []
            return [("create", resource), *follows]
        case Ensure(resource=resource, creates=creates):
            return [("patch", resource), *([("create", resource)] if creates else [])]
        case Patch(resource=resource, subresource=""):
            return [("patch", resource)]
        case Patch(resource=resource, subresource=subresource):
            return [("patch", resource, subresource)]
        case Delete(resource=resource):
            return [("delete", resource)]
        case ConfirmGone(resource=resource):
            return [("get", resource)]
        case ConfirmListed(resource=resource):
            return [("list", resource)]
        case _:
            return []


@cache
def _granted() -> frozenset[tuple[str, str, str]]:
    """Verb, group and resource. Of the Role in the release's namespace nothing is counted."""
    roles = [
        one for one in yaml.safe_load_all(_FILE.read_text(encoding="utf-8")) if one["kind"] == "ClusterRole"
    ]
    return frozenset(
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    )
