"""Versions, amounts of memory, and the facts that a recipe can compare. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = [
    "FACTS",
    "Fact",
    "Measure",
    "facts_of_labels",
    "parse_count",
    "parse_size",
    "parse_version",
    "size_chars",
]

_UNITS: dict[str, int] = {
    unit: 1024**power
    for power, units in enumerate(("b", "k kb kib", "m mb mib", "g gb gib", "t tb tib"))
    for unit in units.split()
}
"""All are binary: Paddle and CUDA's tools write MB for 2**20 bytes."""

_COUNT_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_DIGITS_MAX = 15


class Measure(Enum):
    VERSION = "a version"
    SIZE = "an amount of memory"


class Fact(msgspec.Struct, frozen=True):
    measure: Measure
    meaning: str


FACTS = {
    "cuda.driver": Fact(Measure.VERSION, "newest CUDA version that the node's driver supports"),
    "cuda.runtime": Fact(Measure.VERSION, "CUDA version of the image"),
    "vgpu.baseline": Fact(Measure.VERSION, "CUDA version that the GPU-sharing layer was built for"),
    "gpu.compute": Fact(Measure.VERSION, "compute capability of the node's GPUs"),
    "gpu.memory.free": Fact(Measure.SIZE, "device memory that was free when the process ended"),
}
"""What a comparison can name besides captured values."""

# NVIDIA's feature discovery calls the CUDA version of the driver "cuda.runtime"; its "cuda.driver" is the
# driver's own version, such as 550.54.
_LABELS = {
    "cuda.driver": (
        ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"),
        ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
        ("cuda-major-version", "cuda-minor-version"),
    ),
    "gpu.compute": (("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"),),
}


def facts_of_labels(labels: dict[str, str]) -> dict[str, str]:
    """The facts that a node's labels tell."""
    facts: dict[str, str] = {}
    for fact, pairs in _LABELS.items():
        for major, minor in pairs:
            if fact not in facts and major in labels and minor in labels:
                facts[fact] = f"{labels[major]}.{labels[minor]}"
    return facts


def parse_version(text: str) -> tuple[int, ...] | None:
    """`12.4` and `v12.4.1`; without trailing zeros, so that 12 and 12.0 are equal."""
    parts = text.strip().removeprefix("v").split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX for part in parts):
        return None
    numbers = [int(part) for part in parts]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def parse_size(text: str) -> float | None:
    """Bytes of `25.5MB` or `16 GiB`."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = _UNITS.get(text.strip()[len(number) :].strip().lower())
    whole, _, part = number.partition(".")
    digits = whole + part
    if unit is None or not (
        whole and digits.isascii() and digits.isdigit() and len(digits) <= 2 * _DIGITS_MAX
    ):
        return None
    return float(number) * unit


def size_chars(after: str) -> int:
    """How many characters of the text behind a number are its unit, with the space before it; 0 for none."""
    space = 1 if after.startswith(" ") else 0
    for length in (3, 2, 1):
        unit = after[space : space + length]
        if len(unit) == length and unit in _UNITS and not after[space + length :][:1].isalnum():
            return space + length
    return 0


def parse_count(text: str) -> int | None:
    """How much of an extended resource is requested; these come in whole numbers (`30`, `1k`)."""
    number = text.rstrip("kKMGi")
    factor = _COUNT_SUFFIXES.get(text[len(number) :], 1 if number == text else 0)
    if not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX and factor):
        return None
    return int(number) * factor
