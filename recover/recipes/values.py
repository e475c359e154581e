"""Versions, and the facts that a recipe can compare. detectors/text/sizes.py has amounts of memory, and
recover/k8s/quantities.py has counts."""

from __future__ import annotations

from enum import Enum

import msgspec

from recover.k8s.quantities import DIGITS_MAX

__all__ = ["FACTS", "Fact", "Measure", "facts_of_labels", "parse_version"]


class Measure(Enum):
    VERSION = "a version"
    SIZE = "an amount of memory"


class Fact(msgspec.Struct, frozen=True):
    measure: Measure
    meaning: str


FACTS = {
    "cuda.driver": Fact(Measure.VERSION, "newest CUDA version that the node's driver supports"),
    "cuda.runtime": Fact(Measure.VERSION, "CUDA version of the image"),
    "vgpu.baseline": Fact(Measure.VERSION, "CUDA version for which the GPU-sharing layer was built"),
    "gpu.compute": Fact(Measure.VERSION, "compute capability of the node's GPUs"),
    "gpu.memory.free": Fact(Measure.SIZE, "device memory that was free when the process ended"),
}
"""Facts that a comparison can name, in addition to captured values."""

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
    """Returns the facts that a node's labels show."""
    facts: dict[str, str] = {}
    for fact, pairs in _LABELS.items():
        for major, minor in pairs:
            if fact not in facts and major in labels and minor in labels:
                facts[fact] = f"{labels[major]}.{labels[minor]}"
    return facts


def parse_version(text: str) -> tuple[int, ...] | None:
    """Returns the numbers of a version such as `12.4` or `v12.4.1`, without trailing zeros, so that 12 and
    12.0 are equal; None if the text is no version."""
    parts = text.strip().removeprefix("v").split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= DIGITS_MAX for part in parts):
        return None
    numbers = [int(part) for part in parts]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
