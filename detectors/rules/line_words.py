"""Caches the results of searches in lines by the words of a line. Pure.

Rules search for hundreds of literals in each line of each container, and a log repeats itself: its lines
differ in their numbers and in little else. So one search serves all lines that are the same without digits.

No match is missed. If a literal is in a line, then the literal without its digits is in the line without its
digits, since both leave out the same characters. A result means that the literal may be in the line; the
caller then searches the line itself, including digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["REMEMBERED_CHARS_MAX", "by_words", "without_digits"]

T = TypeVar("T")

REMEMBERED_CHARS_MAX = 512
"""Length of lines that are cached. A longer line is searched each time, so that the cache stays small."""
_REMEMBERED_MAX = 512
_DIGITS = b"0123456789"


def without_digits(text: str) -> str:
    """
    >>> without_digits("status=12 of rank 7")
    'status= of rank '
    """
    return _words(text).decode("utf-8", "surrogatepass")


def by_words(search: Callable[[str], T]) -> Callable[[str], T]:
    """Wraps `search`. `search` gets a line without its digits, and is called once for all lines that are the
    same without digits."""

    memory: dict[bytes, T] = {}

    def found(line: str) -> T:
        words = _words(line)
        if words in memory:
            return memory[words]
        told = search(words.decode("utf-8", "surrogatepass"))
        if len(line) <= REMEMBERED_CHARS_MAX:
            if len(memory) >= _REMEMBERED_MAX:
                memory.clear()  # cheaper than dropping the oldest if every line is new
            memory[words] = told
        return told

    return found


def _words(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, _DIGITS)
