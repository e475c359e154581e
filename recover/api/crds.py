"""Generates the CRDs of NodeHealth, Incident, Recovery and Recipe from the structs that define them.

The in-memory API server uses `schemas`; the chart (charts/rekindle/files/crds, which a test compares) and
`rekindle crds` use `files`. A field's description, its limits and whether it may be absent all come from its
struct, so the wire and the schema cannot drift apart.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from detectors.wire.contract import GROUP, VERSION, NodeHealth
from detectors.wire.resource import Resource
from recover.api import Incident, Recovery
from recover.api.recipe import RecipeObject
from recover.api.structural import Schema, structural
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, RECIPES, RECOVERIES

__all__ = ["files", "manifests", "schemas"]


class Column(msgspec.Struct, frozen=True):
    """One column of `kubectl get`. `wide` columns appear only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Definition(msgspec.Struct, frozen=True):
    """The parts of a CRD that are not in its schema."""

    resource: Resource
    struct: type[msgspec.Struct]
    singular: str
    short: str
    columns: tuple[Column, ...]


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

# JSONPath cannot count, so a node shows its first finding; `rekindle why node/NAME` shows all of them.
_DEFINITIONS = (
    Definition(
        NODEHEALTHS,
        NodeHealth,
        "nodehealth",
        "nh",
        (
            Column("Finding", ".status.findings[0].code"),
            Column("Fault", ".status.findings[0].fault"),
            Column("Severity", ".status.findings[0].severity"),
            Column("Kernel-Log", '.status.coverage[?(@.source=="kmsg")].state'),
            Column("NVML", '.status.coverage[?(@.source=="nvml")].state'),
            Column("Driver", ".status.driverVersion", wide=True),
            Column("Boot", ".status.bootId", wide=True),
            Column("Agent", ".status.agentVersion", wide=True),
            _AGE,
        ),
    ),
    Definition(
        INCIDENTS,
        Incident,
        "incident",
        "inc",
        (
            Column("Fault", ".status.fault"),
            Column("Node", ".spec.node"),
            Column("Job", ".spec.gang.name"),
            Column("Culprit", ".status.blame"),
            Column("Phase", ".status.phase"),
            Column("Repair", ".status.repair.phase"),
            Column("Summary", ".status.summary", wide=True),
            _AGE,
        ),
    ),
    Definition(
        RECOVERIES,
        Recovery,
        "recovery",
        "rec",
        (
            Column("Job", ".spec.gang.name"),
            Column("Phase", ".status.phase"),
            Column("Attempt", ".status.attempt", "integer"),
            Column("Reason", ".status.reason"),
            Column("Checkpoint", ".status.checkpoint.step", "integer"),
            Column("Lost-Steps", ".status.lostSteps", "integer"),
            Column("Fault", ".spec.fault", wide=True),
            Column("Message", ".status.message", wide=True),
            _AGE,
        ),
    ),
    Definition(
        RECIPES,
        RecipeObject,
        "recipe",
        "rcp",
        (
            Column("Accepted", '.status.conditions[?(@.type=="Accepted")].status'),
            Column("Reason", '.status.conditions[?(@.type=="Accepted")].reason'),
            Column("Title", ".spec.title"),
            Column("Message", '.status.conditions[?(@.type=="Accepted")].message', wide=True),
            _AGE,
        ),
    ),
)


def schemas() -> dict[str, Schema]:
    """Returns the openAPIV3Schema of each kind, by its plural."""
    return {d.resource.plural: _root(d) for d in _DEFINITIONS}


def manifests() -> list[dict[str, Any]]:
    """Returns the CustomResourceDefinitions, ready to be applied."""
    return [_manifest(d) for d in _DEFINITIONS]


def files() -> dict[str, str]:
    """Returns each CRD as the text of a YAML file, by file name."""
    return {f"{d.resource.plural}.yaml": _yaml(_manifest(d)) for d in _DEFINITIONS}


def _manifest(d: Definition) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{d.resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if d.resource.namespaced else "Cluster",
            "names": {
                "kind": d.resource.kind,
                "listKind": f"{d.resource.kind}List",
                "plural": d.resource.plural,
                "singular": d.singular,
                "shortNames": [d.short],
                "categories": ["rekindle"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(c) for c in d.columns],
                    "schema": {"openAPIV3Schema": _root(d)},
                }
            ],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        shown["priority"] = 1
    return shown


def _root(d: Definition) -> Schema:
    """Returns the schema of a kind. Kubernetes itself owns apiVersion, kind and metadata; their schema must
    stay empty."""
    schema = structural(d.struct)
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    # An absent status must still show the phase that is the default of its struct.
    schema["properties"]["status"]["default"] = {}
    return schema


def _yaml(manifest: dict[str, Any]) -> str:
    return yaml.safe_dump(manifest, sort_keys=False, width=110, allow_unicode=True)
