"""Checks the torchrun of jobs whose framework gives it no rendezvous. Pure.

Source: torch/distributed/run.py: without --nnodes (or PET_NNODES) torchrun assumes one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from recover.doctor.case import Case, Finding, Severity
from recover.k8s.kinds import JOBS, JOBSETS
from recover.workloads.as_written import Container

__all__ = ["rendezvous"]

_STARTS = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_NODES = re.compile(r"--nnodes\b|--nnodes=")
_ALONE = re.compile(r"--standalone\b")
_KINDS = (JOBS.kind, JOBSETS.kind)
"""The training-operator sets the rendezvous of its own kinds."""


def rendezvous(case: Case) -> Iterator[Finding]:
    """Reports containers whose torchrun knows only its own pod, in a job of several pods."""
    if case.gang.ref.kind not in _KINDS or case.gang.size < 2:
        return
    for field, template in case.templates:
        for container in template.spec.containers:
            words = " ".join([*container.command, *container.args])
            alone = _ALONE.search(words)
            if not _STARTS.search(words) or (not alone and _knows_nodes(container, words)):
                continue
            yield Finding(
                name="torchrun-alone",
                severity=Severity.RISKS,
                what=f"torchrun of container {container.name} connects only the processes of its own pod: "
                + ("it has the option --standalone" if alone else "it has no option --nnodes"),
                where=case.at(f"{field}.spec.containers[{container.name}].command"),
                means=f"each of the {case.gang.size} pods trains alone, with ranks from 0, and the pods "
                "overwrite each other's checkpoints",
                fix="torchrun --nnodes=N --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT, with the number of "
                "pods, and in all pods the address of the same pod",
            )


def _knows_nodes(container: Container, words: str) -> bool:
    return bool(_NODES.search(words)) or any(one.name == "PET_NNODES" for one in container.env)
