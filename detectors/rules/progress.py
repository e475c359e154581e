"""Training steps in a container's log, and when their absence is a stall. Pure; pods.py makes edges of it.

A job may give a literal template (`step {step}/`); without one the usual wordings are read. Either way the
number may be padded with spaces, or be grouped as `1,234`. No regular expression ever sees tenant text: each
line costs its length, once per wording.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median

import msgspec

from detectors.rules import bars

__all__ = ["Progress", "began", "median_step_s", "observe", "stall_limit_s", "step_in", "steps_in"]

_WORDS = ("global_step", "global step", "iteration", "step", "iter")
_KINDS = frozenset({"global", "train", "training", "optimizer"})
_NOT_AFTER = frozenset({"from", "at", "for", "to", "after", "until", "every", "per", "last", "latest", "max"})
"""`resumed from step 40`, `seconds per step: 3`: such a line tells of a step and makes none."""
_NOT_OF_TRAINING = frozenset(
    {"checkpoint", "saved", "val", "valid", "validation", "validating", "eval", "evaluation", "evaluating"}
)
"""`Validation: iteration 1/32`, `[Eval][Epoch 1][Iter: 0/7]`, `Checkpoint saved: step 40`."""
_TOLD_BEFORE = frozenset({"resumed", "resuming", "restored", "restoring", "loaded", "saved"})
"""`Restoring states from the checkpoint path at /ckpt/epoch=0-step=40.ckpt`: of PyTorch Lightning."""
_TOLD_BEHIND = ("' reached ", "' was not in top ")
"""`Epoch 0, global step 40: 'val_loss' reached 0.3`: of its ModelCheckpoint, hours apart."""
_BETWEEN = " \t:=#[(\"'"
_BETWEEN_CHARS_MAX = 8
_BEFORE_CHARS = 20
_AROUND_WORD = "()[]:,;.*"
_DIGITS_MAX = 15
_GROUP_DIGITS = 3
_LINE_CHARS_MAX = 4096
_PLACES_MAX = 8
_DURATIONS_MAX = 32
_TOGETHER_S = 0.005


class Progress(msgspec.Struct, frozen=True):
    """Steps of one container instance. `durations_s` are the last times per step, `pauses_s` those between
    two lines that tell of one, newest last; the first pause is the time before the first such line."""

    first_step: int | None = None
    first_step_at: datetime | None = None
    last_step: int | None = None
    last_step_at: datetime | None = None
    durations_s: tuple[float, ...] = ()
    pauses_s: tuple[float, ...] = ()
    heard_at: datetime | None = None
    """When the last pause ended, by what we have read ourselves; at first, when the container began."""
    heard_step: int | None = None
    """The step that ended it."""


def step_in(line: str, template: str = "") -> int | None:
    """The step that a log line names.

    >>> step_in("epoch 0 step 12/100 loss 0.3"), step_in("it=7!", "it={step}!"), step_in("step time: 12 ms")
    (12, 7, None)
    >>> step_in("resumed from step 40 (/ckpt/step-40)")
    """
    line = line[:_LINE_CHARS_MAX]
    if bars.without_rate(line):
        return None
    if template:
        head, _, tail = template.partition("{step}")
        return _by_template(line, head, tail)
    lower = line.lower()
    found = next((step for word in _WORDS if (step := _by_word(lower, word)) is not None), None)
    return found if found is not None else bars.step_of(lower)


def steps_in(pieces: Sequence[str], template: str = "") -> tuple[int, int] | None:
    """The first and the last step of a line that is written over."""
    found = [step for piece in pieces if (step := step_in(piece, template)) is not None]
    return (found[0], found[-1]) if found else None


def observe(progress: Progress, step: int, at: datetime, *, first: int | None = None) -> Progress:
    """A step that is not the last one again moves the progress; going back counts too (a resume in place).
    `first` is an earlier one that came with it."""
    if step == progress.last_step:
        return progress
    progress = _heard(progress, step, at)
    if progress.last_step is None:
        first = step if first is None else first
        progress = msgspec.structs.replace(progress, first_step=first, first_step_at=at)
    return msgspec.structs.replace(progress, last_step=step, last_step_at=at)


def began(progress: Progress, at: datetime) -> Progress:
    """The container's first line, whatever it says: the pause before its first step begins."""
    return progress if progress.heard_at is not None else msgspec.structs.replace(progress, heard_at=at)


