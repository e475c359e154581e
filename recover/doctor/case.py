"""What is known of a job before it fails, and what a check finds. Pure.

look.py and manifests make a Case; checks.py has the table of checks; report.py puts their findings in order.
The installation has a model, a look and checks of its own, with the same findings.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from detectors.wire.contract import NodeHealth
from recover.api.recipe_spec import Recipe
from recover.model import Gang, NamespaceView, Node, Pod
from recover.model.modes import Mode, Modes
from recover.policy.settings import Timing
from recover.stories.annotations import misreadings
from recover.stories.keys import On
from recover.workloads.as_written import Hazard, PodTemplate, Severity, Written

__all__ = [
    "NOT_ALLOWED",
    "NOT_ANSWERED",
    "NO_CLUSTER",
    "Case",
    "Check",
    "Finding",
    "Part",
    "Place",
    "Severity",
]


C = TypeVar("C")

NOT_ALLOWED = "you have no permission to"
NO_CLUSTER = "this command read a file, not a cluster"
"""Why a check of a manifest was not made."""
NOT_ANSWERED = "the API server failed to answer"
"""How the reason begins why a check was not made, where the cluster would have told."""


class Place(msgspec.Struct, frozen=True):
    object: str
    field: str
    value: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    severity: Severity
    what: str
    where: Place
    means: str
    """At a fault."""
    fix: str
    """A line to write, as `field: value`, or a command to run."""


class Part(StrEnum):
    """What a check may need beside the job itself."""

    MODE = "mode"
    NAMESPACE = "namespace"
    NODES = "nodes"
    HEALTH = "health"
    RUNNING = "running"
    """Pods of the job that run."""
    CLAIM = "claim"
    """The volume claim that its checkpoints lie on."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One job and what could be read around it. What could not has its reason in `unread`."""

    gang: Gang
    spec: Written
    recipes: Mapping[str, Recipe]
    now: datetime
    timing: Timing = Timing()
    """The controller's own settings are not to be read from outside: these are the shipped ones."""
    is_file: bool = False
    file: str = ""
    """Of the manifest, as it was named."""
    misspelt: Mapping[str, str] = {}
    """Fields of the manifest that Kubernetes does not know, and the field that is probably meant."""
    generate_name: str = ""
    """Where the API server has yet to make its name: what that will begin with."""
    mode: Mode = Mode.OBSERVE
    mode_kept_in: str = ""
    modes: Modes | None = None
    """Those of pools and namespaces, too; None where they are not known."""
    namespace: NamespaceView | None = None
    nodes: Mapping[str, Node] = {}
    health: Mapping[str, NodeHealth] = {}
    pods: tuple[Pod, ...] = ()
    """Those that have not ended."""
    claim: str = ""
    """`namespace/name` of the volume claim that its checkpoints lie on; empty where they lie on none."""
    access_modes: tuple[str, ...] | None = ()
    """Of that claim; None where it is not there."""
    adds_environment: bool | None = None
    """The policy that lets new pods read the environment is there; None where that is not known."""
    unread: Mapping[Part, str] = {}

    def misnamed(self, name: str) -> str:
        """How to correct a label or annotation of the job that was probably meant as this one, and has
        another name or place; empty if there is none."""
        written = misreadings(On.JOB, self.gang.labels, self.gang.annotations)
        return next((one.fix for one in written if one.meant and one.meant == name), "")

    def at(self, field: str, value: str = "") -> Place:
        return Place(self.called, field, value)

    def found(self, hazard: Hazard) -> Finding:
        """What the framework knows of a field of the job."""
        return Finding(
            name=hazard.name,
            severity=hazard.severity,
            what=hazard.what,
            where=self.at(hazard.field, hazard.value),
            means=hazard.means,
            fix=hazard.fix,
        )

    @property
    def templates(self) -> list[tuple[str, PodTemplate]]:
        """Each pod template, and the field in which it stands."""
        named = self.spec.templates().items()
        return [(self.spec.template_field(name), template) for name, template in named]

    def set_annotation(self, name: str, value: str) -> str:
        """The line to write, or for a job that is there already the command."""
        if self.is_file:
            return f'metadata.annotations: {{{name}: "{value}"}}'
        return f"kubectl annotate {self.target} {shlex.quote(f'{name}={value}')} --overwrite"

    @property
    def called(self) -> str:
        """The job for people."""
        return f"{self.gang.ref}{self.generate_name}"

    @property
    def target(self) -> str:
        """The job for kubectl."""
        ref = self.gang.ref
        return f"{ref.kind.lower()} -n {ref.namespace} {ref.name}"


class Check(msgspec.Struct, Generic[C], frozen=True):
    """Of a job, or of an installation."""

    name: str
    passed: str
    """What is so where it finds nothing."""
    find: Callable[[C], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    """Parts: it is not made where one of them could not be read."""
