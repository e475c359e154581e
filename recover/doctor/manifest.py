"""The jobs of a manifest, before their submission, as Cases without a cluster around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from recover.api.recipe_spec import Recipe
from recover.doctor.case import Case, Part
from recover.snapshot.manifests import gang_in, objects, told, why_no_job, without_nulls, workload_in

__all__ = ["cases"]

_NO_CLUSTER = "a file was read, and no cluster"


def cases(
    documents: Iterable[Any], file: str, recipes: Mapping[str, Recipe], now: datetime
) -> tuple[list[Case], list[str]]:
    """One for each job, and notes on what is none. Raises BadValueError."""
    found, notes = [], []
    for document, where in objects(list(documents)):
        workload = workload_in(document)
        if workload is None:
            notes.append(f"{file}: {where}: {told(document)} is left out: {why_no_job(document)}")
            continue
        gang = gang_in(document, workload, file, where)
        spec = workload.written(without_nulls(document), file, where)
        found.append(
            Case(
                gang=gang,
                spec=spec,
                recipes=recipes,
                now=now,
                is_file=True,
                generate_name="" if gang.ref.name else str(document["metadata"]["generateName"]),
                unread=dict.fromkeys(Part, _NO_CLUSTER),
            )
        )
    return found, notes
