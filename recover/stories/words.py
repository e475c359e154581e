"""Words that all stories share: ages, faults, sources, reasons; and the parts of which a story consists.
Pure.

incident_words.py, why_job.py, why_node.py and overview.py tell stories from API objects in these words;
recover.cli prints the stories.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import Fault, Origin, Source
from recover.api import Act, ActionRecord, Outcome
from recover.api.reasons import EXPLANATIONS, Reason

__all__ = [
    "FAULTS",
    "ORIGINS",
    "SOURCES",
    "Command",
    "Line",
    "Section",
    "Story",
    "Tone",
    "ago",
    "cause_words",
    "clock",
    "counted",
    "duration",
    "explained",
    "generic_step",
    "lowered",
    "named",
    "record",
    "some",
    "why_not_taken",
]


class Tone(StrEnum):
    """Meaning of a line; cli/telling.py gives it a colour."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    WAITING = "waiting"
    DETAIL = "detail"
    """The line belongs to the line above it."""


class Line(msgspec.Struct, frozen=True):
    """One line, even if its text contains line breaks: a line break could forge a line or a section."""

    text: str
    tone: Tone = Tone.PLAIN

    def __post_init__(self) -> None:
        if len(self.text.splitlines()) > 1:
            msgspec.structs.force_setattr(self, "text", " ".join(self.text.split()))


class Section(msgspec.Struct, frozen=True):
    title: str
    lines: tuple[Line, ...]


class Command(msgspec.Struct, frozen=True):
    """A command that is useful next, and its purpose."""

    run: str
    why: str


class Story(msgspec.Struct, frozen=True):
    """One answer: the verdict first, then its reasons, then what a person can do."""

    subject: str
    verdict: Line
    sections: tuple[Section, ...]
    commands: tuple[Command, ...]


FAULTS: dict[Fault, str] = {
    Fault.DEVICE_LOST: "a GPU was lost",
    Fault.DEVICE_RESET: "a GPU needs a reset",
    Fault.MEMORY_DEGRADED: "GPU memory is degraded",
    Fault.NVLINK: "an NVLink failed",
    Fault.NVSWITCH: "an NVSwitch failed",
    Fault.NETWORK: "the network failed",
    Fault.HOST: "the node failed",
    Fault.HOST_HARDWARE: "a processor or the node's memory failed",
    Fault.STORAGE: "storage failed",
    Fault.THERMAL: "a GPU is too hot",
    Fault.POWER: "power failed",
    Fault.DRIVER: "the GPU driver failed",
    Fault.RESOURCES: "memory, a disk or a quota of the job is used up",
    Fault.APPLICATION: "the program failed",
    Fault.HANG: "the job hung",
    Fault.STRAGGLER: "a rank is slow",
    Fault.CORRUPTION: "data was corrupted",
    Fault.UNKNOWN: "the cause is unknown",
}

_TAKEN = {
    "deleted": "a pod was deleted{on}, for example by a drain",
    "evicted": "a pod was evicted{on}",
    "made-way": "the kubelet ended a pod{on} for a shutdown or another pod",
    "node-gone": "a node disappeared",
    "not-admitted": "a pod was not admitted{on}",
    "pod-deadline": "a pod reached the deadline of its template{on}",
}
"""Words for a pod that was ended from outside. The fault class is host, although no node need have failed."""


_HAPPENED: dict[Fault, str] = {
    Fault.DEVICE_RESET: "a GPU needed a reset",
    Fault.MEMORY_DEGRADED: "GPU memory degraded",
    Fault.HOST: "a node failed",
    Fault.HOST_HARDWARE: "a processor or memory failed",
    Fault.THERMAL: "a GPU was too hot",
    Fault.RESOURCES: "memory, a disk or a quota of the job was used up",
    Fault.STRAGGLER: "a rank was slow",
    Fault.UNKNOWN: "a failure of unknown cause",
}
"""Words for a past fault. The table has only faults whose words in FAULTS are about the present, or about one
node that the reader has in view."""


def cause_words(fault: Fault, error: str, nodes: Iterable[str] = ()) -> str:
    """Returns what happened to a job, and on which nodes. `error` is the code of the job's own failure, if it
    has one."""
    names = list(dict.fromkeys(nodes))
    on = f" on {some(names, 2)}" if names else ""
    one = "node" if len(names) == 1 else "nodes"
    if error == "node-gone" and names:
        return f"{one} {some(names, 2)} disappeared"
    if error in _TAKEN:
        return _TAKEN[error].format(on=on)
    if fault is Fault.HOST and names:
        return f"{one} {some(names, 2)} failed"
    said = _HAPPENED.get(fault, FAULTS[fault])
    return f"{said}{on}" + (f" ({error})" if error else "")


ORIGINS: dict[Origin, str] = {
    Origin.KERNEL: "the kernel log",
    Origin.DRIVER: "a device driver",
    Origin.FABRIC: "the fabric manager",
    Origin.KUBELET: "Kubernetes",
    Origin.VENDOR: "a vendor's agent",
    Origin.TENANT: "the job itself",
}

