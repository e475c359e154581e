"""A scenario: a training job, faults and their moments, and the expected end. Read from YAML.

Parsing is strict: an unknown field, a wrong value or a fault that names no rank of the job is an error that
names the file, the field and the expected value.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from detectors.service.settings import SettingsError
from detectors.text.strict import BadValueError, convert

__all__ = [
    "Expect",
    "Fault",
    "Job",
    "JobKind",
    "LogLine",
    "PodCrash",
    "Scenario",
    "When",
    "Xid",
    "load",
    "packaged",
]

Rank = Annotated[int, Meta(ge=0)]


class JobKind(StrEnum):
    """Kinds of jobs, named as in their objects."""

    PYTORCHJOB = "PyTorchJob"
    PADDLEJOB = "PaddleJob"
    TFJOB = "TFJob"
    JOB = "Job"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The training: real processes, one for each rank."""

    kind: JobKind = JobKind.PYTORCHJOB
    ranks: Annotated[int, Meta(ge=1, le=16)] = 4
    steps: Annotated[int, Meta(ge=1)] = 120
    step_time_s: Annotated[float, Meta(ge=0)] = 0.05
    checkpoint_every: Annotated[int, Meta(ge=1)] = 20
    shard_write_s: Annotated[float, Meta(ge=0)] = 0.4
    opted_in: bool = True


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The moment after `step` was printed; with `writing_checkpoint`, while the next checkpoint is being
    written."""

    step: Annotated[int, Meta(ge=1)]
    writing_checkpoint: bool = False


class Xid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel record for the GPU of that rank's node. With `kills` the rank's process dies with its GPU."""

    code: Annotated[int, Meta(ge=1, le=999)]
    rank: Rank
    text: str = ""
    kills: bool = True


class PodCrash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rank's process is ended by this signal, as a bug of the training would end it."""

    rank: Rank
    signal: Annotated[str, Meta(pattern="^(SEGV|ABRT|KILL|TERM)$")] = "SEGV"


class LogLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line in the rank's own log, as if its program had printed it: tenants can write anything there."""

    rank: Rank
    text: Annotated[str, Meta(min_length=1, max_length=1000)]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A fault. Exactly one of `xid`, `pod-crash` and `log-line` is set."""

    when: When
    xid: Xid | None = None
    pod_crash: PodCrash | None = None
    log_line: LogLine | None = None


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    recoveries: Annotated[int, Meta(ge=0)]
    """Number of recoveries that must have succeeded. No recovery may have ended otherwise."""
    cordoned_ranks: tuple[Rank, ...] = ()
    """Ranks whose nodes must be cordoned at the end: the nodes on which they ran when their fault struck, and
    no others."""
    refused: tuple[str, ...] = ()
    """Reasons that the Incidents must give for refused or only described actions, and no others."""
    completes: bool = True
    """Whether the job trains to its last step, with the weights of an undisturbed run, bit for bit."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    about: str
    """One or two sentences for `rekindle chaos list`."""
    expect: Expect
    nodes: Annotated[int, Meta(ge=1, le=32)] = 5
    mode: Annotated[str, Meta(pattern="^(observe|recover)$")] = "recover"
    job: Job = Job()
    faults: tuple[Fault, ...] = ()
    limit_s: Annotated[float, Meta(gt=0)] = 60.0
    """Time limit of the run: beyond it the scenario has failed."""


def load(path: Path) -> Scenario:
    """Reads a scenario. Raises SettingsError."""
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not valid YAML: not UTF-8 text") from error


def packaged() -> dict[str, Scenario]:
    """Returns the scenarios that come with Rekindle, by name."""
    folder = resources.files("chaos") / "scenarios"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return {s.name: s for s in (_parse((folder / f).read_text(encoding="utf-8"), f) for f in files)}


def _parse(text: str, file: str) -> Scenario:
    try:
        data: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    try:
        scenario = convert(data, Scenario, file=file)
    except BadValueError as error:
        raise SettingsError(str(error)) from error
    for number, fault in enumerate(scenario.faults):
        given = [what for what in (fault.xid, fault.pod_crash, fault.log_line) if what is not None]
        if len(given) != 1:
            raise SettingsError(f"{file}: faults[{number}]: expected one of xid, pod-crash and log-line")
        if given[0].rank >= scenario.job.ranks:
            raise SettingsError(
                f"{file}: faults[{number}]: rank {given[0].rank}: expected 0 to {scenario.job.ranks - 1}"
            )
    return scenario
