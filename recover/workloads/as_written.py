"""What people wrote into a job beside what a recovery needs of it: limits, deadlines, grace, gates. Pure.

Each framework's file reads its own spec into an object that answers as `Written` says, for `rekindle doctor`.
What is not given is what the API server or the framework puts there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from recover.k8s.pod_specs import EnvSource, Reference, Variable

__all__ = ["Camel", "Hazard", "Limit", "PodTemplate", "Severity", "Written"]


class Severity(StrEnum):
    """What comes of it at a fault; worst first."""

    FAILS = "fails"
    """The recovery fails or is not made, or work is lost."""
    RISKS = "risks"
    """It may fail, or costs time."""
    ADVICE = "advice"


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the job that harms its recovery."""

    name: str
    severity: Severity
    what: str
    field: str
    value: str
    means: str
    """At a fault."""
    fix: str
    """A line to write, as `field: value`, or a command to run."""


class Limit(msgspec.Struct, frozen=True):
    field: str
    seconds: int | None
    """None: there is no such limit."""


class Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Toleration(Camel, frozen=True):
    key: str = ""
    operator: str = "Equal"


class TemplateMeta(Camel, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Resources(Camel, frozen=True):
    """As people write quantities: the API server makes texts of them."""

    requests: dict[str, int | float | str] = {}
    limits: dict[str, int | float | str] = {}
    claims: list[Any] = []


class Container(Camel, frozen=True):
    """Also what others read from the raw containers: here it is checked."""

    name: str = ""
    env: list[Variable] = []
    env_from: list[EnvSource] = []
    resources: Resources = Resources()


class PodSpec(Camel, frozen=True):
    containers: list[Container] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int = 30
    scheduling_gates: list[Reference] = []
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class PodTemplate(Camel, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class Written(Protocol):
    """The spec of one job."""

    @property
    def placed_late(self) -> str:
        """What may be placed on a bad node in spite of the affinity that a start brings; empty where nothing
        may."""
        ...

    def templates(self) -> Mapping[str, PodTemplate]:
        """By the names of Gang.templates."""
        ...

    def template_field(self, name: str) -> str:
        """Where the template of that name stands."""
        ...

    def ends_for_good(self, failures: int, recreate: str) -> Iterator[Hazard]:
        """What fails the job for good at a rank's end, for a job that is not made again. `failures` are
        counted already; `recreate` is how people ask that it be made again."""
        ...

    def deadlines(self) -> Sequence[Limit]:
        """How long it may run."""
        ...

    def removal(self) -> Limit:
        """How long it stays once it has ended."""
        ...
