"""Facts that a text must carry for its reader: names, numbers, durations, commands. Its other words are free:
tests/golden holds them."""

import re
from collections.abc import Sequence

__all__ = ["each_names", "missing", "names"]


def names(text: str, *facts: object) -> bool:
    """Whether the text names all of them."""
    return not missing(text, *facts)


def missing(text: str, *facts: object) -> list[str]:
    """The facts that the text does not name. A fact is named as a whole: `node-3` is not in `node-31`, and
    `4` is not in `4.5`."""
    return [str(fact) for fact in facts if not re.search(_whole(str(fact)), text)]


def each_names(lines: Sequence[str], *facts: Sequence[str | int]) -> bool:
    """Whether there is one line for each group of facts, in that order, which names all of the group."""
    return len(lines) == len(facts) and not any(
        missing(line, *row) for line, row in zip(lines, facts, strict=True)
    )


def _whole(fact: str) -> str:
    return rf"(?<![\w-])(?<!\d\.){re.escape(fact)}(?![\w-])(?!\.\d)"
