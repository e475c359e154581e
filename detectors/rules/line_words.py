"""What is looked for in a line, remembered by the line's words. Pure.

Rules look for hundreds of literals in each line of each container, and a log repeats itself: its lines differ
in their numbers and in little else. So a search is made once for all lines that are the same without digits.

That hides nothing. Where a literal stands in a line, the literal without its digits stands in the line
without its digits, since both leave out the same characters. What is found so may be in the line; whoever
asks looks for it there, digits and all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["REMEMBERED_CHARS_MAX", "by_words", "without_digits"]

T = TypeVar("T")

REMEMBERED_CHARS_MAX = 512
"""A longer line is searched each time, so that little is kept."""
_REMEMBERED_MAX = 512
_DIGITS = b"0123456789"


def without_digits(text: str) -> str:
    """
    >>> without_digits("status=12 of rank 7")
    'status= of rank '
    """
    return _words(text).decode("utf-8", "surrogatepass")


def by_words(search: Callable[[str], T]) -> Callable[[str], T]:
    """`search`, which gets a line without its digits, and is asked once for all that are the same so."""

    memory: dict[bytes, T] = {}

    def found(line: str) -> T:
        words = _words(line)
        if words in memory:
            return memory[words]
        told = search(words.decode("utf-8", "surrogatepass"))
        if len(line) <= REMEMBERED_CHARS_MAX:
            if len(memory) >= _REMEMBERED_MAX:
                memory.clear()  # cheaper than to drop the oldest, where every line is a new one
            memory[words] = told
        return told

    return found


def _words(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, _DIGITS)
