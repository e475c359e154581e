"""Parses amounts of extended resources, as the API writes them. Pure."""

from __future__ import annotations

__all__ = ["DIGITS_MAX", "parse_count"]

_COUNT_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

DIGITS_MAX = 15


def parse_count(text: str) -> int | None:
    """Returns the requested amount of an extended resource, a whole number (`30`, `1k`). None if the text is
    no such number."""
    number = text.rstrip("kKMGi")
    factor = _COUNT_SUFFIXES.get(text[len(number) :], 1 if number == text else 0)
    if not (number.isascii() and number.isdigit() and len(number) <= DIGITS_MAX and factor):
        return None
    return int(number) * factor
