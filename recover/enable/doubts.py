"""What a person should know before they rely on a restart of this job. Pure: sentences for standard error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from recover.checkpoints.annotation import ANNOTATION
from recover.consent import AUTO_RECOVERY, OptIn, may_recreate, opt_in
from recover.model import Gang
from recover.scan_pod import Unscannable, location
from recover.stories.annotations import misread_on_job

__all__ = ["doubts"]

_HANDED_OVER = "REKINDLE_"
_FAILS_FOR_GOOD = {"Never": "any failed rank", "ExitCode": "a rank that exits with 1 to 127"}
"""Restart policies of Kubeflow's replicas -> what may end the job before it can be stopped."""


class _Variable(msgspec.Struct, frozen=True):
    name: str = ""


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    env: list[_Variable] = []


def doubts(gang: Gang, job: Any) -> list[str]:
    """Of a gang as its manifest says it, and that manifest."""
    return [*_who_decides(gang), *_checkpoints(gang), *_ends_for_good(gang, job), *_own_variables(gang)]


def _who_decides(gang: Gang) -> Iterator[str]:
    if opt_in(gang, None) is not OptIn.ENABLED:
        yield (
            f"it is not restarted: its annotation {AUTO_RECOVERY} says {gang.annotations[AUTO_RECOVERY]!r}, "
            "and of label and annotation the more careful one counts; remove it"
        )
    if gang.foreign_owner:
        yield f"it is not restarted: {gang.foreign_owner} decides when it runs"
    if gang.unsupported:
        yield f"it is not restarted: {gang.unsupported}"


def _checkpoints(gang: Gang) -> Iterator[str]:
    misread = misread_on_job(gang, None)
    yield from misread
    if ANNOTATION not in gang.annotations:
        yield (
            f"without the annotation {ANNOTATION} no checkpoint is verified, and the framework's own logic "
            "decides where it resumes; --checkpoint adds it"
        )
    elif not any(ANNOTATION in sentence for sentence in misread):
        try:
            location(gang)
        except Unscannable as why:
            yield f"no checkpoint will be verified: {why}"


def _ends_for_good(gang: Gang, job: Any) -> Iterator[str]:
    """What a framework may do before the gang can be stopped."""
    spec = job["spec"]
    if gang.ref.kind == "Job" and spec.get("backoffLimit") == 0 and not may_recreate(gang.annotations):
        yield (
            "with backoffLimit 0 the first failed pod ends it for good, and a Job that has ended cannot be "
            "started again; raise it, or annotate rekindle.dev/on-terminal: recreate to have it made anew"
        )
    replicas = spec.get("pytorchReplicaSpecs") or spec.get("paddleReplicaSpecs") or {}
    for role, replica in replicas.items():
        what = _FAILS_FOR_GOOD.get(str(replica.get("restartPolicy")))
        if what is not None and not may_recreate(gang.annotations):
            yield (
                f"{role} has restartPolicy {replica['restartPolicy']}: {what} may end the job for good "
                "before it is stopped; with OnFailure it does not"
            )


def _own_variables(gang: Gang) -> Iterator[str]:
    for template in gang.templates.values():
        for container in template.containers:
            try:
                own = msgspec.convert(container, _Container)
            except msgspec.ValidationError:
                continue  # the API server refuses it, and says why
            for variable in own.env:
                if variable.name.startswith(_HANDED_OVER):
                    yield f"container {own.name} sets {variable.name} itself: that beats what is handed over"
