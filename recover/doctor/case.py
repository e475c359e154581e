"""Model of a job before it fails, and of the findings of a check. Pure.

look.py and manifest.py make a Case, checks.py has the table of checks, and report.py puts their findings in
order. The folder installation/ has its own model, reader and checks, which also yield Findings.
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
from recover.policy.consent import AUTO_RECOVERY
from recover.policy.settings import Timing
from recover.stories.annotations import misreadings
from recover.stories.keys import Form, On, keys_of
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
"""Reason why a check was not made for a manifest."""
NOT_ANSWERED = "the API server failed to answer"
"""First words of the reason why a check was not made although the cluster has the answer."""


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
    """Consequence at a fault."""
    fix: str
    """A line to write, as `field: value`, or a command to run."""


class Part(StrEnum):
    """Data that a check may need in addition to the job itself."""

    MODE = "mode"
    NAMESPACE = "namespace"
    NODES = "nodes"
    HEALTH = "health"
    RUNNING = "running"
    """Running pods of the job."""
    CLAIM = "claim"
    """Volume claim with the job's checkpoints."""


class Misplaced(msgspec.Struct, frozen=True):
    """An annotation of a pod template that has an effect only on the job."""

    field: str
    """Field of the pod template."""
    fix: str


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One job and its surroundings. `unread` has the reason for each part that could not be read."""

    gang: Gang
    spec: Written
    recipes: Mapping[str, Recipe]
    now: datetime
    timing: Timing = Timing()
    """Time limits of the default settings: a check of a job does not read the controller's settings."""
    is_file: bool = False
    file: str = ""
    """Name of the manifest file, as the person gave it."""
    misspelt: Mapping[str, str] = {}
    """Fields of the manifest that Kubernetes does not know, each with the field that the person probably
    meant."""
    generate_name: str = ""
    """Beginning of the job's name, if the API server will generate the name."""
    mode: Mode = Mode.OBSERVE
    mode_kept_in: str = ""
    """`namespace/name` of the ConfigMap in which the controller records the mode."""
    modes: Modes | None = None
    """Modes of the cluster, its pools and namespaces; None if they are not known."""
    namespace: NamespaceView | None = None
    nodes: Mapping[str, Node] = {}
    health: Mapping[str, NodeHealth] = {}
    pods: tuple[Pod, ...] = ()
    """Pods that have not ended."""
    claim: str = ""
    """`namespace/name` of the volume claim with the checkpoints. It has no meaning while `unread` has
    Part.CLAIM, for example because the checkpoints are not on a claim."""
    access_modes: tuple[str, ...] | None = ()
    """Access modes of the claim; None if the claim does not exist."""
    sharers: tuple[str, ...] = ()
    """Other jobs of the same manifests that have the same folder of checkpoints."""
    adds_environment: bool | None = None
    """Whether the cluster has the policy that lets new pods read the environment; None if that is not
    known."""
    unread: Mapping[Part, str] = {}

    def misnamed(self, name: str) -> str:
        """Returns how to correct a label or annotation of the job that was probably meant as `name`, and has
        another name or place; empty if there is none."""
        written = misreadings(On.JOB, self.gang.labels, self.gang.annotations)
        named = next((one.fix for one in written if one.meant and one.meant == name), "")
        placed = self.misplaced.get(name)
        return named or (placed.fix if placed is not None else "")

    @property
    def misplaced(self) -> dict[str, Misplaced]:
        """Returns the annotations that Rekindle reads on a job, and that only a pod template has, by name.
        Consent is left out: the policy that adds the environment reads it on the pod template."""
        keys = {one.name for one in keys_of(On.JOB, Form.ANNOTATION)}
        return {
            name: Misplaced(field, f"move it to the job: {self.set_annotation(name, value)}")
            for field, template in self.templates
            for name, value in template.metadata.annotations.items()
            if name in keys - {AUTO_RECOVERY} and name not in self.gang.annotations
        }

    def at(self, field: str, value: str = "") -> Place:
        return Place(self.called, field, value)

    def found(self, hazard: Hazard) -> Finding:
        """Returns the finding for a hazard that the framework's adapter reports about a field of the job."""
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
        """Returns each pod template with the name of its field."""
        named = self.spec.templates().items()
        return [(self.spec.template_field(name), template) for name, template in named]

    def set_annotation(self, name: str, value: str) -> str:
        """Returns the line to write into the manifest, or the command for a job that exists."""
        if self.is_file:
            return f'metadata.annotations: {{{name}: "{value}"}}'
        return f"kubectl annotate {self.target} {shlex.quote(f'{name}={value}')} --overwrite"

    @property
    def called(self) -> str:
        """Returns the job's name for people."""
        return f"{self.gang.ref}{self.generate_name}"

    @property
    def target(self) -> str:
        """Returns the arguments that name the job for kubectl."""
        ref = self.gang.ref
        return f"{ref.kind.lower()} -n {ref.namespace} {ref.name}"


class Check(msgspec.Struct, Generic[C], frozen=True):
    """One check of a job or of an installation."""

    name: str
    passed: str
    """Sentence about the state in which the check finds nothing."""
    find: Callable[[C], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    """Parts that the check needs. The check is not made if one of these parts could not be read."""
