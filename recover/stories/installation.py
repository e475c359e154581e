"""Tells whether Rekindle itself works, for the head of `rekindle status`: mode, leader, agents, and problems.
Pure.

snapshot/installation_seen.py reads the installation; `rekindle doctor` examines all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.text.answers import Record, Time
from detectors.text.printing import one_line
from recover.model.modes import Mode
from recover.model.pause import Pause
from recover.stories.words import Line, Tone, ago, counted, duration, some

__all__ = [
    "InstallationRecord",
    "Installed",
    "PauseRecord",
    "Problem",
    "ProblemCode",
    "installation_lines",
    "installation_record",
    "pause_record",
    "paused",
]

_AGENTS_MAX = 6
_MODES = {
    Mode.OBSERVE: "Rekindle reports what it would do, and changes nothing",
    Mode.RECOVER: "Rekindle quarantines broken nodes and restarts jobs",
    Mode.REPAIR: "Rekindle quarantines broken nodes, restarts jobs and repairs nodes",
}


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the Helm release that were read. `hidden` names the parts that may not be read."""

    namespace: str
    mode: Mode | None = None
    mode_since: datetime | None = None
    leader: str = ""
    """Holder of the lease; empty if nobody holds it."""
    renewed_at: datetime | None = None
    lease_s: int = 15
    pause: Pause | None = None
    """The pause as the ConfigMap has it; it may have ended by itself."""
    hidden: Collection[str] = ()
    """Parts that may not be read: `mode`, `lease`, `pause`."""


class ProblemCode(StrEnum):
    PAUSED = "paused"
    """People have paused Rekindle: Rekindle begins nothing."""
    PAUSE_UNUSABLE = "pause-unusable"
    """Part of the object that pauses Rekindle cannot be used."""
    NO_LEADER = "no-leader"
    """No controller leads: nothing is decided, restarted or repaired."""
    NEVER_LED = "never-led"
    """No controller has led since the installation."""
    SILENT_AGENTS = "silent-agents"
    """Rekindle does not see the faults of some nodes."""
    NO_ACCELERATORS = "no-accelerators"
    "No node has accelerators, so Rekindle has nothing to watch."
    NOT_READABLE = "not-readable"
    """The reader has no permission to read an object that this command needs."""


class Problem(Record, frozen=True, kw_only=True):
    code: ProblemCode
    message: str
    fix: Annotated[str, Meta(description="a command, or empty")]


class PauseRecord(Record, frozen=True, kw_only=True):
    """A pause that is in force."""

    since: Time
    until: Annotated[Time | None, Meta(description="null: until somebody ends the pause")]
    by: Annotated[str, Meta(description="who paused Rekindle, as the ConfigMap says")]
    reason: str


class InstallationRecord(Record, frozen=True, kw_only=True):
    """State of Rekindle itself."""

    namespace: str
    mode: Annotated[
        Mode | None,
        Meta(description="null: you have no permission to read the mode, or no controller has led yet"),
    ]
    mode_since: Time | None
    pause: Annotated[
        PauseRecord | None,
        Meta(description="null: Rekindle is not paused, or you have no permission to read the pause"),
    ]
    leader: Annotated[
        str | None, Meta(description="null: no controller leads, or you have no permission to read the Lease")
    ]
    leader_renewed_at: Time | None
    agents_reporting: Annotated[
        int | None, Meta(description="number of nodes with accelerators from which an agent reports")
    ]
    silent_nodes: Annotated[list[str], Meta(description="nodes with accelerators whose agents do not report")]
    problems: list[Problem]


def installation_record(
    installed: Installed,
    accelerator_nodes: int | None,
    silent: Sequence[str],
    now: datetime,
    *,
    sees_health: bool,
) -> InstallationRecord:
    """Returns the state of Rekindle. `accelerator_nodes` is the number of nodes with accelerators, None if
    nodes may not be read; `silent` are those of these nodes without reports."""
    leads = _leads(installed, now)
    knows = accelerator_nodes is not None and sees_health
    return InstallationRecord(
        namespace=installed.namespace,
        mode=installed.mode,
        mode_since=installed.mode_since,
        pause=pause_record(installed.pause, now),
        leader=installed.leader if leads else None,
        leader_renewed_at=installed.renewed_at,
        agents_reporting=accelerator_nodes - len(silent) if accelerator_nodes is not None and knows else None,
        silent_nodes=list(silent),
        problems=list(_problems(installed, accelerator_nodes, silent, now, leads=leads)),
    )


