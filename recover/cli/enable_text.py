"""Writes a change of YAML documents into the text that a person wrote, so that all else stays as it is. Pure.

PyYAML's own parser names the places at which text is added. The added text has the style of its surroundings,
YAML or JSON. The result is parsed again, and is used only if it equals the wanted documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

__all__ = ["rewritten"]

_NEVER_WRAP = 1_000_000


class _Edit(msgspec.Struct, frozen=True, order=True):
    """A replacement of the characters from start to end by `text`."""

    start: int
    end: int
    text: str


def rewritten(text: str, wanted: Sequence[Any]) -> str | None:
    """Returns the text with the changes that make it equal the wanted documents; None if the changes cannot
    be written into the text.

    A change adds keys to a mapping, adds items at the end of a list, or replaces a scalar or an empty value.
    """
    now = list(yaml.safe_load_all(text))
    nodes = list(yaml.compose_all(text, yaml.SafeLoader))
    # An alias repeats one node of the YAML tree; the set writes its change only once.
    edits = {
        e for node, old, new in zip(nodes, now, wanted, strict=True) for e in _edits(text, node, old, new)
    }
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    try:
        return text if list(yaml.safe_load_all(text)) == list(wanted) else None
    except yaml.YAMLError:
        return None


def _edits(text: str, node: Any, old: Any, new: Any) -> Iterator[_Edit]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and old:
        for key, inner in node.value:
            if key.value in old and key.value in new:
                yield from _edits(text, inner, old[key.value], new[key.value])
        added = {key: value for key, value in new.items() if key not in old}
        if added:
            yield _with_keys(text, node, added)
    elif isinstance(old, list) and isinstance(new, list) and old:
        for inner, before, after in zip(node.value, old, new, strict=False):
            yield from _edits(text, inner, before, after)
        if len(new) > len(old):
            yield _with_items(text, node, new[len(old) :])
    else:
        start, end = node.start_mark.index, node.end_mark.index
        yield _Edit(start, end, json.dumps(new) if end > start else f" {json.dumps(new)}")


def _with_keys(text: str, node: yaml.MappingNode, added: dict[str, Any]) -> _Edit:
    """Adds the keys. In block style they come below the key `name`, if there is one; in all other cases
    before the first key."""
    if node.flow_style:
        start = text.index("{", node.start_mark.index) + 1
        return _Edit(start, start, f"{json.dumps(added)[1:-1]}, ")
    mark = node.value[0][0].start_mark
    lines = _lines(added, mark.column)
    name = next((value for key, value in node.value if key.value == "name"), None)
    if isinstance(name, yaml.ScalarNode) and name.start_mark.line == name.end_mark.line:
        return _below(text, name, lines)
    newline = _newline(text)
    block = newline.join([*lines, " " * mark.column])
    return _Edit(mark.index, mark.index, block[mark.column :])


def _with_items(text: str, node: yaml.SequenceNode, added: list[Any]) -> _Edit:
    if node.flow_style:
        end = node.value[-1].end_mark.index
        return _Edit(end, end, f", {json.dumps(added)[1:-1]}")
    return _below(text, _last(node), _lines(added, node.start_mark.column))


def _last(node: yaml.Node) -> yaml.Node:
    """Returns the last part of the node that has its own end: a block ends only where the next block
    begins."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _lines(added: Any, column: int) -> list[str]:
    block = yaml.safe_dump(added, sort_keys=False, allow_unicode=True, width=_NEVER_WRAP)
    return [" " * column + line for line in block.splitlines()]


def _below(text: str, node: yaml.Node, lines: list[str]) -> _Edit:
    """Inserts the lines after the line on which the node ends, and so after a comment on that line."""
    newline = _newline(text)
    end = text.find(newline, node.end_mark.index)
    end = len(text) if end < 0 else end
    return _Edit(end, end, "".join(f"{newline}{line}" for line in lines))


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
