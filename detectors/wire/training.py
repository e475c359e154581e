"""Defines the part of NodeHealth about trainings: what the agent has read in the logs of pods (status), and
what the controller asks the agent to read there (spec). contract.py has the rest."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from detectors.wire.base import EVIDENCE_BYTES_MAX, Wire
from detectors.wire.fitting import UTF8

__all__ = [
    "KNOWN_LINES_MAX",
    "LINE_BYTES_MAX",
    "TAIL_BYTES_MAX",
    "Edge",
    "KnownLine",
    "LastSave",
    "LogError",
    "Pace",
    "PodProgress",
    "PodSettings",
    "Signature",
]

KNOWN_LINES_MAX = 8
LINE_BYTES_MAX = 512
TAIL_BYTES_MAX = 2048


class Edge(StrEnum):
    """A change of a pod's progress that is worth a write."""

    STARTED = "started"
    """The container has printed a line that a recipe searches for, a number that may be a step, the report of
    a complete checkpoint, or an error that is its own fault. This is no progress yet."""
    STEPPING = "stepping"
    STALLED = "stalled"
    RESUMED = "resumed"
    ENDED = "ended"


class LogError(Wire, frozen=True, kw_only=True):
    """The first error in a container's log. Its origin is always tenant."""

    code: Annotated[str, Meta(description="Code of the log pattern in the catalogue.", max_length=63)]
    at: datetime
    """Time of the line."""
    text: Annotated[
        str, Meta(description="The line, cut to 256 bytes.", max_length=EVIDENCE_BYTES_MAX, extra=UTF8)
    ] = ""


class KnownLine(Wire, frozen=True, kw_only=True):
    """A log line that a recipe looks for. Its origin is always tenant."""

    signature: Annotated[
        str,
        Meta(description="Name of the recipe whose pattern for log lines matches the line.", max_length=63),
    ]
    at: datetime
    """Time of the line."""
    text: Annotated[
        str, Meta(description="The line, cut to 512 bytes.", max_length=LINE_BYTES_MAX, extra=UTF8)
    ]
    issue: Annotated[
        bool,
        Meta(description="True if the line shows an issue; false if it shows at most that a change helped."),
    ] = False


class LastSave(Wire, frozen=True, kw_only=True):
    """The last checkpoint that the container's log has shown to be complete."""

    at: Annotated[datetime, Meta(description="Time of the line that shows that the checkpoint is complete.")]
    step: Annotated[int | None, Meta(description="Step of the checkpoint, if the log shows the step.")] = None
    served: Annotated[
        str,
        Meta(
            description="Id from `awaitsSave` in the spec, once a checkpoint was complete after the agent "
            "had read that id.",
            max_length=63,
        ),
    ] = ""


class PodProgress(Wire, frozen=True, kw_only=True):
    """Progress of one training container at its last change. The agent does not publish the steps between two
    changes."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    namespace: Annotated[str, Meta(max_length=63)]
    """Namespace of the pod."""
    name: Annotated[str, Meta(max_length=253)]
    """Name of the pod."""
    container: Annotated[str, Meta(max_length=63)] = ""
    """Name of the container."""
    instance: Annotated[
        int, Meta(description="Restart number of the container, from the name of its log file.")
    ] = 0
    edge: Edge
    """The last change of the container's progress."""
    at: Annotated[
        datetime,
        Meta(
            description="Time of the log line that shows this change. For a stall and for the end: time at "
            "which the agent saw the change."
        ),
    ]
    first_step: Annotated[
        int | None,
        Meta(
            description="First step that the container printed, once a later line has shown that the "
            "number rises."
        ),
    ] = None
    first_step_at: datetime | None = None
    """Time of the line with the first step."""
    last_step: Annotated[
        int | None,
        Meta(
            description="Last step that was known at this change. If there is no first step, the last step "
            "comes from a single line."
        ),
    ] = None
    last_step_at: datetime | None = None
    """Time of the line with the last step."""
    step_of_epoch: Annotated[
        bool,
        Meta(
            description="True if the steps begin again with each epoch. Rekindle does not compare such "
            "steps with a checkpoint."
        ),
    ] = False
    median_step_s: Annotated[float | None, Meta(description="Median time of a step, in seconds.")] = None
    longest_pause_s: Annotated[
        float | None,
        Meta(
            description="Longest time in seconds between two lines with a step. Absent until the pause makes "
            "the time longer after which the job counts as hung, and for an older agent."
        ),
    ] = None
    silent_s: Annotated[
        float | None,
        Meta(
            description="For a stall: seconds without a sign of progress, without time in which the agent "
            "did not read. Absent for an older agent."
        ),
    ] = None
    last_save: Annotated[
        LastSave | None,
        Meta(
            description="The last complete checkpoint that was known at this change. Absent if the log "
            "does not show when a checkpoint is complete, and for an older agent, which does "
            "not report it."
        ),
    ] = None
    first_error: LogError | None = None
    """The first error in the container's log."""
    known_lines: Annotated[
        list[KnownLine],
        Meta(
            description="The first line that matches, for each template of a recipe.",
            max_length=KNOWN_LINES_MAX,
        ),
    ] = []
    free_device_bytes: Annotated[
        int | None,
        Meta(
            description="Least free memory of the node's devices in bytes, as last read before the "
            "container ended."
        ),
    ] = None
    tail: Annotated[
        str,
        Meta(
            description="Last lines of an ended container, at most 2 KiB.",
            max_length=TAIL_BYTES_MAX,
            extra=UTF8,
        ),
    ] = ""


class Pace(Wire, frozen=True, kw_only=True):
    """How long the ranks of a job were silent between two steps in its earlier starts."""

    longest_pause_s: Annotated[
        float | None,
        Meta(description="Longest pause between two steps in seconds, if it is longer than most."),
    ] = None
    hung_s: Annotated[
        float | None,
        Meta(
            description="Seconds without a step for which a start of the job was stopped. At the same step "
            "the job counts as hung only after twice this time."
        ),
    ] = None
    hung_step: Annotated[
        int | None,
        Meta(description="The last step before that stop. Absent if the steps begin again with each epoch."),
    ] = None


class PodSettings(Wire, frozen=True, kw_only=True):
    """How the agent reads the log of one pod, from the annotations of the pod's job and from the earlier
    starts of the job, and what the controller waits for in that log."""

    uid: Annotated[str, Meta(max_length=64)]
    """UID of the pod."""
    step_template: Annotated[
        str, Meta(description="Literal text with {step} once, from the job's annotation.", max_length=128)
    ] = ""
    hang_timeout_s: Annotated[
        float | None,
        Meta(
            description="Seconds without a new step after which the job counts as hung; 0 disables the "
            "detection."
        ),
    ] = None
    pace: Pace | None = None
    """How long the ranks were silent in earlier starts of the job. Absent if no agent has reported a long
    pause."""
    awaits_save: Annotated[
        str,
        Meta(
            description="Id of a wait: the controller moves the job once its next checkpoint is complete, "
            "and the agent reports that checkpoint at once.",
            max_length=63,
        ),
    ] = ""


class Signature(Wire, frozen=True, kw_only=True):
    """Templates of the log lines by which one recipe of a user recognises its issue."""

    name: Annotated[str, Meta(description="Name of the recipe.", max_length=63)]
    match: Annotated[list[Annotated[str, Meta(max_length=300)]], Meta(max_length=32)] = []
    """Templates of the lines that show the issue."""
    verify: Annotated[
        list[Annotated[str, Meta(max_length=300)]],
        Meta(description="Templates of the lines that show that the change helped.", max_length=4),
    ] = []
