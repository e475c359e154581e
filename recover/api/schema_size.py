"""How large an object of a schema is at least, as a rule that the API server counts by; structural.py asks.

Limits of single strings and lists multiply: a node's agent that was broken into could fill each of them. So
all of them together are limited by one rule. It counts what JSON takes at least, without optional numbers,
times and enums, and a character as one byte. So it never refuses what its writer has kept within the limit.
"""

from __future__ import annotations

from typing import Any

__all__ = ["at_most"]

_TIME = "2026-11-21T09:30:00Z"
_RESERVED = frozenset({"namespace"})
"""Names of fields that mean something else in CEL."""


def at_most(bytes_max: int, schema: dict[str, Any]) -> dict[str, str]:
    """One of `x-kubernetes-validations` of that schema."""
    return {
        "rule": f"{_counted(schema, 'self')} <= {bytes_max}",
        "message": f"expected at most {bytes_max} bytes of JSON",
    }


def _counted(schema: dict[str, Any], value: str, depth: int = 0) -> str:
    """The CEL expression of the bytes of `value`."""
    terms = [str(_fixed(schema))]
    for name, field in schema["properties"].items():
        there = f"{value}.{f'__{name}__' if name in _RESERVED else name}"
        if (bytes_ := _of_field(field, there, depth)) is None:
            continue
        optional = name not in schema.get("required", ())
        terms.append(f"(has({there}) ? {bytes_} : 0)" if optional else bytes_)
    return " + ".join(terms)


def _of_field(field: dict[str, Any], there: str, depth: int) -> str | None:
    """None where its size is fixed."""
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
    """What an object's required fields take, but for the characters of their strings."""
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
            return 0  # counted by itself
    return 2
