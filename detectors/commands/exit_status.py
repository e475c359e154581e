"""What the exit status of every command means: the one list.

`--help` of a command tells its own row, docs/reference/commands.md all of them. Scripts may rely on the
kinds: 0 is what one hopes for, 1 the other answer, 2 a call to be mended, 3 no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

__all__ = ["MEANINGS", "UNUSABLE", "Exit", "closing"]


class Exit(IntEnum):
    GOOD = 0
    BAD = 1
    """It was answered or tried, and it is not well."""
    UNUSABLE = 2
    """An argument, a setting or a file cannot be used, and nothing was done."""
    NO_ANSWER = 3
    """The cluster does not answer, or what was asked for is not there."""
    DEGRADED = 4
    """What was looked at works, and will not for long."""
    SUSPECT = 5
    """What was looked at may be broken; nothing proves it."""
    PARTLY = 6
    """Part of the question could not be answered, for lack of a right or an answer; the rest is well."""
    INTERRUPTED = 130
    """By Ctrl-C: 128 and the signal's number, as of every program that a signal ends."""


UNUSABLE = "an argument, setting or file cannot be used"
_UNREADABLE = "the cluster cannot be read, or Rekindle is not installed there"
_NOT_THERE = f"{_UNREADABLE}, or there is no such job or node, or several"
_NOT_ALLOWED = "the API server refused a write, and nothing was changed"

MEANINGS: Mapping[str, Mapping[Exit, str]] = {
    "status": {Exit.GOOD: "answered", Exit.NO_ANSWER: _UNREADABLE},
    "why": {
        Exit.GOOD: "answered",
        Exit.NO_ANSWER: _NOT_THERE,
    },
    "doctor": {
        Exit.GOOD: "nothing was found that fails",
        Exit.BAD: "something was",
        Exit.NO_ANSWER: f"{_UNREADABLE}, or there is no such job, or several",
        Exit.PARTLY: "nothing was found that fails, and some checks could not be made",
    },
    "incidents": {Exit.GOOD: "listed", Exit.NO_ANSWER: _UNREADABLE},
    "pause": {Exit.GOOD: "paused", Exit.BAD: _NOT_ALLOWED, Exit.NO_ANSWER: _UNREADABLE},
    "resume": {
        Exit.GOOD: "resumed, or it was not paused",
        Exit.BAD: _NOT_ALLOWED,
        Exit.NO_ANSWER: _UNREADABLE,
    },
    "hold": {Exit.GOOD: "held", Exit.BAD: _NOT_ALLOWED, Exit.NO_ANSWER: _NOT_THERE},
    "release": {
        Exit.GOOD: "released, or it had no hold",
        Exit.BAD: _NOT_ALLOWED,
        Exit.NO_ANSWER: _NOT_THERE,
    },
    "undo": {
        Exit.GOOD: "taken back, or a dry run, or nothing was left to undo",
        Exit.BAD: "a recovery or repair is under way, or the API server refused a write",
        Exit.NO_ANSWER: f"{_UNREADABLE}, or there is no such incident",
    },
    "version": {Exit.GOOD: "printed, also where no controller can be asked"},
    "completion": {Exit.GOOD: "printed"},
    "enable": {Exit.GOOD: "printed", Exit.NO_ANSWER: "no job in it (printed as it was)"},
    "checkpoints scan": {Exit.GOOD: "a checkpoint was chosen", Exit.NO_ANSWER: "none is complete"},
    "read-log": {Exit.GOOD: "read"},
    "recipes list": {Exit.GOOD: "listed"},
    "recipes show": {Exit.GOOD: "shown"},
    "recipes test": {Exit.GOOD: "it matches", Exit.BAD: "it does not"},
    "crds": {Exit.GOOD: "printed or written", Exit.BAD: "not written"},
    "agent": {Exit.GOOD: "ended by SIGTERM or SIGINT", Exit.BAD: "ended by an error"},
    "agent scan": {
        Exit.GOOD: "no finding above info",
        Exit.BAD: "a fatal finding",
        Exit.NO_ANSWER: "the kernel log cannot be read, or the file is none",
        Exit.DEGRADED: "at worst one of severity pending",
        Exit.SUSPECT: "at worst one of severity suspect",
    },
    "controller": {
        Exit.GOOD: "ended by SIGTERM or SIGINT, after it released its Lease",
        Exit.BAD: "ended by an error",
        Exit.NO_ANSWER: "its lease is lost: it ended at once",
    },
    "leave": {
        Exit.GOOD: "nothing that Rekindle wrote is left on any node",
        Exit.BAD: "a mark of Rekindle is left, or a restart or repair is under way and nothing was changed",
        Exit.NO_ANSWER: "the cluster does not answer, or Rekindle is not installed there",
    },
    "validate": {
        Exit.GOOD: "no check has failed; a check that could not run does not count as failed",
        Exit.BAD: "a check has failed",
    },
    "reset-devices": {Exit.GOOD: "the GPUs were reset", Exit.BAD: "the GPUs were not reset"},
    "demo": {
        Exit.GOOD: "both stories ended well",
        Exit.BAD: "a story did not end well",
        Exit.INTERRUPTED: "interrupted",
    },
    "chaos list": {Exit.GOOD: "listed"},
    "chaos run": {Exit.GOOD: "passed", Exit.BAD: "failed", Exit.INTERRUPTED: "interrupted"},
    "chaos simulate": {Exit.GOOD: "no script has a violation", Exit.BAD: "a script has a violation"},
    "bench": {
        Exit.GOOD: "measured; a missed goal is shown, not judged",
        Exit.BAD: "it could not be measured",
    },
}
"""By the command, as it is called; all of `bench` have one row. What 2 means is the same for all."""


def closing(command: str, example: str = "") -> str:
    """How the command's help ends: an example, where one helps, and the exit statuses."""
    row = {**MEANINGS[command], Exit.UNUSABLE: UNUSABLE}
    told = "; ".join(f"{int(status)} {row[status]}" for status in sorted(row))
    return "\n\n".join([*([f"Example: {example}"] if example else []), f"Exit status: {told}."])
