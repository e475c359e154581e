"""Runs one check, ours or a command of the user, and takes its result. A check that has given no answer at
its deadline has failed."""

from __future__ import annotations

import sys

import msgspec

from detectors.validation.node_check import Node, NodeCheck, Result, failed, passed
from detectors.validation.processes import Ended, run_within
from detectors.wire.step_report import Outcome

__all__ = ["STATUS_NOT_RUN", "of_check", "of_command"]

STATUS_NOT_RUN = 77
"""Exit status by which a command of the user reports that it proves nothing here; the same as in the GNU test
harnesses."""


def of_check(check: NodeCheck, node: Node, deadline_s: float) -> Result:
    end = run_within(
        [
            sys.executable,
            "-m",
            "detectors.validation.check_child",
            check.name,
            msgspec.json.encode(node).decode(),
        ],
        deadline_s,
    )
    if end.status is None:
        return _no_answer(end, deadline_s)
    try:
        return msgspec.json.decode(end.output, type=Result)
    except msgspec.MsgspecError:
        return failed(f"its process {end.how}: {end.last_words or 'it said nothing'}")


def of_command(command: list[str], deadline_s: float) -> Result:
    """Runs a command of the user. Exit status 0 is passed, `STATUS_NOT_RUN` not run, any other status
    failed; the last line of the output is the message."""
    try:
        end = run_within(command, deadline_s)
    except OSError as error:
        return failed(f"{command[0]} cannot be started: {error.strerror or error}")
    if end.status is None:
        return _no_answer(end, deadline_s)
    words = end.last_words
    if end.status == STATUS_NOT_RUN:
        return Result(Outcome.NOT_RUN, words or "it did not say what it lacks")
    return passed(words) if end.status == 0 else failed(f"it {end.how}: {words}".removesuffix(": "))


def _no_answer(end: Ended, deadline_s: float) -> Result:
    stuck = ", and its process does not end: it hangs in the driver" if end.stuck else ""
    said = f"; it said last: {end.last_words}" if end.last_words else ""
    return failed(f"no answer within {deadline_s:g} s{stuck}{said}")
