"""YAML of people's manifests, and its values in YAML's own words. Pure."""

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
"""Plain words of YAML that become text in quotes."""


class NoDuplicates(yaml.SafeLoader):
    """YAML keeps the last of two equal keys, so two manifests that no `---` separates become one job."""

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
    """The same error for a person who writes YAML."""
    found = _EXPECTED.match(error.expected)
    if found is None:
        return error
    wanted, got = found.groups()
    quotes = "; write the value in quotes" if wanted == "str" and got in _QUOTED else ""
    expected = f"expected {_WORDS.get(wanted, wanted)}, got {_WORDS.get(got, got)}{quotes}"
    return BadValueError(
        file=error.file, where=error.where, field=error.field, value=error.value, expected=expected
    )
