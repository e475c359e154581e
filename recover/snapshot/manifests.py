"""Reads the jobs of people's manifests, before any API server has seen them, for `rekindle enable` and
`rekindle doctor -f`.

Errors name file, document, field and value: ManifestError for a file that is no text or no YAML,
BadValueError for a job that is not valid for its kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import yaml

from detectors.text.strict import BadValueError, bad_value, convert
from recover.k8s.pod_specs import Mounts
from recover.model import Gang
from recover.snapshot.yaml_text import NoDuplicates, in_yaml_words
from recover.workloads import WORKLOADS, Workload

__all__ = [
    "NO_DOCUMENT",
    "STANDARD_INPUT",
    "ManifestError",
    "at_path",
    "described",
    "documents",
    "gang_in",
    "in_yaml_words",
    "name_of",
    "objects",
    "read_text",
    "why_no_job",
    "without_nulls",
    "workload_in",
]

STANDARD_INPUT = "standard input"
NO_DOCUMENT = "the file is empty: expected the YAML or JSON of a job"
_WHY_NOT = {
    "TrainJob": "Rekindle does not restart a TrainJob, whose controller owns the JobSet below it",
    **dict.fromkeys(
        (
            "MPIJob",
            "XGBoostJob",
            "JAXJob",
            "LeaderWorkerSet",
            "RayJob",
            "RayCluster",
            "Deployment",
            "StatefulSet",
            "DaemonSet",
            "ReplicaSet",
            "CronJob",
            "Pod",
        ),
        "Rekindle does not restart this kind",
    ),
}
"""Kinds that people may expect Rekindle to restart, each with the reason why not. docs/for-job-owners.md
explains the most common ones."""
_RENDERED = "expected YAML or JSON without placeholders, as `helm template` prints it"


class ManifestError(Exception):
    """A manifest that is no text, or no YAML."""


def name_of(file: str) -> str:
    """Returns the file in words; `-` is standard input."""
    return STANDARD_INPUT if file == "-" else file


def read_text(file: str) -> str:
    """Returns the text of the file. Raises ManifestError."""
    name = name_of(file)
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise ManifestError(f"{name}: cannot be read: {error.strerror}; expected a YAML file") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = error.object[error.start : error.start + 1]
        raise ManifestError(f"{name}: line {line}: value {found!r}: expected UTF-8 text") from error


def documents(text: str, name: str) -> list[Any]:
    """Returns all documents, including empty ones. Raises ManifestError."""
    try:
        return list(yaml.load_all(text, NoDuplicates))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        at = "".join(text.splitlines()[line - 1 : line])  # YAML counts \r alone as the end of a line, too
        expected = _RENDERED if "{{" in at else "expected YAML or JSON"
        raise ManifestError(f"{name}: line {line}: {error.problem}; {expected}") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{name}: {error}; expected YAML or JSON") from error
    except RecursionError as error:
        raise ManifestError(f"{name}: nested too deeply; expected a manifest of a job") from error


def objects(found: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    """Yields each object with its place. The items of a List come one by one; empty documents are left
    out."""
    for number, document in enumerate(found, start=1):
        where = f"document {number}"
        items = (
            document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
        )
        if isinstance(items, list):
            for place, item in enumerate(items, start=1):
                yield item, f"{where}, item {place}"
        elif document is not None:
            yield document, where


def workload_in(document: Any) -> Workload | None:
    """Returns the kind of job; None if the document is no job that Rekindle restarts."""
    if not isinstance(document, dict):
        return None
    said = (document.get("apiVersion"), document.get("kind"))
    return next((w for w in WORKLOADS if (w.resource.api_version, w.resource.kind) == said), None)


def why_no_job(document: Any) -> str:
    """Returns why workload_in returned None. A known kind in another version of its group is probably meant
    as a job."""
    none = "it is no job that Rekindle restarts"
    if not isinstance(document, dict):
        return none
    kind = str(document.get("kind") or "")
    if not kind:
        return "field kind: value (none): this field is required"
    if kind in _WHY_NOT:
        return _WHY_NOT[kind]
    kinds = [w.resource.kind for w in WORKLOADS]
    lowered = {one.lower(): one for one in kinds}
    near = get_close_matches(kind.lower(), lowered, n=1, cutoff=0.9)
    if near and kind not in kinds:
        return f"field kind: value {kind!r}: did you mean {lowered[near[0]]}?"
    known = next((w.resource for w in WORKLOADS if w.resource.kind == document.get("kind")), None)
    said = document.get("apiVersion")
    if known is None:
        return none
    if said is not None and str(said).partition("/")[0] != known.group:
        return f"this {kind} is of {said!s:.80}, and Rekindle restarts only a {kind} of {known.api_version}"
    shown = "(none)" if said is None else repr(said)
    return f"field apiVersion: value {shown}: expected {known.api_version}"


def described(document: Any) -> str:
    """Returns kind and name, as far as the document has them."""
    if isinstance(document, list):
        return "a list, which is no Kubernetes object,"
    if not isinstance(document, dict):
        return "text that is no Kubernetes object"
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else ""
    if not document.get("kind"):
        return "an object without a kind" + (f", named {name}," if name else "")
    return f"{document['kind']} {name or ''}".rstrip()


def gang_in(job: Any, workload: Workload, file: str, where: str) -> Gang:
    """Returns the job as decisions see it. A job without a namespace is in `default`. Raises
    BadValueError."""
    metadata = job.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        is_empty = isinstance(metadata, dict) and metadata.get("name") == ""
        raise BadValueError(
            file=file,
            where=where,
            field="metadata.name",
            value="''" if is_empty else "(none)",
            expected="expected the name of the job" if is_empty else "this field is required",
        )
    for field, template in at_path(job, workload.pod_templates):
        spec = template.get("spec") if isinstance(template, dict) else None
        containers = spec.get("containers") if isinstance(spec, dict) else None
        for number, container in enumerate(containers if isinstance(containers, list) else ()):
            place = f"{where}: {field}.spec.containers[{number}]"
            if isinstance(container, dict):
                convert(without_nulls(container), Mounts, file=file, where=place)
    try:
        gang = workload.parse(msgspec.json.encode(without_nulls(job)))
    except msgspec.ValidationError as error:
        raise _misspelt(bad_value(error, job, file=file, where=where), job) from error
    except TypeError as error:  # a key that is no text, such as `on:` and `null:` in YAML
        raise BadValueError(
            file=file, where=where, field="", value="(an object)", expected=f"expected text as keys: {error}"
        ) from error
    named = msgspec.structs.replace(gang.ref, namespace=gang.ref.namespace or "default")
    return msgspec.structs.replace(gang, ref=named)


def _misspelt(error: BadValueError, job: Any) -> BadValueError:
    """Returns a clearer error if a required field that is missing is present under another spelling."""
    if error.expected != "this field is required":
        return error
    *path, name = error.field.split(".")
    holder = job
    for part in path:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or name in holder:
        return error
    near = get_close_matches(name, [str(one) for one in holder], n=1, cutoff=0.8)
    if not near:
        return error
    there = ".".join((*path, near[0]))
    return BadValueError(
        file=error.file,
        where=error.where,
        field=there,
        value="(a misspelt name)",
        expected=f"no such field; did you mean {error.field}?",
    )


def at_path(value: Any, path: tuple[str, ...], field: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each value at that path of a raw object, with the name of its field; `*` means each entry."""
    if not path:
        yield field, value
        return
    first, *rest = path
    if first != "*":
        inner = value.get(first) if isinstance(value, dict) else None
        yield from at_path(inner, tuple(rest), f"{field}.{first}".lstrip("."))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from at_path(inner, tuple(rest), f"{field}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from at_path(inner, tuple(rest), f"{field}[{number}]")


def without_nulls(value: Any) -> Any:
    """Returns the value without null fields: the API server treats a null field as absent."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value
