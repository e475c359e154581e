"""Reads YAML of people's manifests, and describes its values in YAML's own words. Pure."""

from __future__ import annotations

import re
from typing import Any

import yaml

from detectors.text.strict import BadValueError

__all__ = ["NoDuplicates", "in_yaml_words"]

_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping (lines of key: value)",
    "null": "nothing",
}
_EXPECTED = re.compile(r"^expected `(\w+)`, got `(\w+)`$")
_QUOTED = frozenset({"int", "float", "bool"})
"""Types of plain YAML values that become text if they are written in quotes."""


class NoDuplicates(yaml.SafeLoader):
    """A YAML loader that refuses equal keys. PyYAML keeps the last of two equal keys, so two manifests
    without a line `---` between them would become one job."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            first = lines.get((key.tag, key.value))
            lines[key.tag, key.value] = key.start_mark.line + 1
            if first is not None:
                apart = "; a line --- must separate two objects" if node.start_mark.column == 0 else ""
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"the key {key.value!r:.60} stands twice in one mapping, first in line {first}{apart}",
                    key.start_mark,
                )
        return node


def in_yaml_words(error: BadValueError) -> BadValueError:
    """Returns the same error in words for a person who writes YAML."""
    found = _EXPECTED.match(error.expected)
    if found is None:
        return error
    wanted, got = found.groups()
    quotes = "; write the value in quotes" if wanted == "str" and got in _QUOTED else ""
    expected = f"expected {_WORDS.get(wanted, wanted)}, got {_WORDS.get(got, got)}{quotes}"
    return BadValueError(
        file=error.file, where=error.where, field=error.field, value=error.value, expected=expected
    )