def _heard(progress: Progress, step: int, at: datetime) -> Progress:
    """What came together counts once: a program that buffers its output prints a hundred steps at a time."""
    last_at = progress.last_step_at
    if last_at is not None and 0 <= (at - last_at).total_seconds() < _TOGETHER_S:
        return progress
    pauses_s, durations_s = progress.pauses_s, progress.durations_s
    pause_s = (at - progress.heard_at).total_seconds() if progress.heard_at is not None else -1.0
    if pause_s >= 0:
        pauses_s = (*pauses_s[1 - _DURATIONS_MAX :], pause_s)
        if progress.heard_step is not None and step > progress.heard_step:
            durations_s = (*durations_s[1 - _DURATIONS_MAX :], pause_s / (step - progress.heard_step))
    return msgspec.structs.replace(
        progress, pauses_s=pauses_s, durations_s=durations_s, heard_at=at, heard_step=step
    )


def median_step_s(progress: Progress) -> float | None:
    return median(progress.durations_s) if progress.durations_s else None


def stall_limit_s(
    progress: Progress, *, stall_min_s: float, stall_factor: float, hang_timeout_s: float | None
) -> float | None:
    """How long no step may come before the container counts as stalled; None where the job wants no limit.

    Many steps may go by between two lines that tell of one: so long no line is due.
    """
    if hang_timeout_s is not None:
        return hang_timeout_s if hang_timeout_s > 0 else None
    step_s = median_step_s(progress) or 0.0
    pause_s = median(progress.pauses_s) if progress.pauses_s else 0.0
    return max(stall_min_s, stall_factor * step_s) + max(0.0, pause_s - step_s)


def _by_template(line: str, head: str, tail: str) -> int | None:
    at = 0
    for _ in range(_PLACES_MAX):
        at = line.find(head, at)
        if at < 0:
            return None
        start = at + len(head)
        while line.startswith(" ", start) and start < at + len(head) + _BETWEEN_CHARS_MAX:
            start += 1
        for digits in (_grouped(line, start), _digits(line, start)):
            if digits and line.startswith(tail, start + len(digits)):
                return _count(digits)
        at += 1
    return None


def _by_word(lower: str, word: str) -> int | None:
    at = 0
    for _ in range(_PLACES_MAX):
        at = lower.find(word, at)
        if at < 0:
            return None
        start = at + len(word)
        if _begins_word(lower, at) and not _only_told(lower, at):
            while (
                start < len(lower)
                and lower[start] in _BETWEEN
                and start < at + len(word) + _BETWEEN_CHARS_MAX
            ):
                start += 1
            digits = _grouped(lower, start) if start > at + len(word) else ""
            if digits and _ends_number(lower, start + len(digits)):
                return _count(digits)
        at += len(word)
    return None


def _begins_word(lower: str, at: int) -> bool:
    """`--step` is an argument, and `epoch=0-step=40.ckpt` a file of PyTorch Lightning."""
    before = lower[max(0, at - _BEFORE_CHARS) : at]
    if before.endswith("-"):
        return not before[:-1].rstrip("0123456789").endswith(("-", "epoch="))
    return not (before[-1:].isalnum() or before[-1:] == "_")


def _only_told(lower: str, at: int) -> bool:
    """Whether the step that may be named here was made earlier, or is none of the training."""
    window = lower[max(0, at - _BEFORE_CHARS) : at]
    words = "".join(char if char.isalnum() or char == "_" else " " for char in window).split()
    while words and words[-1] in _KINDS:
        words.pop()
    if words[-2:-1] == ["epoch"] and words[-1].isdigit():
        del words[-2:]
    before = words[-1] if words else ""
    return (
        before in _NOT_AFTER
        or before in _NOT_OF_TRAINING
        or not _TOLD_BEFORE.isdisjoint(word.strip(_AROUND_WORD) for word in lower[:at].split())
        or any(lower.find(told, at) >= 0 for told in _TOLD_BEHIND)
    )


def _digits(text: str, start: int) -> str:
    end = start
    while end < len(text) and end - start <= _DIGITS_MAX and "0" <= text[end] <= "9":
        end += 1
    return text[start:end] if end - start <= _DIGITS_MAX else ""


def _grouped(text: str, start: int) -> str:
    """The same with a comma before each three digits, as `1,234`, where they are laid out so."""
    digits = _digits(text, start)
    end = start + len(digits)
    if not 1 <= len(digits) <= _GROUP_DIGITS:
        return digits
    while text.startswith(",", end) and len(_digits(text, end + 1)) == _GROUP_DIGITS:
        end += 1 + _GROUP_DIGITS
    is_list = text.startswith(",", end) and bool(_digits(text, end + 1))
    return digits if is_list or end - start > _DIGITS_MAX else text[start:end]


def _count(digits: str) -> int:
    return int(digits.replace(",", ""))


def _ends_number(text: str, at: int) -> bool:
    """`12.5`, `12ms`, `12%` and `12.ckpt` are no steps; `12.` at the end of a sentence is."""
    after = text[at : at + 2]
    if after[:1].isalnum() or after[:1] in ("_", "%"):
        return False
    return not (after[:1] == "." and after[1:].isalnum())
