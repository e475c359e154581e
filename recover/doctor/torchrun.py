"""Checks the torchrun of jobs whose framework gives it no rendezvous. Pure.

Source: torch/distributed/run.py: without --nnodes (or PET_NNODES) torchrun assumes one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from recover.doctor.case import Case, Finding, Severity
from recover.doctor.scripts import Command, read, starts
from recover.k8s.kinds import JOBS, JOBSETS
from recover.workloads.as_written import Container

__all__ = ["rendezvous"]

_TORCHRUN = re.compile(r"torchrun")
_PYTHON = re.compile(r"python[\d.]*")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_NODES = re.compile(r"--nnodes(?:=(?P<count>\d+))?.*")
_KINDS = (JOBS.kind, JOBSETS.kind)
"""The training-operator sets the rendezvous of its own kinds."""


def rendezvous(case: Case) -> Iterator[Finding]:
    """Reports containers whose torchrun knows only its own pod, in a template of several pods."""
    if case.gang.ref.kind not in _KINDS:
        return
    for name, written in case.spec.templates().items():
        field, template = case.spec.template_field(name), case.gang.templates[name]
        pods = template.count or (case.gang.size if len(case.gang.templates) == 1 else 0)
        for container in written.spec.containers if pods > 1 else ():
            script = read(container)
            options = [own for one in script.commands if (own := _options(one)) is not None] if script else []
            if script is None or not options or _may_know_nodes(container, options[-1], script.commands):
                continue
            alone = "--standalone" in options[-1]
            yield Finding(
                name="torchrun-alone",
                severity=Severity.RISKS,
                what=f"torchrun of container {container.name} connects only the processes of its own pod: "
                + ("it has the option --standalone" if alone else "it has no --nnodes with several nodes"),
                where=case.at(f"{field}.spec.containers[{container.name}].{script.where}"),
                means=f"each of the {pods} pods trains alone, with ranks from 0, and the pods overwrite each "
                "other's checkpoints",
                fix="torchrun --nnodes=N --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT, with the number of "
                "pods, and in all pods the address of the same pod",
            )


def _options(command: Command) -> list[str] | None:
    """Returns torchrun's own options, without those of the training script; None for another command."""
    if starts(command, _TORCHRUN):
        at = next(n for n, word in enumerate(command) if _TORCHRUN.fullmatch(word.rpartition("/")[2]))
    elif starts(command, _PYTHON) and any(module in command for module in _MODULES):
        at = next(n for n, word in enumerate(command) if word in _MODULES)
    else:
        return None
    options: list[str] = []
    for word in command[at + 1 :]:
        if word.endswith(".py") or word in ("-m", "--module", "--no-python", "--no_python"):
            break
        options.append(word)
    return options


def _may_know_nodes(container: Container, options: Sequence[str], commands: Sequence[Command]) -> bool:
    """Whether torchrun may know of other nodes. What a variable contains is not known."""
    if "--standalone" in options:
        return False
    counts = [match for word in options if (match := _NODES.fullmatch(word))]
    if any(match["count"] != "1" for match in counts):
        return True
    says = any("PET_" in word for one in commands for word in one)
    own = any(one.name.startswith("PET_") for one in container.env)
    from_others = any("-rekindle" not in one.config_map_ref.name for one in container.env_from)
    return any("$" in word for word in options) or says or own or from_others
