"""Cuts text to a number of bytes of UTF-8. Pure."""

from __future__ import annotations

__all__ = ["cut"]


def cut(text: str, bytes_max: int) -> str:
    """Returns the longest head of `text` that fits into `bytes_max` bytes of UTF-8. Characters that cannot be
    encoded are replaced."""
    if text.isascii():
        return text[:bytes_max]
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode("utf-8")
    return data[:bytes_max].decode("utf-8", "ignore")
