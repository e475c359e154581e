"""Decides which of a gang's lost ranks failed first, and which ranks only followed. Pure; for ranks.py,
gang_faults.py, verdicts.py and began_there.py.

The log of a rank says whether the rank failed by itself or lost a peer (detectors/rules/first_error.py).
Among the ranks that failed by themselves, the rank with the earliest error is the cause. Times come from
different nodes' clocks, so between errors that are close to each other, an error that says what broke counts
before an error that does not.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from signal import Signals

from detectors.catalog.log_errors import Failed, Implies, LogErrorRow, packaged_log_errors
from recover.diagnose.diagnosis import Loss
from recover.diagnose.out_of_memory import OOM_KILLED

__all__ = ["exit_words", "follows", "in_order", "nobody_is_blamed", "told_by_log", "what_failed"]

_SIGTERM = 143
"""Exit code of an orderly stop."""
_DYING = timedelta(minutes=2)
"""Time that a process may take from its error to its end, if its library waits for peers or its launcher
waits for other workers. The process survived an older error, even if no step has shown that."""
_CLOCKS = timedelta(seconds=5)
"""Largest difference between clocks that are kept in time. Within this time a rank also dies of a peer that
it has lost."""
_WORDS = {
    Implies.PEER_LOST: "a propagated error: the log says that the rank lost a peer",
    Implies.TIMED_OUT: "a propagated error: the log says that the rank waited in vain for a peer",
    Implies.TOLD_TO_END: "a propagated error: the log says that the rank received the order to end",
    Implies.SAID_ELSEWHERE: "the log says only that a process failed",
}


def follows(code: str, error: str) -> bool:
    """Whether the log of a rank that was lost as `code` says that the cause is elsewhere. A pod
    that is removed is told to end, so its log is then no evidence of another loss."""
    said = _implied(error)
    if said is Implies.TOLD_TO_END:
        return not _is_from_outside(code)
    if said is Implies.SAID_ELSEWHERE:
        return code != OOM_KILLED
    return said.propagated


def what_failed(error: str) -> tuple[Failed, str]:
    """Returns what failed if this is the first error of a log, and what the error means."""
    row = _rows().get(error)
    if row is None or row.implies is not Implies.OWN_FAULT:
        return Failed.PROGRAM, ""
    return row.failed, row.meaning


def _is_from_outside(code: str) -> bool:
    return not code.startswith("exit-") and code not in (OOM_KILLED, "failed")


def _implied(code: str) -> Implies:
    """Returns what the first error of a log says about its rank. A code that people added counts as the
    rank's own fault."""
    row = _rows().get(code)
    return row.implies if row is not None else Implies.OWN_FAULT


@cache
def _rows() -> dict[str, LogErrorRow]:
    return {row.code: row for row in packaged_log_errors()}


def in_order(found: list[Loss]) -> list[Loss]:
    """Returns the losses with the first loss first. Ranks whose logs report a loss elsewhere come last,
    whatever their times say."""
    ordered = sorted(
        found, key=lambda loss: (loss.propagated, _failed_at(loss), not _by_itself(loss), loss.pod)
    )
    if len(ordered) < 2 or ordered[0].propagated or _says_why(ordered[0]):
        return ordered
    until = _failed_at(ordered[0]) + _CLOCKS
    close = (loss for loss in ordered if not loss.propagated and _failed_at(loss) <= until)
    first = next((loss for loss in close if _says_why(loss)), ordered[0])
    return [first, *(loss for loss in ordered if loss is not first)]


def told_by_log(loss: Loss) -> str:
    """Returns words for the first error, without the log's own text, because other people may read them."""
    if not loss.error:
        return ""
    words = _WORDS.get(_implied(loss.error), "the first error in the log")
    return f"{words} ({loss.error})"


def nobody_is_blamed(loss: Loss) -> str:
    """Returns why the program is not blamed, if the log of the first loss says that the cause is
    elsewhere."""
    match _implied(loss.error):
        case Implies.TOLD_TO_END:
            said = "the rank received the order to end, and the sender is unknown"
        case Implies.SAID_ELSEWHERE:
            said = "a process failed, without the cause"
        case _:
            said = "another rank failed earlier, and no earlier failure is known"
    return f"there is no culprit, because the log says that {said}"


def _failed_at(loss: Loss) -> datetime:
    """Returns when the rank's own fault was printed, or otherwise when the rank ended."""
    at = loss.error_at
    is_of_this_end = at is not None and timedelta() <= loss.at - at <= _DYING
    return at if at is not None and is_of_this_end and not loss.propagated else loss.at


def _says_why(loss: Loss) -> bool:
    """Whether it is known what ended the rank: a named fault, a signal, or the removal of its pod."""
    if _by_itself(loss) or _is_from_outside(loss.code):
        return True
    return bool(loss.error) and _implied(loss.error) is Implies.OWN_FAULT


def _by_itself(loss: Loss) -> bool:
    """Whether a signal or a lack of memory ended the rank. Among losses in one second such a loss came first:
    a rank that loses a peer exits by itself.

    The API keeps whole seconds.
    """
    code = loss.code.removeprefix("exit-")
    return loss.code == OOM_KILLED or (code.isdigit() and int(code) > 128 and int(code) != _SIGTERM)


def exit_words(code: str) -> str:
    """Returns the code of a loss for people: `exit-139: SIGSEGV` for a process that a signal ended."""
    status = code.removeprefix("exit-")
    number = int(status) - 128 if code.startswith("exit-") and status.isdecimal() else 0
    known = {one.value: one.name for one in Signals}
    return f"{code}: {known[number]}" if number in known else code
