"""Generates a rule by which the API server limits the total size of an object; structural.py calls it.

Limits of single strings and lists multiply: an attacker in control of a node's agent could fill each of them.
Therefore one rule limits all of them together. The rule counts the least that the JSON takes: it leaves out
optional numbers, times and enums, and counts a character as one byte. So the rule never refuses an object
that its writer has kept within the limit.
"""

from __future__ import annotations

from typing import Any

__all__ = ["at_most"]

_TIME = "2026-11-21T09:30:00Z"
_RESERVED = frozenset({"namespace"})
"""Names of fields that have another meaning in CEL."""


def at_most(bytes_max: int, schema: dict[str, Any]) -> dict[str, str]:
    """Returns one entry of `x-kubernetes-validations` of the schema."""
    return {
        "rule": f"{_counted(schema, 'self')} <= {bytes_max}",
        "message": f"expected at most {bytes_max} bytes of JSON",
    }


def _counted(schema: dict[str, Any], value: str, depth: int = 0) -> str:
    """Returns the CEL expression that counts the bytes of `value`."""
    terms = [str(_fixed(schema))]
    for name, field in schema["properties"].items():
        there = f"{value}.{f'__{name}__' if name in _RESERVED else name}"
        if (bytes_ := _of_field(field, there, depth)) is None:
            continue
        optional = name not in schema.get("required", ())
        terms.append(f"(has({there}) ? {bytes_} : 0)" if optional else bytes_)
    return " + ".join(terms)


def _of_field(field: dict[str, Any], there: str, depth: int) -> str | None:
    """Returns the CEL expression of one field; None if the size of the field is fixed."""
    match field["type"]:
        case "string" if not field.keys() & {"enum", "format"}:
            return f"size({there})"
        case "object":
            return _counted(field, there, depth)
        case "array" if field["items"]["type"] == "object":
            item = "abc"[depth]
            return f"{there}.map({item}, {_counted(field['items'], item, depth + 1)}).sum()"
        case "array":
            item = "abc"[depth]
            return f"{there}.map({item}, size({item}) + 3).sum()"
    return None


def _fixed(schema: dict[str, Any]) -> int:
    """Returns the bytes of an object's required fields, without the characters of their strings."""
    required = schema.get("required", ())
    return 2 + sum(len(f'"{name}":,') + _least(schema["properties"][name]) for name in required)


def _least(field: dict[str, Any]) -> int:
    match field["type"]:
        case "string" if "enum" in field:
            return min(map(len, field["enum"])) + 2
        case "string" if field.get("format") == "date-time":
            return len(_TIME) + 2
        case "integer" | "number":
            return 1
        case "object":
            return 0  # _counted counts its content
    return 2
