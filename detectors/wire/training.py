"""The part of NodeHealth that tells of trainings: what the agent has read in the logs of pods (status), and
what the controller asks it to read there (spec). contract.py has the rest.
"""

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
    "PodProgress",
    "PodSettings",
    "Signature",
]

KNOWN_LINES_MAX = 8
LINE_BYTES_MAX = 512
TAIL_BYTES_MAX = 2048


class Edge(StrEnum):
    """The changes of a pod's progress that are worth a write."""

    STARTED = "started"
    """It has printed a line that a recipe looks for, and no step yet: this is no progress."""
    STEPPING = "stepping"
    STALLED = "stalled"
    RESUMED = "resumed"
    ENDED = "ended"


class LogError(Wire, frozen=True, kw_only=True):
    """The first error a pod's log showed. Always of origin tenant."""

    code: Annotated[str, Meta(description="catalogue code of the log pattern", max_length=63)]
    at: datetime
    text: Annotated[
        str, Meta(description="the line, cut to 256 bytes", max_length=EVIDENCE_BYTES_MAX, extra=UTF8)
    ] = ""


class KnownLine(Wire, frozen=True, kw_only=True):
    """A log line that a recipe looks for. Always of origin tenant."""

    signature: Annotated[str, Meta(description="the recipe whose template found it", max_length=63)]
    at: datetime
    text: Annotated[
        str, Meta(description="the line, cut to 512 bytes", max_length=LINE_BYTES_MAX, extra=UTF8)
    ]
    issue: Annotated[
        bool, Meta(description="it shows an issue; else it shows at most that a change helped")
    ] = False


class LastSave(Wire, frozen=True, kw_only=True):
    """The last checkpoint that a log has shown to be complete."""

    at: Annotated[datetime, Meta(description="time of the line that shows it")]
    step: Annotated[int | None, Meta(description="where the log says it")] = None
    served: Annotated[
        str,
        Meta(
            description="the spec's awaitsSave, once a checkpoint was complete after the agent had read it",
            max_length=63,
        ),
    ] = ""


class PodProgress(Wire, frozen=True, kw_only=True):
    """Where one training container stood at its last edge. Steps in between are not published."""

    uid: Annotated[str, Meta(description="pod uid", max_length=64)]
    namespace: Annotated[str, Meta(max_length=63)]
    name: Annotated[str, Meta(max_length=253)]
    container: Annotated[str, Meta(max_length=63)] = ""
    instance: Annotated[int, Meta(description="restart number of the container, from its log's name")] = 0
    edge: Edge
    at: Annotated[datetime, Meta(description="when this edge was seen")]
    first_step: Annotated[
        int | None,
        Meta(description="first step this container printed, once a later line has shown that it rises"),
    ] = None
    first_step_at: datetime | None = None
    last_step: Annotated[
        int | None,
        Meta(
            description="last step known at this edge; without a first step it is what a single line has told"
        ),
    ] = None
    last_step_at: datetime | None = None
    step_of_epoch: Annotated[
        bool, Meta(description="the steps begin again with each epoch, and are compared with no checkpoint")
    ] = False
    median_step_s: Annotated[float | None, Meta(description="median time of a step, in seconds")] = None
    last_save: Annotated[
        LastSave | None,
        Meta(
            description="the last complete checkpoint, as known at this edge; unset where the log does not "
            "show when one is complete, and for an older agent, which does not report it"
        ),
    ] = None
    first_error: LogError | None = None
    known_lines: Annotated[
        list[KnownLine],
        Meta(description="for each template of a recipe the first line with it", max_length=KNOWN_LINES_MAX),
    ] = []
    free_device_bytes: Annotated[
        int | None,
        Meta(description="least free memory of the node's devices, as last read before the container ended"),
    ] = None
    tail: Annotated[
        str,
        Meta(
            description="last lines of an ended container, at most 2 KiB",
            max_length=TAIL_BYTES_MAX,
            extra=UTF8,
        ),
    ] = ""


class PodSettings(Wire, frozen=True, kw_only=True):
    """What a job's annotations say about reading one pod's log, and what the controller waits for in it."""

    uid: Annotated[str, Meta(max_length=64)]
    step_template: Annotated[str, Meta(description="literal, with {step} once", max_length=128)] = ""
    hang_timeout_s: Annotated[float | None, Meta(description="0 means off")] = None
    awaits_save: Annotated[
        str,
        Meta(
            description="id of a wait: the controller moves the job once its next checkpoint is complete, "
            "and wants to hear of that at once",
            max_length=63,
        ),
    ] = ""


class Signature(Wire, frozen=True, kw_only=True):
    """The log lines by which one recipe of a user knows its issue, as templates."""

    name: Annotated[str, Meta(description="of the recipe", max_length=63)]
    match: Annotated[list[Annotated[str, Meta(max_length=300)]], Meta(max_length=32)] = []
    verify: Annotated[
        list[Annotated[str, Meta(max_length=300)]],
        Meta(description="lines that show that the change helped", max_length=4),
    ] = []
