"""Generates the page of the answers that commands give to programs, and the JSON Schema of these answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from detectors.text.answers import ANSWERS_VERSION, Answer
from recover.cli.answers import ANSWERS

__all__ = ["answers_page", "answers_schema"]

_NAMES = {
    "detectors.wire.contract.Finding": "NodeFinding",
    "detectors.wire.contract.Severity": "NodeSeverity",
    "recover.doctor.case.Finding": "DoctorFinding",
    "recover.workloads.as_written.Severity": "DoctorSeverity",
}

_HEAD = f"""\
# Answers of commands to programs

Generated from the structs of the answers by `make docs`. [answers.schema.json](answers.schema.json) has the
same content as a JSON Schema, with each answer under `$defs`.

`-o json` (also `--json`) and `-o yaml` print one object, which has the same shape for all commands:

| field | meaning |
|---|---|
| `kind` | the answer, as below |
| `apiVersion` | `{ANSWERS_VERSION}`; it changes when a field changes its meaning or is removed |

Names are camelCase. Times are RFC 3339 with a zone. Durations are numbers, and their names end with the unit:
`S` for seconds. Enums are codes and not words; [reasons.md](reasons.md) explains the codes of reasons. A
value that is not known is null. Parts that are objects of the API, such as findings, leave out empty fields.

New fields may come with any release, so a program ignores the fields that it does not know. Sentences for
people (`headline`, `nextSteps`, `why`) may change with any release; programs read the codes beside them.
`recipes show -o json` prints a `Recipe` object for `kubectl apply`.
"""


def answers_page() -> str:
    schema = msgspec.json.decode(answers_schema())
    lines = [_HEAD]
    for command, answer in ANSWERS.items():
        name = answer.__name__
        lines += [f"## {_kind(answer)}", "", f"The answer of `{'`, `'.join(command.split(', '))}`.", ""]
        lines += [*_table(schema["$defs"][name]), ""]
    lines += ["## Parts", ""]
    tops = {answer.__name__ for answer in ANSWERS.values()}
    for name, part in schema["$defs"].items():
        if name not in tops:
            lines += [f"### {name}", "", *_part(part), ""]
    return "\n".join(lines).rstrip() + "\n"


def answers_schema() -> str:
    _, parts = msgspec.json.schema_components(list(ANSWERS.values()), ref_template="#/$defs/{name}")
    parts = _renamed(parts)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Answers of rekindle's commands ({ANSWERS_VERSION})",
        "oneOf": [{"$ref": f"#/$defs/{answer.__name__}"} for answer in ANSWERS.values()],
        "$defs": {name: parts[name] for name in sorted(parts)},
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _renamed(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Renames types: if two types have the same name, msgspec adds their modules to both names."""
    text = msgspec.json.encode(parts).decode()
    for name in parts:
        if "." in name:
            text = text.replace(f'{name}"', f'{_NAMES[name]}"')
    renamed: dict[str, Any] = msgspec.json.decode(text)
    return renamed


def _kind(answer: type[Answer]) -> str:
    return str(answer.__struct_config__.tag)


def _part(part: dict[str, Any]) -> Iterator[str]:
    if "enum" in part:
        yield "One of " + ", ".join(f"`{value}`" for value in part["enum"]) + "."
    else:
        yield from _table(part)


def _table(part: dict[str, Any]) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, field in part["properties"].items():
        if name not in ("kind", "apiVersion") or "enum" not in field:
            meaning = " ".join(field.get("description", "").split()).replace("|", "\\|")
            yield f"| `{name}` | {_type(field)} | {meaning} |"


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}" if field.get("items") else "list"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return f"map to {_type(inner)}" if isinstance(inner, dict) and inner else "object"
    return {"date-time": "time"}.get(field.get("format", ""), str(field.get("type", "any")))
