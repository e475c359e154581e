"""Jobs as people's manifests have them, before any API server has seen them. For enable/ and doctor/.

What cannot be used is told with file, document, field and value: ManifestError for a file that is no text or
no YAML, BadValueError for a job that is not what its kind should be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from detectors.text.strict import BadValueError, bad_value
from recover.model import Gang
from recover.workloads import WORKLOADS, Workload

__all__ = [
    "STANDARD_INPUT",
    "ManifestError",
    "documents",
    "gang_in",
    "name_of",
    "objects",
    "read_text",
    "told",
    "why_no_job",
    "without_nulls",
    "workload_in",
]

STANDARD_INPUT = "standard input"
_RENDERED = "expected YAML or JSON without placeholders, as `helm template` prints it"


class ManifestError(Exception):
    """A manifest that is no text, or no YAML."""


def name_of(file: str) -> str:
    """The file in words; `-` is standard input."""
    return STANDARD_INPUT if file == "-" else file


def read_text(file: str) -> str:
    """Raises ManifestError."""
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
    """All documents, empty ones too. Raises ManifestError."""
    try:
        return list(yaml.safe_load_all(text))
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
    """Each object and where it stands; those of a List one by one, and no empty document."""
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
    """None for what is no job that Rekindle restarts."""
    if not isinstance(document, dict):
        return None
    said = (document.get("apiVersion"), document.get("kind"))
    return next((w for w in WORKLOADS if (w.resource.api_version, w.resource.kind) == said), None)


def why_no_job(document: Any) -> str:
    """Why workload_in knows none. A kind of ours in another version of its group is meant to be a job."""
    none = "no job that Rekindle restarts"
    if not isinstance(document, dict):
        return none
    known = next((w.resource for w in WORKLOADS if w.resource.kind == document.get("kind")), None)
    said = document.get("apiVersion")
    if known is None or (said is not None and str(said).partition("/")[0] != known.group):
        return none
    shown = "(none)" if said is None else repr(said)
    return f"field apiVersion: value {shown}: expected {known.api_version}"


def told(document: Any) -> str:
    """Kind and name, as far as it has them."""
    if not isinstance(document, dict):
        return "what stands there"
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else ""
    return f"{document.get('kind') or 'an object without a kind'} {name or ''}".rstrip()


def gang_in(job: Any, workload: Workload, file: str, where: str) -> Gang:
    """The job as decisions see it. Raises BadValueError."""
    metadata = job.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise BadValueError(
            file=file, where=where, field="metadata.name", value="(none)", expected="this field is required"
        )
    try:
        gang = workload.parse(msgspec.json.encode(without_nulls(job)))
    except msgspec.ValidationError as error:
        raise bad_value(error, job, file=file, where=where) from error
    except TypeError as error:  # a key that is no text, as `on:` and `null:` are in YAML
        raise BadValueError(
            file=file, where=where, field="", value="(an object)", expected=f"expected text as keys: {error}"
        ) from error
    named = msgspec.structs.replace(gang.ref, namespace=gang.ref.namespace or "default")
    return msgspec.structs.replace(gang, ref=named)


def without_nulls(value: Any) -> Any:
    """A field that is null is a field that is not there, for an API server."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value
