"""Reads the fields of a training container in a pod template. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from recover.k8s.pod_specs import Resources, Variable
from recover.k8s.quantities import parse_count

__all__ = ["FIELDS", "TrainingContainer", "read_container", "requests_of", "training"]


class TrainingContainer(msgspec.Struct, frozen=True):
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    resources: Resources = Resources()


FIELDS = frozenset(TrainingContainer.__struct_fields__)
"""Names of the fields that are read of a container."""


def training(containers: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Returns the containers that request a device, or the first container if none does. Each extended
    resource counts as a device: its name contains a slash."""
    devices = [one for one in containers if any("/" in name for name in requests_of(read_container(one)))]
    return devices or list(containers[:1])


def read_container(container: Mapping[str, object]) -> TrainingContainer:
    """Reads a container. A container of a shape that the API server should refuse yields empty fields."""
    try:
        return msgspec.convert(container, TrainingContainer)
    except msgspec.ValidationError:
        return TrainingContainer()


def requests_of(container: TrainingContainer) -> dict[str, int]:
    """Returns how much a container gets of each resource; an amount that is no whole number is left out. For
    extended resources, limits replace requests."""
    quantities = {**container.resources.requests, **container.resources.limits}
    counts = {name: parse_count(str(quantity)) for name, quantity in quantities.items()}
    return {name: count for name, count in counts.items() if count is not None}
