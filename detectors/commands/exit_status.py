"""Defines the meaning of the exit status of every command, in one list.

`--help` of a command shows its own row, and docs/reference/commands.md shows all rows. Scripts may rely on
the kinds: 0 is the good answer, 1 the other answer, 2 a call that the user must correct, 3 no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

__all__ = ["KEPT", "MEANINGS", "UNUSABLE", "Exit", "closing"]


class Exit(IntEnum):
    GOOD = 0
    BAD = 1
    """The command answered or tried, and the answer is not good."""
    UNUSABLE = 2
    """An argument, a setting or a file cannot be used. Most commands then do nothing; `recipes list` still
    lists the usable files."""
    NO_ANSWER = 3
    """The cluster does not answer, or the object does not exist."""
    DEGRADED = 4
    """The subject works, and will not work for long."""
    SUSPECT = 5
    """The subject may be broken, without proof."""
    PARTLY = 6
    """Some checks could not be made, because a permission or an answer was missing; all others passed."""
    INTERRUPTED = 130
    """Ctrl-C ended the command: 128 and the signal's number, as for every program that a signal ends."""


KEPT = "\b\n"
"""Beginning of a paragraph of a help whose lines are not wrapped, since a command that is copied in two lines
does not run. typer's library reads this mark, and so does detectors/commands/arguments.py."""

UNUSABLE = "an argument, setting or file cannot be used"
_UNREADABLE = "the cluster cannot be read, or Rekindle is not installed there"
_NOT_THERE = f"{_UNREADABLE}, or no job or node, or more than one, has this name"
_NOT_ALLOWED = "the API server refused a write, and nothing was changed"

MEANINGS: Mapping[str, Mapping[Exit, str]] = {
    "status": {Exit.GOOD: "answered", Exit.NO_ANSWER: _UNREADABLE},
    "why": {
        Exit.GOOD: "answered",
        Exit.NO_ANSWER: _NOT_THERE,
    },
    "doctor": {
        Exit.GOOD: "no check failed (with --strict: and no risk was found)",
        Exit.BAD: "a check failed",
        Exit.NO_ANSWER: f"{_UNREADABLE}, or no job, or more than one, has this name, or the manifest has no "
        "object of a kind that Rekindle restarts",
        Exit.PARTLY: "no check failed, and some checks could not be made, because the API server refused or "
        "failed a read",
    },
    "incidents": {Exit.GOOD: "listed", Exit.NO_ANSWER: _UNREADABLE},
    "pause": {Exit.GOOD: "paused", Exit.BAD: _NOT_ALLOWED, Exit.NO_ANSWER: _UNREADABLE},
    "resume": {
        Exit.GOOD: "resumed, or Rekindle was not paused",
        Exit.BAD: _NOT_ALLOWED,
        Exit.NO_ANSWER: _UNREADABLE,
    },
    "hold": {Exit.GOOD: "held", Exit.BAD: _NOT_ALLOWED, Exit.NO_ANSWER: _NOT_THERE},
    "release": {
        Exit.GOOD: "the hold was removed, or there was no hold",
        Exit.BAD: _NOT_ALLOWED,
        Exit.NO_ANSWER: _NOT_THERE,
    },
    "undo": {
        Exit.GOOD: "undone, or a dry run, or nothing was left to undo",
        Exit.BAD: "a recovery or repair is under way, or another open incident names the node, or the API "
        "server refused a write",
        Exit.NO_ANSWER: f"{_UNREADABLE}, or there is no such incident",
    },
    "version": {Exit.GOOD: "the version was printed, even if no controller answers"},
    "completion": {Exit.GOOD: "printed"},
    "enable": {
        Exit.GOOD: "printed",
        Exit.NO_ANSWER: "the manifest has no object of a kind that Rekindle restarts (printed unchanged)",
    },
    "checkpoints scan": {Exit.GOOD: "a checkpoint was chosen", Exit.NO_ANSWER: "no checkpoint is complete"},
    "read-log": {Exit.GOOD: "read"},
    "recipes list": {Exit.GOOD: "listed"},
    "recipes show": {Exit.GOOD: "shown"},
    "recipes test": {Exit.GOOD: "the recipe matches", Exit.BAD: "the recipe does not match"},
    "crds": {Exit.GOOD: "printed or written", Exit.BAD: "not written"},
    "agent": {Exit.GOOD: "ended by SIGTERM or SIGINT", Exit.BAD: "ended by an error"},
    "agent scan": {
        Exit.GOOD: "no finding above info",
        Exit.BAD: "a fatal finding",
        Exit.NO_ANSWER: "the kernel log cannot be read, or the file is no kernel log",
        Exit.DEGRADED: "the worst finding has severity pending",
        Exit.SUSPECT: "the worst finding has severity suspect",
    },
    "controller": {
        Exit.GOOD: "ended by SIGTERM or SIGINT, and its lease is free",
        Exit.BAD: "ended by an error",
        Exit.NO_ANSWER: "the controller lost its lease and ended at once",
    },
    "cleanup": {
        Exit.GOOD: "nothing of Rekindle is left on any node but cordons of nodes that may still be broken",
        Exit.BAD: "something is left, or a restart or repair is under way and no node was changed",
        Exit.NO_ANSWER: "the cluster does not answer, or Rekindle is not installed there",
    },
    "validate": {
        Exit.GOOD: "no check failed; a check that could not run does not count as failed",
        Exit.BAD: "a check failed",
    },
    "reset-devices": {Exit.GOOD: "the GPUs were reset", Exit.BAD: "the GPUs were not reset"},
    "demo": {
        Exit.GOOD: "the job recovered from both faults",
        Exit.BAD: "the job did not recover from a fault",
        Exit.INTERRUPTED: "interrupted",
    },
    "chaos list": {Exit.GOOD: "listed"},
    "chaos run": {Exit.GOOD: "passed", Exit.BAD: "failed", Exit.INTERRUPTED: "interrupted"},
    "chaos simulate": {Exit.GOOD: "no script has a violation", Exit.BAD: "a script has a violation"},
    "bench": {
        Exit.GOOD: "measured, even if a figure misses the goal in its table",
        Exit.BAD: "the measurement failed",
    },
}
"""Meanings by the command's name; all commands of `bench` share one row. Status 2 means the same for all
commands."""


def closing(command: str, example: str = "") -> str:
    """Returns the end of the command's help: an example, if one helps, and the exit statuses."""
    row = {**MEANINGS[command], Exit.UNUSABLE: UNUSABLE}
    told = "; ".join(f"{int(status)} {row[status]}" for status in sorted(row))
    lines = [f"{KEPT}Example:\n  {example}"] if example else []
    return "\n\n".join([*lines, f"Exit status: {told}."])