SOURCES: dict[Source, str] = {
    Source.KMSG: "kernel log",
    Source.NVML: "GPU driver (NVML)",
    Source.PODS: "devices of pods",
    Source.LOGS: "logs of pods",
    Source.FABRIC: "network ports",
    Source.VOLUMES: "volumes of pods",
    Source.HOST: "the node itself",
}

_ACTIONS: dict[str, tuple[str, str]] = {
    Act.QUARANTINE_NODE: ("quarantined", "quarantine"),
    Act.RELEASE_NODE: ("ended the quarantine of", "end the quarantine of"),
    Act.RESTART_GANG: ("planned the restart of", "restart"),
    Act.MOVE_GANG: ("planned the move of", "move"),
    Act.REPAIR_NODE: ("repaired", "repair"),
    Act.REMAKE_INCIDENT: ("created the Incident again for", "create the Incident again for"),
    Act.LIFT_SPARE: ("found a spare for", "use a spare for"),
    Act.APPLY_RECIPE: ("applied a recipe to", "apply a recipe to"),
}


_EXACT = frozenset((Reason.STALE_EVIDENCE,))
"""Reasons that have several possible causes. The record's message names the cause that is true, with its
time."""


_LOWERED = (
    "After ",
    "The ",
    "Other ",
    "Nothing ",
    "You ",
    "A ",
    "No ",
    "Somebody ",
)
"""First words that `lowered` changes. Other sentences may begin with a name, which keeps its capital
letter."""


def named(subject: str, line: Line) -> Line:
    """Returns a headline that names its subject, so that it can be passed on without its context."""
    text = line.text
    if subject in text:
        return line
    return Line(f"{subject}: {lowered(text)}", line.tone)


def lowered(text: str) -> str:
    """Returns a sentence as it is written after a colon."""
    return text[0].lower() + text[1:] if text.startswith(_LOWERED) else text


def ago(moment: datetime, now: datetime) -> str:
    """Returns an age such as `3 min ago`. A moment ahead of this machine's clock is `just now`."""
    age_s = (now - moment).total_seconds()
    return "just now" if age_s < 1 else f"{duration(age_s)} ago"


def duration(seconds: float) -> str:
    """Returns a duration with about two significant digits: 0.4 s, 12 s, 3 min, 5 h, 2 days. `0.0 s` would
    read as no time at all."""
    if seconds < 0.05:
        return "less than 0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for size, unit, limit in ((1, "s", 120), (60, "min", 7200), (3600, "h", 172800)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%S} UTC"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Returns `1 node`, `2 nodes`; `plural` is for irregular plurals."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def some(names: Iterable[str], at_most: int = 8) -> str:
    """Returns `a, b, c and 5 more`."""
    every = list(names)
    shown = ", ".join(every[:at_most])
    return shown if len(every) <= at_most else f"{shown} and {len(every) - at_most} more"


def explained(reason: str) -> str:
    """Returns the plain meaning of a reason; empty for a reason of a newer version."""
    try:
        return EXPLANATIONS[Reason(reason)].meaning
    except ValueError:
        return ""


def generic_step(reason: str) -> tuple[str, ...]:
    """Returns the next step that a reason itself defines, whatever the job or node. Empty for a reason of a
    newer version, or if there is nothing to do."""
    known = next((one for one in Reason if one == reason), None)
    step = EXPLANATIONS[known].next_step if known is not None else ""
    return (step,) if step not in ("", "Nothing to do.") else ()


def record(action: ActionRecord, now: datetime) -> tuple[Line, ...]:
    """Returns the lines about one action of an Incident. The reason of an action that was not taken is
    explained."""
    past, verb = _ACTIONS.get(action.action, (f"did {action.action} for", action.action))
    when, said = ago(action.at, now), one_line(action.message)
    match action.outcome:
        case Outcome.DONE:
            done = f"Rekindle {past} {action.target} {when}"
            return (Line(done + (f": {said}" if said else ""), Tone.GOOD),)
        case Outcome.WOULD:
            head = Line(f"Rekindle would {verb} {action.target} ({action.reason}, {when})", Tone.WAITING)
        case Outcome.REFUSED:
            head = Line(f"Rekindle did not {verb} {action.target} ({action.reason}, {when})", Tone.BAD)
    details = why_not_taken(action.reason, said.removeprefix(f"would {verb} {action.target}").lstrip())
    return (head, *(Line(text, Tone.DETAIL) for text in details))


def why_not_taken(reason: str, said: str) -> tuple[str, ...]:
    """Returns why an action was not taken, each sentence once. `said` is the message of the record. The
    meaning of the reason lists every possible cause, so it is left out if the message has the exact cause."""
    if said and reason in _EXACT:
        return (said,)
    return tuple(text for text in (said, explained(reason)) if text)
