"""Generates parts of the chart. The README gets the table of values, from the comments in values.yaml.
values.schema.json gets the same descriptions, the daemons' settings, from their structs, and the names of the
alerts. For generate.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml

from detectors.service.settings import AgentSettings
from recover.policy.settings import Settings

__all__ = ["CHART", "alerts", "readme", "repair_templates", "schema", "values"]

CHART = Path(__file__).parents[2] / "charts" / "rekindle"
BEGIN = "<!-- values: written by `make docs` from values.yaml -->\n"
END = "<!-- end of values -->\n"
DECIDED_BY_THE_RELEASE = {
    "controllerSettings": (
        "mode",
        "modes",
        "namespace",
        "images",
        "scheduling_gates",
        "node_condition",
        "repair.templates",
        "repair.webhook.token_file",
    ),
    "agentSettings": ("catalogue",),
}
"""Settings that follow from other values of the chart, and so are no values themselves."""


class Value(msgspec.Struct, frozen=True):
    path: tuple[str, ...]
    default: Any
    meaning: str

    @property
    def name(self) -> str:
        return ".".join(self.path)


def values() -> list[Value]:
    """Returns every value, in the file's order. A mapping that contains explained values is a group of
    values."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return list(_values(root, text.splitlines(), ()))


def readme() -> str:
    """Returns the README with a new table."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = [f"| `{v.name}` | `{json.dumps(v.default)}` | {v.meaning} |" for v in values()]
    return (
        before
        + BEGIN
        + "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
        + "\n"
        + END
        + after
    )


def schema() -> str:
    """Returns the schema with new descriptions and settings. The permitted values are written by hand."""
    document = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    for value in values():
        if value.meaning:
            place = document
            for key in value.path:
                place = place["properties"][key]
            place["description"] = value.meaning
    document["properties"]["alerts"]["properties"]["rules"]["properties"] = {
        alert["alert"]: {"$ref": "#/definitions/alert"} for alert in alerts()
    }
    document["definitions"] = {
        "alert": document["definitions"]["alert"],
        "controllerSettings": _settings(Settings, "controllerSettings"),
        "agentSettings": _settings(AgentSettings, "agentSettings"),
    }
    return json.dumps(document, indent=2) + "\n"


def alerts() -> list[dict[str, Any]]:
    """Returns the alerts as Prometheus reads them."""
    text = (CHART / "files" / "alerts" / "rules.yaml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def repair_templates() -> dict[Path, str]:
    """Returns the packaged pod templates, which the chart gives to the controller unless there are others."""
    packaged = files("recover.repair").joinpath("templates")
    return {
        CHART / "files" / "repair" / one.name: one.read_text(encoding="utf-8") for one in packaged.iterdir()
    }


def _values(node: yaml.MappingNode, lines: list[str], path: tuple[str, ...]) -> Iterator[Value]:
    for key, inner in node.value:
        here = (*path, key.value)
        if isinstance(inner, yaml.MappingNode) and _is_group(inner, lines):
            yield from _values(inner, lines, here)
        else:
            default = yaml.safe_load(yaml.serialize(inner))
            yield Value(here, default, _comment_above(key.start_mark.line, lines))


def _is_group(node: yaml.MappingNode, lines: list[str]) -> bool:
    return any(_comment_above(key.start_mark.line, lines) for key, _ in node.value)


def _comment_above(line: int, lines: list[str]) -> str:
    found: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(found)


def _settings(struct: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """Returns the schema of the settings, with nested groups in place of references. Defaults are left out,
    because they belong to the daemon."""
    components = msgspec.json.schema(struct)["$defs"]
    whole: dict[str, Any] = _resolved(components[struct.__name__], components)
    for setting in DECIDED_BY_THE_RELEASE[name]:
        *groups, field = setting.split(".")
        group = whole
        for one in groups:
            group = group["properties"][one]
        del group["properties"][field]
    return whole


def _resolved(part: Any, components: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [_resolved(item, components) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _resolved(components[part["$ref"].rpartition("/")[2]], components)
    dropped = ("default", "title", "required")
    return {key: _resolved(value, components) for key, value in part.items() if key not in dropped}
