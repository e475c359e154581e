"""Turns a struct into the schema of an API object, for crds.py. This module reads the source files of the
structs, too.

`msgspec.json.schema` is not usable: it writes references and unions, which structural schemas forbid, and
drops the format of times. Defaults that carry information (a phase, a count) are in the schema, since
encoders leave them out and `kubectl get` would show a blank.

A field's limits, whether it may be absent, and its description all come from its struct: the description from
Meta, from the type, or from the docstring below the field.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from enum import Enum
from typing import Any

import msgspec
from msgspec import inspect as types

from detectors.wire.contract import OBJECT_BYTES_MAX, NodeHealthStatus
from recover.api import Condition
from recover.api.recipe_spec import KINDS, Clause, Test
from recover.api.schema_size import at_most

__all__ = ["Schema", "structural"]

Schema = dict[str, Any]

_TIME_CHARS_MAX = 35
"""Limit for the characters of a time. Its format allows any number of digits after the second."""

_GIVEN = f"[{', '.join(f'has(self.{kind})' for kind in KINDS)}]"
_RULES: dict[type[msgspec.Struct], Schema] = {
    Test: {
        "rule": f"{_GIVEN}.exists_one(given, given)",
        "message": f"expected exactly one of {', '.join(KINDS)}",
    },
    Clause: {
        "rule": f"has(self.anyOf) ? !{_GIVEN}.exists(given, given) : {_GIVEN}.exists_one(given, given)",
        "message": f"expected anyOf alone, or exactly one of {', '.join(KINDS)}",
    },
}
"""Rules for what the types of a recipe cannot express and people most often write wrongly: the API server
itself refuses these at once. The object's status reports all other problems."""


def structural(struct: type[msgspec.Struct]) -> Schema:
    """Returns a struct as a structural schema: no references, no unions, nothing nullable."""
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
    if struct in _RULES:
        schema["x-kubernetes-validations"] = [_RULES[struct]]
    if struct is NodeHealthStatus:
        schema["x-kubernetes-validations"] = [at_most(OBJECT_BYTES_MAX, schema)]
    return schema


def _docstrings(struct: type[msgspec.Struct]) -> dict[str, Schema]:
    """Returns the docstrings below the fields in the struct's source, for `kubectl explain`. A type's own
    description, or one in Meta, takes precedence."""
    said: dict[str, Schema] = {}
    for cls in struct.__mro__:
        if issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct:
            said |= _docstrings_in(cls.__module__).get(cls.__name__, {})
    return said


@functools.cache
def _docstrings_in(module: str) -> dict[str, dict[str, Schema]]:
    """Returns the docstrings of a module, by class and field."""
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
    """Returns the default if it carries information: encoders leave it out, and `kubectl get` must still show
    it."""
    if isinstance(value, Enum):
        value = value.value
    return value if isinstance(value, str | int | float) and value else None


def _schema(kind: types.Type) -> Schema:
    match kind:
        case types.Metadata(type=inner, extra_json_schema=extra):
            said = extra or {}
            return said | _schema(inner) | said  # a description in Meta replaces that of the type
        case types.UnionType(types=members):  # `X | None`: absent and null are the same to the API server
            (inner,) = (member for member in members if not isinstance(member, types.NoneType))
            return _schema(inner)
        case types.StructType(cls=cls):
            return structural(cls)
        case types.EnumType(cls=cls):
            return {"type": "string", "enum": [member.value for member in cls]}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time", "maxLength": _TIME_CHARS_MAX}
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
    """Returns the key by which a list is merged. Conditions are merged by their type, so that two writers do
    not overwrite each other's conditions."""
    if isinstance(item, types.StructType) and item.cls is Condition:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {}
