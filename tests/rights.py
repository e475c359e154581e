"""Reads the permissions that the chart grants to the controller: a decision that needs another permission
fails its own test.

Objects of groups that the chart does not know are left out. People grant the permission for the
maintenance object of a repair.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from chaos.apiserver.store import Audit
from detectors.wire.resource import Resource
from recover.model.actions import Action, ConfirmGone, ConfirmListed, Create, Delete, Ensure, Patch
from recover.policy.settings import Settings
from recover.workloads import Workload

__all__ = ["granted_over", "lacking", "not_granted"]

_FOLDER = Path(__file__).parents[1] / "charts" / "rekindle" / "files"
_FILES = (_FOLDER / "rbac" / "controller.yaml", _FOLDER / "node_condition" / "rbac.yaml")


def lacking(action: Action) -> list[str]:
    """Returns the permissions that the action needs and the chart does not grant, as `patch
    recoveries.rekindle.dev`."""
    granted = _granted()
    groups = {group for _, group, _ in granted}
    return [
        f"{verb} {'/'.join((resource.plural, *sub))}.{resource.group}"
        for verb, resource, *sub in _needed(action)
        if resource.group in groups
        and (verb, resource.group, "/".join((resource.plural, *sub))) not in granted
    ]


def granted_over(workload: Workload) -> set[tuple[str, str]]:
    """Returns verb and resource of the permissions that the chart grants over the framework's jobs."""
    group, plural = workload.resource.group, workload.resource.plural
    return {(verb, name) for verb, of, name in _granted() if of == group and name.partition("/")[0] == plural}


def not_granted(write: Audit) -> str:
    """Returns the permission that a write in a simulation used and the chart does not grant. Empty if the
    chart grants it. Writes in the controller's own namespace are not checked."""
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
    """Returns verb, group and resource of each permission. Permissions of the Role in the release's
    namespace do not count."""
    roles = [
        one
        for file in _FILES
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if one["kind"] == "ClusterRole"
    ]
    return frozenset(
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    )
