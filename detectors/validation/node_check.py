"""Defines a check, its input and its result. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from detectors.wire.step_report import Outcome

__all__ = ["CannotRunError", "Node", "NodeCheck", "Result", "failed", "passed"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node as a check sees it. It is passed to the check's process as JSON."""

    host_root: str = "/"
    """Folder of the node's proc and dev."""
    devices: tuple[str, ...] = ()
    """UUIDs of the repaired devices; empty if all were repaired, or if they are not known."""
    incident: str = ""
    """Incident of the repair; empty if a person repaired the node."""
    devices_expected: int = 0
    """Number of GPUs that the node must have; 0 if it is not known."""
    catalogue: str = ""
    """Path of a TOML file with rows of the user, the same as the agent's `catalogue.extra`."""


class Result(msgspec.Struct, frozen=True):
    outcome: Outcome
    message: str


class CannotRunError(Exception):
    """The check proves nothing here. The message says what is missing."""


def passed(message: str) -> Result:
    return Result(Outcome.PASSED, message)


def failed(message: str) -> Result:
    return Result(Outcome.FAILED, message)


class NodeCheck(msgspec.Struct, frozen=True):
    """One row of the registration. `run` is called in a separate process, which is killed at the deadline.
    `run` may raise `CannotRunError`; any other exception is a failed check."""

    name: str
    run: Callable[[Node], Result]
    deadline_s: float
    proves: str
    """The fact that is proven when the check has passed."""
    needs: str
    """The requirement without which the check cannot run."""
