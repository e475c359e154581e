"""What a framework's adapter must offer, and how its job becomes a Gang. Adapters return writes only.

One file per framework; WORKLOADS in __init__ is the registration. model/job_views.py reads what their objects
share, patches.py makes what their stops and starts share.
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

__all__ = ["Operator", "StopsAtOnce", "Workload", "gang_of", "outline_of"]

_OWN_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences")
_WORD_CHARS_MAX = 256
_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
_VERBS = ("get", "list", "watch", "create", "patch", "delete")


class Operator(msgspec.Struct, frozen=True):
    """Whoever runs the jobs of a kind."""

    name: str
    deployment: str
    """Its usual name."""


class Workload(Protocol):
    """One framework, whose file answers all that the rest asks of it; a class that inherits from this one
    takes the defaults. `parse` raises msgspec.MsgspecError for an object that is not what it should be."""

    resource: Resource
    operator: Operator | None = None
    """None: Kubernetes runs its jobs itself."""
    framework: Framework | None = None
    """What trains in its pods, where the kind alone tells that."""
    patches_status: bool = False
    """Its stop or start changes the job's status."""
    makes_jobs: bool = False
    """Its pods are those of batch/v1 Jobs that it makes."""
    start_brings_environment: bool = False
    """The patch that starts a gang may bring the source of its environment; else only a new object does."""
    delays_starts: bool
    """It keeps its Failed pods, counts them, and makes new ones the later for them."""
    reuses_names: bool
    """New pods take the names of the old ones, so those must be gone, not only ended, before the start. Its
    stop deletes pods that have ended, too."""
    pod_label: str
    """Each pod of the job carries this label, with the job's name."""
    stops_at_once: bool
    """Nothing is `unfinished` after the patches of `stop`."""

    @property
    def pod_templates(self) -> tuple[str, ...]:
        """The path to them in the job; * is each one of a list or a mapping."""
        ...

    @property
    def rights(self) -> frozenset[tuple[str, str]]:
        """What the controller must be granted: verb, and resource with subresource."""
        of_status = [("patch", f"{self.resource.plural}/status")] if self.patches_status else []
        return frozenset([*((verb, self.resource.plural) for verb in _VERBS), *of_status])

    def parse(self, raw: bytes) -> Gang: ...

    def written(self, job: Mapping[str, Any], file: str, where: str) -> Written:
        """What its people wrote, of a job that `parse` can read; `file` and `where` are for messages. Raises
        detectors.text.strict.BadValueError."""
        ...

    def suspending(self, on: bool) -> dict[str, Any]:
        """The part of the spec that says whether the job is suspended."""
        return {"suspend": on}

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        """The uncounted way to end every pod; the first patch carries the mark."""
        ...

    def unfinished(self, gang: Gang) -> list[Patch]:
        """What a stop still needs once its mark is there. Asked at every look, so it ends by itself."""
        ...

    def startable(self, gang: Gang, parts: Sequence[Gang]) -> bool:
        """Its framework has done what the stop set off."""
        ...

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        """Starts the stopped gang off the nodes that the mark avoids; the last patch carries the mark. Where
        none does, that must come first, and the start is asked for once more."""
        ...

    def lift(self, gang: Gang) -> list[Patch]:
        """Removes what our last start has put into the job, as far as its framework accepts that now. It is
        called again until nothing is left; the next start removes what could not be removed before."""
        ...

    def anew(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        """The object to create in place of the gang's job, running off the nodes that the mark avoids."""
        ...


class StopsAtOnce:
    """For a framework whose stop is one patch, after which nothing of it has to be waited for but pods."""

    stops_at_once = True

    def unfinished(self, gang: Gang) -> list[Patch]:
        return []

    def startable(self, gang: Gang, parts: Sequence[Gang]) -> bool:
        return True


def foreign_owner(meta: OwnedMeta) -> str:
    """Who else decides when this job runs; empty if nobody. An older Kueue reads the annotation, too."""
    queue = meta.labels.get(_KUEUE_QUEUE, meta.annotations.get(_KUEUE_QUEUE))
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
    """The Gang of a job, from what its framework's own fields say. Each template stands with the number of
    pods that are made from it. `tests` has the fields of its status that decisions read, if a patch may test
    them in place of the version."""
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
    """The generation tells of each change of the spec. Owners have more fields than are kept of them. While
    a framework takes up a start, its condition changes by itself, and decisions read that."""
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
    """What is kept of a job that is not read as a whole: who it is, and what its people want of us. It is
    refused for that reason."""
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
    """What people wrote of the job, without what a server or a framework filled in."""
    whole = msgspec.json.decode(raw)
    told = {name: whole["metadata"][name] for name in _OWN_METADATA if name in whole["metadata"]}
    wrote = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": told,
        "spec": whole["spec"],
    }
    return msgspec.json.encode(wrote)
