"""Defines what a framework's adapter must offer, and how its job becomes a Gang. Adapters only return writes.

Each framework has one file; WORKLOADS in __init__ is the registration. model/job_views.py reads what the jobs
have in common, and patches.py makes what their stops and starts have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from detectors.wire.resource import Resource
from detectors.wire.sane import sane
from recover.api import GangRef
from recover.api.recipe_spec import Framework
from recover.k8s.json_patch import path_of
from recover.k8s.pod_specs import ConditionView, OwnedMeta, PodSpec
from recover.model import Gang, Mark, Terminal
from recover.model.actions import Patch
from recover.model.job_views import template_of
from recover.policy.consent import WORDS, may_recreate
from recover.workloads.as_written import Written
from recover.workloads.patches import mark_of

__all__ = ["KUEUE_QUEUE", "Operator", "StopsAtOnce", "Workload", "gang_of", "outline_of"]

_OWN_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences")
_WORD_CHARS_MAX = 256
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
_VERBS = ("get", "list", "watch", "create", "patch", "delete")


class Operator(msgspec.Struct, frozen=True):
    """The framework's controller, which runs the jobs of a kind."""

    name: str
    deployment: str
    """The usual name of its Deployment."""


class Workload(Protocol):
    """One framework. Its file answers all questions of the other rooms about the framework; a class that
    inherits from this one takes the defaults. `parse` raises msgspec.MsgspecError for a malformed object."""

    resource: Resource
    operator: Operator | None = None
    """The framework's controller; None if Kubernetes itself runs the jobs."""
    framework: Framework | None = None
    """The training framework in the pods, if the kind alone shows it."""
    patches_status: bool = False
    """Whether the stop or the start changes the job's status."""
    makes_jobs: bool = False
    """Whether the job's pods are those of batch/v1 Jobs that the framework creates."""
    start_brings_environment: bool = False
    """Whether the patch that starts a gang may add the source of its environment. Otherwise only a new object
    of the job can have this source."""
    delays_starts: bool
    """Whether the framework keeps its Failed pods, counts them, and delays new pods because of them."""
    reuses_names: bool
    """Whether new pods take the names of the old pods. The old pods must then be gone, not only ended, before
    the start. The stop also deletes pods that have ended."""
    pod_label: str
    """Label that each pod of the job carries, with the job's name as value."""
    stops_at_once: bool
    """Whether nothing is `unfinished` after the patches of `stop`."""

    @property
    def pod_templates(self) -> tuple[str, ...]:
        """The path of the pod templates in the job; * is each element of a list or a mapping."""
        ...

    @property
    def permissions(self) -> frozenset[tuple[str, str]]:
        """The permissions that the controller needs: verb, and resource with subresource."""
        of_status = [("patch", f"{self.resource.plural}/status")] if self.patches_status else []
        return frozenset([*((verb, self.resource.plural) for verb in _VERBS), *of_status])

    def parse(self, raw: bytes) -> Gang: ...

    def written(self, job: Mapping[str, Any], file: str, where: str) -> Written:
        """Reads the job as its owner wrote it, for a job that `parse` can read. `file` and `where` are for
        messages. Raises detectors.text.strict.BadValueError."""
        ...

    def suspending(self, on: bool) -> dict[str, Any]:
        """Returns the part of the spec that suspends the job or ends the suspension."""
        return {"suspend": on}

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        """Returns the patches that end every pod in a way that no status counts; the first patch carries the
        mark."""
        ...

    def unfinished(self, gang: Gang) -> list[Patch]:
        """Returns the patches that a stop still needs once its mark is on the job. Each reconcile calls this,
        and it returns nothing once the stop is complete."""
        ...

    def startable(self, gang: Gang, parts: Sequence[Gang]) -> bool:
        """Whether the framework's controller has finished what the stop caused, so that `start` may be
        sent. `parts` are the batch/v1 Jobs that the framework has created for the gang; empty for a framework
        that creates none."""
        ...

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        """Returns the patches that start the stopped gang on nodes that the mark does not avoid; the last
        patch carries the mark. If no patch carries the mark, these patches must come first, and the caller
        calls `start` again."""
        ...

    def lift(self, gang: Gang) -> list[Patch]:
        """Removes what our last start has put into the job, as far as the framework accepts that now. It is
        called again until nothing is left; the next start removes what could not be removed before."""
        ...

    def recreated(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        """Returns the object to create in place of the gang's job. It runs on nodes that the mark does not
        avoid."""
        ...


class StopsAtOnce:
    """A framework whose stop is one patch. After it, only the end of the pods has to be awaited."""

    stops_at_once = True

    def unfinished(self, gang: Gang) -> list[Patch]:
        return []

    def startable(self, gang: Gang, parts: Sequence[Gang]) -> bool:
        return True


def foreign_owner(meta: OwnedMeta) -> str:
    """Returns the other owner that decides when this job runs; empty if there is none. An older Kueue reads
    the annotation, too."""
    queue = meta.labels.get(KUEUE_QUEUE, meta.annotations.get(KUEUE_QUEUE))
    if queue is not None:
        return f"Kueue (queue {queue})"
    owner = meta.controller
    return f"{owner.kind} {owner.name}" if owner is not None else ""


def gang_of(
    raw: bytes,
    meta: OwnedMeta,
    resource: Resource,
    *,
    suspended: bool,
    terminal: Terminal | None,
    size: int,
    templates: Mapping[str, tuple[PodSpec, int]],
    conditions: Sequence[ConditionView],
    failures: int = 0,
    done_ranks: str = "",
    tests: Mapping[str, object] | None = None,
) -> Gang:
    """Returns the Gang of a job from the fields of its framework. Each template comes with the number of pods
    that are created from it. `tests` contains the fields of the job's status that decisions read, if a patch
    may test them in place of the version."""
    held = next((one for one in conditions if one.type == "Suspended"), None)
    is_resuming = not suspended and held is not None and held.status == "True"
    return Gang(
        ref=_ref(meta, resource),
        resource=resource,
        version=meta.resource_version,
        labels=meta.labels,
        annotations=meta.annotations,
        created=meta.creation_timestamp,
        deleting=meta.deletion_timestamp is not None,
        suspended=suspended,
        suspend_writer=meta.suspend_writer,
        is_resuming=is_resuming,
        resumed_at=sane(held.changed_at) if held is not None and held.status == "False" else None,
        terminal=terminal,
        failures=failures,
        done_ranks=done_ranks,
        size=size,
        foreign_owner=foreign_owner(meta),
        mark=mark_of(meta.annotations),
        templates={name: template_of(spec, count) for name, (spec, count) in templates.items()},
        tests={**_tests(meta), **tests} if tests is not None and _is_testable(meta, is_resuming) else {},
        definition=_definition(raw, resource) if may_recreate(meta.annotations) else b"",
    )


def _is_testable(meta: OwnedMeta, is_resuming: bool) -> bool:
    """Whether a patch may test fields of the job in place of its version. The generation shows each change of
    the spec. A job with owners needs the version, since owners have more fields than the cache keeps. So does
    a job whose framework has not carried out its start yet (`is_resuming`): the framework itself then changes
    a condition that decisions read."""
    return bool(meta.generation) and not meta.owner_references and not is_resuming


def _tests(meta: OwnedMeta) -> dict[str, object]:
    return {
        path_of("metadata", "uid"): meta.uid,
        path_of("metadata", "generation"): meta.generation,
        path_of("metadata", "deletionTimestamp"): None,
        path_of("metadata", "ownerReferences"): None,
        path_of("metadata", "labels"): meta.labels or None,
        path_of("metadata", "annotations"): meta.annotations or None,
    }


class _Outlined(msgspec.Struct):
    metadata: OwnedMeta


def outline_of(raw: bytes, resource: Resource, why: str) -> Gang:
    """Returns what is kept of a job that cannot be read as a whole: its identity, and its owner's consent and
    holds. The Gang is unsupported, for the reason `why`."""
    meta = msgspec.json.decode(raw, type=_Outlined).metadata
    return Gang(
        ref=_ref(meta, resource),
        resource=resource,
        version=meta.resource_version,
        labels=_words(meta.labels),
        annotations=_words(meta.annotations),
        created=meta.creation_timestamp,
        deleting=meta.deletion_timestamp is not None,
        foreign_owner=foreign_owner(meta),
        unsupported=why,
    )


def _words(told: Mapping[str, str]) -> dict[str, str]:
    return {name: told[name][:_WORD_CHARS_MAX] for name in WORDS if name in told}


def _ref(meta: OwnedMeta, resource: Resource) -> GangRef:
    return GangRef(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
    )


def _definition(raw: bytes, resource: Resource) -> bytes:
    """Returns the job as people wrote it, without the fields that a server or a framework filled in."""
    whole = msgspec.json.decode(raw)
    told = {name: whole["metadata"][name] for name in _OWN_METADATA if name in whole["metadata"]}
    wrote = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": told,
        "spec": whole["spec"],
    }
    return msgspec.json.encode(wrote)
