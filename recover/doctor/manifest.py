"""Turns the jobs of a manifest, before their submission, into Cases without a cluster around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from recover.api.recipe_spec import Recipe
from recover.doctor.case import NO_CLUSTER, Case, Part
from recover.doctor.saves import claim_of
from recover.model import NamespaceView, decode
from recover.policy.consent import AUTO_RECOVERY
from recover.snapshot.manifests import described, gang_in, objects, why_no_job, without_nulls, workload_in

__all__ = ["cases"]

_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences")


def cases(
    documents: Iterable[Any], file: str, recipes: Mapping[str, Recipe], now: datetime
) -> tuple[list[Case], list[str]]:
    """Returns one Case for each job, and notes on documents that are no job. Raises BadValueError."""
    found, notes = [], []
    every = list(objects(list(documents)))
    claims = dict(_claims(document for document, _ in every))
    spaces = {space.name: space for document, _ in every if (space := _namespace(document)) is not None}
    for document, where in every:
        workload = workload_in(document)
        if workload is None and (_is_claim(document) or _namespace(document) is not None):
            continue
        if workload is None:
            notes.append(f"{file}: {where}: {described(document)} is left out: {why_no_job(document)}")
            continue
        gang = gang_in(document, workload, file, where)
        spec = workload.written(without_nulls(document), file, where)
        claim = f"{gang.ref.namespace}/{claim_of(gang)}"
        unread = dict.fromkeys(Part, NO_CLUSTER)
        if claim in claims:
            del unread[Part.CLAIM]
        space = spaces.get(gang.ref.namespace)
        if _says_consent(space):
            del unread[Part.NAMESPACE]
        found.append(
            Case(
                gang=gang,
                spec=spec,
                recipes=recipes,
                now=now,
                is_file=True,
                file=file,
                misspelt=_misspelt(document),
                generate_name="" if gang.ref.name else str(document["metadata"]["generateName"]),
                claim=claim if claim in claims else "",
                access_modes=claims.get(claim, ()),
                namespace=space if _says_consent(space) else None,
                unread=unread,
            )
        )
    return found, notes


def _misspelt(document: Any) -> dict[str, str]:
    """Returns misspelt fields of metadata, where people write labels and annotations."""
    near = {
        str(name): get_close_matches(str(name), _METADATA, n=1, cutoff=0.8)
        for name in document["metadata"]
        if name not in _METADATA
    }
    return {f"metadata.{name}": f"metadata.{found[0]}" for name, found in near.items() if found}


def _is_claim(document: Any) -> bool:
    said = ("v1", "PersistentVolumeClaim")
    return isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == said


def _namespace(document: Any) -> NamespaceView | None:
    """Returns the namespace that the document creates; None if it is another object, or cannot be read."""
    said = ("v1", "Namespace")
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != said:
        return None
    try:
        return decode.namespace(msgspec.json.encode(without_nulls(document)))
    except (msgspec.MsgspecError, TypeError):
        return None


def _says_consent(space: NamespaceView | None) -> bool:
    """Whether the file says something about the consent of the namespace. Without that, somebody may have
    given consent in the cluster, and the file does not take it back."""
    return space is not None and AUTO_RECOVERY in {**space.labels, **space.annotations}


def _claims(documents: Iterable[Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the access modes of each claim in the file, by `namespace/name`."""
    for document in documents:
        if not _is_claim(document):
            continue
        meta, spec = document.get("metadata"), document.get("spec")
        if isinstance(meta, dict) and isinstance(spec, dict) and meta.get("name"):
            modes = spec.get("accessModes")
            name = f"{meta.get('namespace') or 'default'}/{meta['name']}"
            yield name, tuple(map(str, modes)) if isinstance(modes, list) else ()
