"""The CRDs of NodeHealth, Incident, Recovery and Recipe, made from the structs that define them.

`schemas` feeds the in-memory API server, `files` the chart (charts/rekindle/files/crds, checked by a test)
and `rekindle crds`. A field's description, its limits and whether it may be absent all come from its struct,
so the wire and the schema cannot drift apart.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import itertools
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import inspect as types

from detectors.contract import GROUP, VERSION, NodeHealth
from detectors.kubeapi import Resource
from recover.api import Condition, Incident, Recovery
from recover.kube.cluster import INCIDENTS, NODEHEALTHS, RECOVERIES
from recover.recipes.objects import RecipeObject
from recover.resources import RECIPES

__all__ = ["files", "manifests", "run", "schemas"]

Schema = dict[str, Any]


class Column(msgspec.Struct, frozen=True):
    """One column of `kubectl get`; `wide` ones show with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Definition(msgspec.Struct, frozen=True):
    """What a CRD needs beside its schema."""

    resource: Resource
    struct: type[msgspec.Struct]
    singular: str
    short: str
    columns: tuple[Column, ...]


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

# JSONPath cannot count, so a node shows its first finding; `rekindle why node/NAME` tells all of them.
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
            Column("Fault", ".spec.fault"),
            Column("Node", ".spec.node"),
            Column("Job", ".spec.gang.name"),
            Column("Blame", ".status.blame"),
            Column("Phase", ".status.phase"),
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
    """The openAPIV3Schema of each kind, by its plural."""
    return {d.resource.plural: _root(d) for d in _DEFINITIONS}


def manifests() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions, ready to be applied."""
    return [_manifest(d) for d in _DEFINITIONS]


def files() -> dict[str, str]:
    """Each CRD as a YAML file: name -> text."""
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
    """Kubernetes itself owns apiVersion, kind and metadata; their schema must stay this bare."""
    schema = _struct(d.struct)
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    # An absent status must still show the phase that its struct's defaults mean.
    schema["properties"]["status"]["default"] = {}
    return schema


def _struct(struct: type[msgspec.Struct]) -> Schema:
    """A struct as a structural schema: no references, no unions, nothing nullable."""
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    schema: Schema = {"type": "object"}
    if text := inspect.cleandoc(struct.__doc__ or ""):
        schema["description"] = text
    said = _docstrings(struct)
    schema["properties"] = {
        field.encode_name: said.get(field.name, {}) | _field(field) for field in info.fields
    }
    if required := [field.encode_name for field in info.fields if field.required]:
        schema["required"] = required
    return schema


def _docstrings(struct: type[msgspec.Struct]) -> dict[str, Schema]:
    """What stands below a field in its struct's source, for `kubectl explain`. A type's own description, or
    one in Meta, goes before it."""
    said: dict[str, Schema] = {}
    for cls in struct.__mro__:
        if issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct:
            said |= _docstrings_in(cls.__module__).get(cls.__name__, {})
    return said


@functools.cache
def _docstrings_in(module: str) -> dict[str, dict[str, Schema]]:
    """By class and field."""
    found: dict[str, dict[str, Schema]] = {}
    for cls in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(cls, ast.ClassDef):
            continue
        for field, text in itertools.pairwise(cls.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    found.setdefault(cls.name, {})[name] = {"description": " ".join(doc.split())}
    return found


def _field(field: types.Field) -> Schema:
    schema = _schema(field.type)
    if (said := _default(field.default)) is not None:
        schema["default"] = said
    return schema


def _default(value: object) -> str | int | float | None:
    """Only defaults that say something: encoders leave them out, and `kubectl get` must still show them."""
    if isinstance(value, Enum):
        value = value.value
    return value if isinstance(value, str | int | float) and value else None


def _schema(kind: types.Type) -> Schema:
    match kind:
        case types.Metadata(type=inner, extra_json_schema=extra):
            return (extra or {}) | _schema(inner)
        case types.UnionType(types=members):  # `X | None`: absent and null are the same to the API server
            (inner,) = (member for member in members if not isinstance(member, types.NoneType))
            return _schema(inner)
        case types.StructType(cls=cls):
            return _struct(cls)
        case types.EnumType(cls=cls):
            return {"type": "string", "enum": [member.value for member in cls]}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case types.StrType(min_length=shortest, max_length=longest, pattern=pattern):
            return _known(type="string", minLength=shortest, maxLength=longest, pattern=pattern)
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType(ge=least, le=most):
            return _known(type="integer", format="int64", minimum=least, maximum=most)
        case types.FloatType(ge=least, le=most):
            return _known(type="number", format="double", minimum=least, maximum=most)
        case types.ListType(item_type=item, min_length=shortest, max_length=longest):
            array = _known(type="array", minItems=shortest, maxItems=longest)
            return array | _merge_key(item) | {"items": _schema(item)}
        case types.DictType(value_type=value, max_length=most):
            return _known(type="object", maxProperties=most) | {"additionalProperties": _schema(value)}
    raise TypeError(f"{kind} has no place in a structural schema: use a struct, list, map or scalar")


def _known(**limits: Any) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}


def _merge_key(item: types.Type) -> Schema:
    """Conditions are merged by their type, so that two writers would not overwrite each other's."""
    if isinstance(item, types.StructType) and item.cls is Condition:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {}


def _yaml(manifest: dict[str, Any]) -> str:
    return yaml.safe_dump(manifest, sort_keys=False, width=110, allow_unicode=True)


def run(args: list[str]) -> int:
    """`rekindle crds`: prints the CRDs, or writes one file each."""
    parser = argparse.ArgumentParser(
        prog="rekindle crds", description="Print the CustomResourceDefinitions, for kubectl apply -f -."
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="write one file per kind there")
    directory: Path | None = parser.parse_args(args).output_dir
    if directory is None:
        sys.stdout.write("---\n".join(files().values()))
        return 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files().items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"rekindle crds: cannot write to {directory}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
