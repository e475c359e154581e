"""Validation of custom resources by their OpenAPI v3 schema: the subset that Rekindle's CRDs use. Pure.

As in an API server, unknown fields are pruned, defaults are filled in, and every other mismatch is refused
with the field's name.
"""

from __future__ import annotations

import re
from copy import deepcopy
from datetime import datetime
from typing import Any

__all__ = ["prune_and_default", "violations"]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


def prune_and_default(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the document without the fields that the schema does not know, and with the defaults of the
    schema. Identity and metadata always stay."""
    kept: dict[str, Any] = _pruned(document, schema)
    return {**kept, **{field: document[field] for field in _ROOT_FIELDS if field in document}}


def _pruned(value: Any, schema: dict[str, Any]) -> Any:
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string"):
        return value
    if isinstance(value, list):
        return [_pruned(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    kept = {}
    for key, member in value.items():
        if key in properties:
            kept[key] = _pruned(member, properties[key])
        elif others:
            kept[key] = _pruned(member, others) if isinstance(others, dict) else member
    for key, rule in properties.items():
        if key not in kept and "default" in rule:
            kept[key] = _pruned(deepcopy(rule["default"]), rule)
    return kept


def violations(document: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Returns every mismatch as `field: reason`. The list is empty if the document is valid."""
    found: list[str] = []
    for field, rule in schema.get("properties", {}).items():
        if field in document and field not in _ROOT_FIELDS:
            _check(document[field], rule, field, found)
    found += [f"{field}: Required value" for field in schema.get("required", []) if field not in document]
    return found


def _check(value: Any, schema: dict[str, Any], path: str, found: list[str]) -> None:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            found.append(f'{path}: Invalid value: "{_name(value)}": must be of type integer or string')
        return
    expected = schema.get("type", "")
    if expected and not _is(value, expected):
        found.append(f'{path}: Invalid value: "{_name(value)}": must be of type {expected}: "{_name(value)}"')
        return
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(f'"{choice}"' for choice in schema["enum"])
        found.append(f'{path}: Unsupported value: "{value}": supported values: {choices}')
    if isinstance(value, str):
        found += [f"{path}: {why}" for why in _text(value, schema)]
    elif isinstance(value, dict):
        _check_object(value, schema, path, found)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            found.append(f"{path}: Too many: {len(value)}: must have at most {schema['maxItems']} items")
        if len(value) < schema.get("minItems", 0):
            found.append(
                f"{path}: Invalid value: {len(value)}: must have at least {schema['minItems']} items"
            )
        for index, item in enumerate(value):
            _check(item, schema.get("items", {}), f"{path}[{index}]", found)
    elif not isinstance(value, bool) and isinstance(value, int | float):
        found += [f"{path}: {why}" for why in _number(value, schema)]


def _check_object(value: dict[str, Any], schema: dict[str, Any], path: str, found: list[str]) -> None:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    found += [f"{path}.{field}: Required value" for field in schema.get("required", []) if field not in value]
    if len(value) > schema.get("maxProperties", len(value)):
        found.append(f"{path}: Too many: {len(value)}: must have at most {schema['maxProperties']} items")
    for key, member in value.items():
        rule = properties.get(key, others if isinstance(others, dict) else {})
        _check(member, rule, f"{path}.{key}", found)


def _text(value: str, schema: dict[str, Any]) -> list[str]:
    found = []
    if len(value) > schema.get("maxLength", len(value)):
        found.append(f"Too long: may not be more than {schema['maxLength']} bytes")
    if len(value) < schema.get("minLength", 0):
        found.append(f'Invalid value: "{value}": should be at least {schema["minLength"]} chars long')
    if "pattern" in schema and re.search(schema["pattern"], value) is None:
        found.append(f"Invalid value: \"{value}\": should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        found.append(f'Invalid value: "{value}": must be of type date-time')
    return found


def _number(value: float, schema: dict[str, Any]) -> list[str]:
    found = []
    if value < schema.get("minimum", value):
        found.append(f"Invalid value: {value}: should be greater than or equal to {schema['minimum']}")
    if value > schema.get("maximum", value):
        found.append(f"Invalid value: {value}: should be less than or equal to {schema['maximum']}")
    return found


def _is(value: Any, expected: str) -> bool:
    if isinstance(value, bool):
        return expected == "boolean"
    return isinstance(value, _TYPES[expected])


def _is_time(value: str) -> bool:
    """Whether the text is a time by RFC 3339, with a zone."""
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _name(value: Any) -> str:
    if value is None:
        return "null"
    return next((name for name in _TYPES if _is(value, name)), type(value).__name__)
