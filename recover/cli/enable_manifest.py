"""Adds to a manifest what Rekindle needs to restart its jobs and to give their ranks the path to resume from.
Pure. For some kinds the patch that starts a job adds the `envFrom` (`start_brings_environment`); the manifest
of such a job needs none.

snapshot/manifests.py reads the documents, and enable_text.py writes the changes into the person's own text.
`rekindle doctor` reports what will not work in spite of these changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from detectors.text.strict import BadValueError, convert
from recover.api import GangRef
from recover.checkpoints.annotation import ANNOTATION
from recover.policy.consent import AUTO_RECOVERY, OptIn, opt_in
from recover.snapshot.manifests import at_path, described, gang_in, objects, why_no_job, workload_in
from recover.workloads import WORKLOADS, Workload, environments_of_other_kinds
from recover.workloads.patches import environment_of, reading_environment, requires_environment

__all__ = ["KINDS", "Enabled", "enabled"]

KINDS = tuple(workload.resource.kind for workload in WORKLOADS)


class _Reference(msgspec.Struct):
    name: str = ""


class _Source(msgspec.Struct):
    map: _Reference | None = msgspec.field(name="configMapRef", default=None)


class _Container(msgspec.Struct):
    """The fields of a raw container that are read before something is added to the container."""

    sources: list[_Source] | None = msgspec.field(name="envFrom", default=None)


class Enabled(msgspec.Struct, frozen=True):
    documents: list[Any]
    """All documents, in their order. A document that is no job of a known kind is unchanged."""
    jobs: int
    notes: tuple[str, ...]
    """Sentences for the person: each names a document that was left unchanged, or a value of the person that
    was replaced."""


def enabled(documents: Sequence[Any], file: str, checkpoint: str = "") -> Enabled:
    """Returns the documents with the consent, the environment where the manifest must name it and, if given,
    the checkpoint annotation in each job.

    Raises BadValueError for a job that is not valid for its kind; the error names file, document and field.
    """
    changed = copy.deepcopy(list(documents))
    jobs, notes = 0, []
    for document, where in objects(changed):
        workload = workload_in(document)
        if workload is None:
            notes.append(
                f"{file}: {where}: {described(document)} is printed as it is: {why_no_job(document)}"
            )
            continue
        jobs += 1
        notes += _enable(document, workload, file, where, checkpoint)
    return Enabled(documents=changed, jobs=jobs, notes=tuple(notes))


def _enable(job: Any, workload: Workload, file: str, where: str, checkpoint: str) -> list[str]:
    """Changes the job, and returns one sentence for each value of people that was replaced. If the API server
    generates the name of the job, the job cannot name its ConfigMap, so its containers stay as they are."""
    replaced: list[str] = []
    gang = gang_in(job, workload, file, where)
    templates = list(_templates(job, workload.pod_templates, file, where))
    metadata = job["metadata"]
    if opt_in(gang, None) is not OptIn.ENABLED:
        said = [field for field in ("labels", "annotations") if AUTO_RECOVERY in (metadata.get(field) or {})]
        replaced += [
            f"{file}: {where}: {described(job)}: this command replaced metadata.{field}[{AUTO_RECOVERY}]: "
            f"{metadata[field][AUTO_RECOVERY]!r}"
            for field in said
        ]
        for field in said or ["labels"]:  # if both have a value, the refusal would count
            metadata[field] = {**(metadata.get(field) or {}), AUTO_RECOVERY: OptIn.ENABLED.value}
    if checkpoint:
        annotations = metadata.get("annotations") or {}
        before = annotations.get(ANNOTATION, checkpoint)
        if before != checkpoint:
            replaced.append(
                f"{file}: {where}: {described(job)}: --checkpoint replaced the annotation {ANNOTATION}: "
                f"{before!r}"
            )
        metadata["annotations"] = {**annotations, ANNOTATION: checkpoint}
    if gang.ref.name:
        for field, template in templates:
            place = f"{file}: {where}: {field}"
            spec = template["spec"]
            for container in spec["containers"]:
                convert(container, _Container, file=file, where=where)
                replaced += _renamed(container, gang.ref, place)
            replaced += [
                f"{place}: container {c.get('name', '')}: Rekindle set `optional: true` for the configMapRef "
                f"{name}: this ConfigMap does not exist before the job's first recovery, and without "
                "`optional: true` the pods of the job would not start"
                for c in spec["containers"]
                for name in requires_environment(c, gang.ref)
            ]
            listed = tuple({**c, "envFrom": c.get("envFrom") or []} for c in spec["containers"])
            spec["containers"] = [
                reading
                if not workload.start_brings_environment or requires_environment(container, gang.ref)
                else container
                for container, reading in zip(
                    spec["containers"], reading_environment(listed, gang), strict=True
                )
            ]
    return replaced


def _renamed(container: Any, ref: GangRef, where: str) -> Iterator[str]:
    """Corrects each source that names the ConfigMap of a job of another kind, and yields a sentence for each.
    The source becomes optional, like each source that this module adds."""
    others, name = environments_of_other_kinds(ref), environment_of(ref)
    for source in container.get("envFrom") or []:
        named = source.get("configMapRef") or {}
        if named.get("name") in others:
            yield (
                f"{where}: container {container.get('name', '')}: Rekindle replaced the configMapRef "
                f"{named['name']} by {name}, the name of the ConfigMap of this {ref.kind}"
            )
            source["configMapRef"] = {**named, "name": name, "optional": True}


def _templates(job: Any, path: tuple[str, ...], file: str, where: str) -> Iterator[tuple[str, Any]]:
    """Yields the pod templates, each with the name of its field. Raises BadValueError for a template without
    containers."""
    for field, template in at_path(job, path):
        spec = template.get("spec") if isinstance(template, dict) else None
        containers = spec.get("containers") if spec else None
        if not containers:
            raise BadValueError(
                file=file,
                where=where,
                field=f"{field}.spec.containers",
                value="(none)",
                expected="expected at least one container",
            )
        yield field, template
