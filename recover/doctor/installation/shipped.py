"""Permissions and admission policies that the chart installs with the workloads. Pure, except that it reads
its own file.

shipped.yaml is generated from the chart's files. The chart replaces the default namespace, image and mode by
those of the release, and so do these functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from recover.doctor.installation.installed import CONTROLLER, Right
from recover.model.modes import Mode
from recover.policy.settings import Settings
from recover.runtime.device_maps import places

__all__ = ["policies", "rights"]

_FILE = Path(__file__).with_name("shipped.yaml")
_NAMESPACE, _IMAGE = Settings().namespace, Settings().images.scan
_MODE = "'mode-repair'"
_CONDITION_ROLE = "rekindle-node-condition"
"""Role whose permission is granted only if the controller writes the node condition."""


@cache
def _shipped(
    namespace: str, image: str = _IMAGE, mode: str = Mode.REPAIR, condition: str = "on"
) -> tuple[dict[str, Any], ...]:
    text = _FILE.read_text(encoding="utf-8").replace(_NAMESPACE, namespace)
    text = text.replace(_IMAGE, image).replace(_MODE, f"'mode-{mode}'")
    return tuple(yaml.safe_load_all(text.replace("'node-condition-on'", f"'node-condition-{condition}'")))


def policies(namespace: str, settings: Settings | None) -> dict[str, dict[str, Any]]:
    """Returns admission policies and bindings, by `Kind/name`. Without the release's settings, returns only
    those that contain no value of the settings."""
    told = ("none", "none", "none")
    if settings is not None:
        told = (settings.images.scan, settings.mode, "on" if settings.node_condition else "off")
    found = zip(_shipped(namespace), _shipped(namespace, *told), strict=True)
    return {
        f"{body['kind']}/{body['metadata']['name']}": body
        for default, body in found
        if body["apiVersion"].startswith("admissionregistration.k8s.io/")
        and (settings is not None or body == default)
    }


def rights(namespace: str, settings: Settings | None = None) -> tuple[Right, ...]:
    """Returns each verb on each resource that a role of the chart grants to one of its accounts. Permissions
    that a setting needs come last. Without the release's settings, returns the permissions that every release
    has."""
    known = settings or Settings()
    return (*_of_roles(namespace, known), *_asked_for(known))


def _asked_for(settings: Settings) -> Iterator[Right]:
    """Yields the permissions that templates/reports.yaml and templates/resources.yaml of the chart grant."""
    wanted: dict[str, tuple[str, ...]] = {
        place: ("list", "watch") for place, _ in places(settings.signals.reports)
    }
    if settings.accelerator_maps:
        wanted["kube-public"] = wanted.get("kube-public", ("list",))
    for namespace, verbs in wanted.items():
        for verb in verbs:
            yield Right(account=CONTROLLER, verb=verb, group="", resource="configmaps", namespace=namespace)


def _of_roles(namespace: str, settings: Settings) -> tuple[Right, ...]:
    roles = {(body["kind"], body["metadata"]["name"]): body for body in _shipped(namespace)}
    return tuple(
        right
        for binding in _shipped(namespace)
        if binding["kind"] in ("ClusterRoleBinding", "RoleBinding")
        and (settings.node_condition or binding["roleRef"]["name"] != _CONDITION_ROLE)
        for subject in binding["subjects"]
        for right in _of_role(
            roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]], str(subject["name"])
        )
    )


def _of_role(role: dict[str, Any], account: str) -> Iterator[Right]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(
                            account=account,
                            verb=verb,
                            group=group,
                            resource=resource,
                            name=name,
                            namespace=role["metadata"].get("namespace", ""),
                        )
