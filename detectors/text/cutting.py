"""Text cut to so many bytes of UTF-8. Pure."""

from __future__ import annotations

__all__ = ["cut"]


def cut(text: str, bytes_max: int) -> str:
    """The longest head of `text` that fits into so many bytes of UTF-8. Replaces what cannot be encoded."""
    if text.isascii():
        return text[:bytes_max]
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode("utf-8")
    return data[:bytes_max].decode("utf-8", "ignore")
