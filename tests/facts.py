"""What a text must carry whatever its words are: names, numbers and commands. For tests of messages."""

from __future__ import annotations

import re

__all__ = ["names"]


def names(text: str, *facts: object) -> bool:
    """Whether each of the facts stands in the text, none of them as a part of a longer name or number."""
    return all(re.search(rf"(?<![\w.-]){re.escape(str(fact))}(?!\w|[.-]\w)", text) for fact in facts)
