"""Text from others, before it is printed, or kept in an object that kubectl prints. Pure."""

from __future__ import annotations

__all__ = ["one_line", "printable"]


def printable(text: str) -> str:
    """Log text may hold control codes that would steer the reader's terminal."""
    return "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text.replace("\t", "    ")
    )


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))
