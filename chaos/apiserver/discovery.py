"""The discovery documents of the simulated API server: versions, groups and kinds. rest.py serves these
documents; kubectl and dynamic clients read them first."""

from __future__ import annotations

from typing import Any

from chaos.apiserver.kinds import KINDS, Kind
from detectors.wire.contract import GROUP

__all__ = ["DOCUMENTS"]

_SHORT_NAMES = {
    "configmaps": ["cm"],
    "namespaces": ["ns"],
    "nodes": ["no"],
    "pods": ["po"],
    "persistentvolumeclaims": ["pvc"],
    "nodehealths": ["nh"],
    "incidents": ["inc"],
    "recoveries": ["rec"],
    "recipes": ["rcp"],
}
_VERBS = ["create", "delete", "get", "list", "patch", "watch"]


def _group_versions() -> list[tuple[str, str]]:
    return list(dict.fromkeys((r.group, r.version) for r in KINDS if r.group))


def _resources(group: str, version: str) -> dict[str, Any]:
    kinds = [kind for r, kind in KINDS.items() if (r.group, r.version) == (group, version)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [entry for kind in kinds for entry in _entries(kind)],
    }


def _entries(kind: Kind) -> list[dict[str, Any]]:
    resource = kind.resource
    entry = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
        "shortNames": _SHORT_NAMES.get(resource.plural, []),
        "categories": ["rekindle"] if resource.group == GROUP else [],
    }
    if not kind.has_status:
        return [entry]
    return [
        entry,
        {
            **entry,
            "name": f"{resource.plural}/status",
            "shortNames": [],
            "categories": [],
            "verbs": ["get", "patch"],
        },
    ]


def _group(group: str, version: str) -> dict[str, Any]:
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


DOCUMENTS: dict[str, dict[str, Any]] = {
    "/version": {
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.0-simulated",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    },
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(group, version) for group, version in _group_versions()],
    },
    "/api/v1": _resources("", "v1"),
    **{f"/apis/{group}/{version}": _resources(group, version) for group, version in _group_versions()},
}
"""Documents by path."""
