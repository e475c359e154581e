"""Defines the answer of a scan of a checkpoint directory, and the short form in which a scan pod returns it.

scan.py fills these structs; `rekindle checkpoints` prints them; the controller decodes `ScanMessage` from the
pod's termination message.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = [
    "MESSAGE_BYTES_MAX",
    "STEP_END",
    "Checkpoint",
    "Repair",
    "ScanMessage",
    "ScanResult",
    "Verdict",
    "decode_message",
    "encode_message",
    "message_of",
]

MESSAGE_BYTES_MAX = 4096
"""Maximum size of a container's termination message in Kubernetes."""

STEP_END = 2**53
"""Limit of a step. Larger numbers are not exact everywhere in JSON, and no training counts so far."""

REJECTED_MAX = 8
REASON_CHARS_MAX = 200
REPAIRED_MAX = 9
"""Number of lines about repairs: the tracker, and as many as are rejected."""


class Repair(StrEnum):
    """Changes that a scan may make, if the owner of the job allows them."""

    TRACKER = "tracker"
    """The file by which a framework finds its newest checkpoint is changed so that it names the chosen
    one."""
    SET_ASIDE = "set-aside"
    """Damaged checkpoints that are newer than the chosen one are moved to where the framework does not find
    them."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer of a reader about one directory. `reason` is in plain words, and empty if the checkpoint is
    complete. `unread` names a file that was judged by its name and size, since only its owner may read it."""

    complete: bool
    bytes: int = 0
    reason: str = ""
    unread: str = ""


class Checkpoint(msgspec.Struct, frozen=True):
    """One checkpoint as found on disk.

    `path` is relative to the scanned root. `format` is empty if no reader knows the files. `reason` says
    why the checkpoint is incomplete or was excluded, or which part of a complete one was not read.
    """

    step: int
    path: str
    format: str
    complete: bool
    reason: str
    bytes: Annotated[
        int,
        Meta(
            description="the size of the files that the scan measured: of a complete checkpoint all files "
            "that its format requires, of an incomplete checkpoint only the files before the damage (0: "
            "none), and of the format generic only the marker"
        ),
    ]


class ScanResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """All checkpoints, newest first. `chosen` is the newest complete one that was not excluded. `digests`
    says what its bytes were compared with, if that was requested. `ignored` are names in the folder that
    people may take for checkpoints, and that the scan does not."""

    checkpoints: tuple[Checkpoint, ...]
    chosen: Checkpoint | None
    digests: str = ""
    ignored: tuple[str, ...] = ()


class ScanMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A scan in at most 4096 bytes: the choice, and the newest 8 of the newer checkpoints that the scan did
    not choose.

    `found` counts the entries named like a checkpoint, `passed_over` those newer than the choice (all, if
    there is none). `repaired` says what was changed, or could not be; `tracker` says that the framework's own
    tracker names another checkpoint than the chosen one; `digests` is the scan's. `error` says why nothing
    could be scanned at all; everything else is then empty.
    """

    chosen: Checkpoint | None = None
    rejected: tuple[Checkpoint, ...] = ()
    found: int = 0
    passed_over: int = 0
    repaired: tuple[str, ...] = ()
    tracker: str = ""
    digests: str = ""
    error: str = ""


def message_of(result: ScanResult, *, repaired: Sequence[str] = (), tracker: str = "") -> ScanMessage:
    """Returns the message of a result. Rejected checkpoints are those before the chosen one in the list:
    newer, and incomplete or excluded."""
    newer: list[Checkpoint] = []
    for found in result.checkpoints:
        if found == result.chosen:
            break
        newer.append(msgspec.structs.replace(found, reason=found.reason[:REASON_CHARS_MAX]))
    return ScanMessage(
        chosen=result.chosen,
        rejected=tuple(newer[:REJECTED_MAX]),
        found=len(result.checkpoints),
        passed_over=len(newer),
        repaired=tuple(line[:REASON_CHARS_MAX] for line in repaired[:REPAIRED_MAX]),
        tracker=tracker[:REASON_CHARS_MAX],
        digests=result.digests[:REASON_CHARS_MAX],
    )


def encode_message(message: ScanMessage) -> bytes:
    """Returns JSON of at most MESSAGE_BYTES_MAX bytes. If there is more, the oldest rejected checkpoints are
    left out first, then the last repairs, and then the error is cut."""
    while len(encoded := msgspec.json.encode(message)) > MESSAGE_BYTES_MAX:
        if message.rejected:
            message = msgspec.structs.replace(message, rejected=message.rejected[:-1])
        elif message.repaired:
            message = msgspec.structs.replace(message, repaired=message.repaired[:-1])
        else:
            assert message.error, "one checkpoint always fits: its path is a short name and its reason is cut"
            message = msgspec.structs.replace(message, error=message.error[: len(message.error) // 2])
    return encoded


def decode_message(text: str | bytes) -> ScanMessage:
    """Decodes a message of `encode_message`. Raises ValueError if the pod wrote something else, or
    nothing."""
    try:
        return msgspec.json.decode(text, type=ScanMessage)
    except (msgspec.DecodeError, RecursionError) as error:
        start = text[:80]
        raise ValueError(f"the scan's termination message {start!r} is not a scan result: {error}") from error
