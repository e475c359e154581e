"""Tests recover/api/schema_size.py: how much an agent that was broken into can store in its NodeHealth at
most."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from detectors.wire.contract import OBJECT_BYTES_MAX
from recover.api.crds import schemas

STATUS = schemas()["nodehealths"]["properties"]["status"]
WORST_BYTES_MAX = 256 * 1024
ESCAPED_BYTES = 6
"""Largest number of bytes that one character takes where it is stored: the API server writes `<` as
\\u003c."""


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield name, field
        yield from fields(field.get("items", field))


def uncounted_bytes(schema: dict[str, Any], *, optional: bool = True) -> int:
    """Returns the largest number of bytes that a field may take in addition to those that the rule counts."""
    match schema["type"]:
        case "object":
            required = schema.get("required", ())
            return sum(
                uncounted_bytes(field, optional=name not in required)
                + (len(f'"{name}":,') if name not in required else 0)
                for name, field in schema["properties"].items()
            )
        case "array":
            each = schema["items"]
            return 2 + (
                schema["maxItems"] * uncounted_bytes(each, optional=False) if each["type"] == "object" else 0
            )
        case "string" if "enum" in schema:
            lengths = sorted(map(len, schema["enum"]))
            return lengths[-1] + 2 if optional else lengths[-1] - lengths[0]
        case "string" if "format" in schema:
            return schema["maxLength"] + 2 if optional else schema["maxLength"] - len("2026-11-21T09:30:00Z")
        case "string":
            return 2 if optional else 0
        case "boolean":
            return len("false")
        case "integer":
            return len(str(-(2**63)))
    return 25  # a number with a fraction


def test_every_string_and_list_of_a_nodehealths_status_is_bounded() -> None:
    unbounded = [
        name
        for name, field in fields(STATUS)
        if (field["type"] == "string" and not field.keys() & {"maxLength", "enum"})
        or (field["type"] == "array" and "maxItems" not in field)
        or (
            field["type"] == "array"
            and field["items"]["type"] == "string"
            and not field["items"].keys() & {"maxLength", "enum"}
        )
    ]

    assert unbounded == []


def test_the_worst_that_an_agent_can_store_is_bounded() -> None:
    worst_bytes = ESCAPED_BYTES * OBJECT_BYTES_MAX + uncounted_bytes(STATUS)

    print(f"worst status: {worst_bytes / 1024:.0f} KiB, of it {uncounted_bytes(STATUS) / 1024:.0f} uncounted")
    assert worst_bytes <= WORST_BYTES_MAX


def test_the_rule_counts_every_string_that_is_no_time_and_no_choice() -> None:
    (rule,) = STATUS["x-kubernetes-validations"]
    strings = [name for name, field in fields(STATUS) if field["type"] == "string" and "maxLength" in field]

    counted = re.findall(r"size\((?:[\w.]+\.)?(\w+)\)", rule["rule"])

    named = [name.strip("_") for name in counted if len(name) > 1]
    assert sorted(named) == sorted(name for name in strings if not re.search(r"(At|Seen|since|^at)$", name))
    assert rule["rule"].endswith(f" <= {OBJECT_BYTES_MAX}")
