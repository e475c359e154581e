"""Parses amounts of memory as programs print them: `25.5MB`, `16 GiB`. Pure."""

from __future__ import annotations

__all__ = ["parse_size", "size_chars", "size_words"]

_UNITS: dict[str, int] = {
    unit: 1024**power
    for power, units in enumerate(("b", "k kb kib", "m mb mib", "g gb gib", "t tb tib"))
    for unit in units.split()
}
"""All units are binary: Paddle and CUDA's tools write MB for 2**20 bytes."""

_DIGITS_MAX = 15


def parse_size(text: str) -> float | None:
    """Returns the bytes of `25.5MB` or `16 GiB`; None if the text is no size."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = _UNITS.get(text.strip()[len(number) :].strip().lower())
    whole, _, part = number.partition(".")
    digits = whole + part
    if unit is None or not (
        whole and digits.isascii() and digits.isdigit() and len(digits) <= 2 * _DIGITS_MAX
    ):
        return None
    return float(number) * unit


def size_words(count: int) -> str:
    """Returns `512 B`, `1.5 GiB` or `120 TiB`: the largest unit of which there is at least one after
    rounding, with one decimal below ten."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if round(amount) < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}" if unit != "B" and amount < 10 else f"{amount:.0f} {unit}"


def size_chars(after: str) -> int:
    """Returns the number of characters after a number that are its unit, including the space before it; 0 for
    none."""
    space = 1 if after.startswith(" ") else 0
    for length in (3, 2, 1):
        unit = after[space : space + length]
        if len(unit) == length and unit in _UNITS and not after[space + length :][:1].isalnum():
            return space + length
    return 0