def pause_record(pause: Pause | None, now: datetime) -> PauseRecord | None:
    if pause is None or not pause.lasts(now):
        return None
    return PauseRecord(since=pause.since, until=pause.until, by=pause.by, reason=pause.reason)


def paused(pause: Pause | None) -> tuple[Line, ...]:
    """Returns the line for `why` about a pause that is in force."""
    return (Line(f"{_loud(pause)} `rekindle resume` ends the pause.", Tone.BAD),) if pause is not None else ()


def _loud(pause: Pause) -> str:
    words = pause.words().replace("is paused", "IS PAUSED", 1)
    return (
        f"{words}. Rekindle stops no job, cordons and taints no node, begins no step of a repair, and uses a "
        "spare only for a job that it has already stopped."
    )


def _pause_problems(pause: Pause | None, now: datetime) -> Iterator[Problem]:
    if pause is None or not pause.lasts(now):
        return
    yield Problem(code=ProblemCode.PAUSED, message=_loud(pause), fix="rekindle resume")
    for problem in pause.problems:
        yield Problem(code=ProblemCode.PAUSE_UNUSABLE, message=f"{problem}.", fix="")


def _leads(installed: Installed, now: datetime) -> bool:
    at = installed.renewed_at
    if not installed.leader or at is None:
        return False
    return (now - at).total_seconds() <= 2 * installed.lease_s


def _problems(
    installed: Installed, accelerator_nodes: int | None, silent: Sequence[str], now: datetime, *, leads: bool
) -> Iterator[Problem]:
    space = installed.namespace
    yield from _pause_problems(installed.pause, now)
    look = f"kubectl -n {space} get pods -l app.kubernetes.io/component=controller"
    if "lease" in installed.hidden:
        yield Problem(
            code=ProblemCode.NOT_READABLE,
            message=f"You have no permission to read the Lease in {space}, so this command cannot tell "
            "whether a "
            "controller leads.",
            fix="",
        )
    elif not leads and (installed.mode is not None or "mode" in installed.hidden):
        last = ""
        if installed.renewed_at is not None:
            who = f" by {one_line(installed.leader)}" if installed.leader else ""
            last = f" The lease was last renewed {ago(installed.renewed_at, now)}{who}."
        yield Problem(
            code=ProblemCode.NO_LEADER,
            message=f"NOBODY LEADS: no controller decides, restarts or repairs anything.{last}",
            fix=look,
        )
    if "mode" in installed.hidden:
        yield Problem(
            code=ProblemCode.NOT_READABLE,
            message=f"You have no permission to read ConfigMaps in {space}, so this command cannot tell "
            "the mode.",
            fix="",
        )
    elif installed.mode is None:
        yield Problem(
            code=ProblemCode.NEVER_LED,
            message=f"No controller has recorded its mode in {space}: no controller has led so far, or "
            "Rekindle was removed. Rekindle decides nothing.",
            fix=look,
        )
    if silent:
        nodes = "node" if len(silent) == 1 else "nodes"
        yield Problem(
            code=ProblemCode.SILENT_AGENTS,
            message=f"No agent reports from {nodes} {some(silent, _AGENTS_MAX)}: Rekindle does not see "
            "faults there.",
            fix=f"kubectl -n {space} get pods -l app.kubernetes.io/component=agent -o wide",
        )
    if accelerator_nodes == 0:
        yield Problem(
            code=ProblemCode.NO_ACCELERATORS,
            message="No node has accelerators, so Rekindle has nothing to watch.",
            fix="rekindle doctor",
        )


def installation_lines(
    record: InstallationRecord, accelerator_nodes: int | None, now: datetime
) -> tuple[Line, ...]:
    """Returns the first lines of `status`. Problems come first, and in red."""
    lines = [
        Line(one.message + (f" See `{one.fix}`." if one.fix else ""), Tone.BAD) for one in record.problems
    ]
    parts = []
    if record.mode is not None:
        since = ""
        if record.mode_since is not None:
            age = duration((now - record.mode_since).total_seconds())
            since = f" since {record.mode_since:%Y-%m-%d %H:%M} UTC ({age})"
        parts.append(f"Mode {record.mode}{since}: {_MODES[record.mode]}.")
    if record.leader is not None:
        parts.append(f"Leader: {one_line(record.leader)}.")
    if record.agents_reporting is not None and accelerator_nodes:
        nodes = counted(accelerator_nodes, "node")
        report = "report" if record.leader is not None else "have reported"  # nobody notices if they end
        parts.append(f"Agents {report} from {record.agents_reporting} of {nodes} with accelerators.")
    told = [Line(" ".join(parts), Tone.PLAIN)] if parts else []
    return (*lines, *told)
