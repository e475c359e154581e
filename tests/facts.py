"""Finds the facts that a text must have for its reader: names, numbers, durations, commands. These tests
do not fix the other words of the text; tests/golden does."""

import re
from collections.abc import Sequence

__all__ = ["each_names", "missing", "names"]


def names(text: str, *facts: object) -> bool:
    """Whether the text contains all of these facts."""
    return not missing(text, *facts)


def missing(text: str, *facts: object) -> list[str]:
    """Returns the facts that the text does not contain. A fact must occur as a whole: `node-3` is not in
    `node-31`, and `4` is not in `4.5`."""
    return [str(fact) for fact in facts if not re.search(_whole(str(fact)), text)]


def each_names(lines: Sequence[str], *facts: Sequence[str | int]) -> bool:
    """Whether there is one line for each group of facts, in this order, and each line contains its whole
    group."""
    return len(lines) == len(facts) and not any(
        missing(line, *row) for line, row in zip(lines, facts, strict=True)
    )


def _whole(fact: str) -> str:
    return rf"(?<![\w-])(?<!\d\.){re.escape(fact)}(?![\w-])(?!\.\d)"
