"""Reads the parts of a job's manifest that matter for a recovery and that the Gang does not contain: limits,
deadlines, grace, gates. Pure.

Each framework's file reads its own spec into an object that implements `Written`, for `rekindle doctor`. A
missing field has the default of the API server or the framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from recover.k8s.pod_specs import EnvSource, Reference, Variable
from recover.model import Gang

__all__ = ["Camel", "Hazard", "Limit", "PodTemplate", "Severity", "Written", "restarting"]


class Severity(StrEnum):
    """The effect at a fault; the worst comes first."""

    FAILS = "fails"
    """The recovery fails or is not made, or work is lost."""
    RISKS = "risks"
    """The recovery may fail, or costs time."""
    ADVICE = "advice"


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the job that harms its recovery."""

    name: str
    severity: Severity
    what: str
    field: str
    value: str
    means: str
    """Consequence of the field at a fault."""
    fix: str
    """A line to write, in the form `field: value`, or a command to run."""


class Limit(msgspec.Struct, frozen=True):
    field: str
    seconds: int | None
    """Limit that the field sets; None if there is no such limit."""


def restarting(ranks: int) -> str:
    """Returns a clause for people that says how many containers the kubelet restarts in their pods when one
    rank fails. The other ranks usually lose the connection to that rank, and fail too."""
    if ranks < 2:
        return "its container restarts"
    return f"the other ranks usually fail too, so {ranks} containers restart"


class Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Toleration(Camel, frozen=True):
    key: str = ""
    operator: str = "Equal"


class TemplateMeta(Camel, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Resources(Camel, frozen=True):
    """Quantities as people write them; the API server converts them to texts."""

    requests: dict[str, int | float | str] = {}
    limits: dict[str, int | float | str] = {}
    claims: list[Any] = []


class Container(Camel, frozen=True):
    """A container as people wrote it. Other readers take some of these fields from the raw container; this
    struct checks their types."""

    name: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    env_from: list[EnvSource] = []
    resources: Resources = Resources()


class PodSpec(Camel, frozen=True):
    containers: list[Container] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int = 30
    scheduling_gates: list[Reference] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class PodTemplate(Camel, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class Written(Protocol):
    """The spec of one job."""

    @property
    def placed_late(self) -> str:
        """The pods that may be placed on a bad node in spite of the affinity that a start adds, as a clause;
        empty if there are none."""
        ...

    @property
    def elastic_field(self) -> str:
        """The field by which the job trains with fewer ranks; empty if its kind has no such field."""
        ...

    def templates(self) -> Mapping[str, PodTemplate]:
        """Returns the templates by the names of Gang.templates."""
        ...

    def template_field(self, name: str) -> str:
        """Returns the path of the template of that name."""
        ...

    def ends_for_good(self, gang: Gang, recreate: str) -> Iterator[Hazard]:
        """Yields the fields by which a rank's end makes the job fail permanently, for a job that is not
        created again. `gang` has the number of ranks and of counted failures; `recreate` is the way in which
        people ask Rekindle to create the job again."""
        ...

    def deadlines(self) -> Sequence[Limit]:
        """Returns how long the job may run."""
        ...

    def removal(self) -> Limit:
        """Returns how long the job stays after it has ended."""
        ...
