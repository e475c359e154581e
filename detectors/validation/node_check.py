"""What a check is, is given, and answers. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from detectors.wire.step_report import Outcome

__all__ = ["CannotRunError", "Node", "NodeCheck", "Result", "failed", "passed"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node as a check knows it. Travels to the check's process as JSON."""

    host_root: str = "/"
    """Folder of the node's proc and dev."""
    devices: tuple[str, ...] = ()
    """UUIDs of those that were repaired; empty where all were, or nobody knows."""
    incident: str = ""
    """For which they were repaired; empty where that was by hand."""
    devices_expected: int = 0
    """How many the node must have; 0 where nobody knows."""
    catalogue: str = ""
    """A TOML file with `[[xid]]` rows of the user, as the agent has them."""


class Result(msgspec.Struct, frozen=True):
    outcome: Outcome
    message: str


class CannotRunError(Exception):
    """The check proves nothing here. The message names what is missing."""


def passed(message: str) -> Result:
    return Result(Outcome.PASSED, message)


def failed(message: str) -> Result:
    return Result(Outcome.FAILED, message)


class NodeCheck(msgspec.Struct, frozen=True):
    """One row of the registration. `run` is called in a process of its own, which is killed at the deadline;
    raises `CannotRunError`, and any other exception is a failed check."""

    name: str
    run: Callable[[Node], Result]
    deadline_s: float
    proves: str
    """What is known when it has passed."""
    needs: str
    """Without which it cannot run."""
