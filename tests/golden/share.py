"""Computes which share of the product's sentences the golden files show with their values in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tests.golden.templates import parts_of

__all__ = ["shown"]

_BETWEEN = "[^\0]{0,600}?"
"""Pattern of one value, with the maximum length of its text."""
_WRAPPED = (".yaml", ".md", "commands.txt")
"""Files whose lines may be wrapped at any place."""


def shown(templates: Iterable[str], texts: Mapping[str, str]) -> dict[str, bool]:
    """Returns for each template whether its literal parts are in one of the texts, in their order, on one
    line."""
    everything = "\0".join(_lines(name, text) for name, text in texts.items())
    return {template: _is_in(template, everything) for template in templates}


def _lines(name: str, text: str) -> str:
    if name.endswith(_WRAPPED):
        return re.sub(r"\s+", " ", text)
    return "\0".join(re.sub(r"\s+", " ", line) for line in text.replace("\\n", "\n").splitlines())


def _is_in(template: str, everything: str) -> bool:
    parts = [re.sub(r"\s+", " ", _plain(part)).strip() for part in parts_of(template)]
    parts = [part for part in parts if part]
    if not parts or max(parts, key=len) not in everything:
        return False
    return re.search(_BETWEEN.join(map(re.escape, parts)), everything) is not None


def _plain(part: str) -> str:
    return part.replace("\0", "{").replace("\1", "}")
