"""Tells in plain words what was read in a log, and which annotation would help. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from detectors.catalog.log_errors import Implies, packaged_log_errors
from detectors.catalog.steps import packaged_steps
from detectors.rules.step_lines import BARE, LOSS_BAR, PLAIN, PLAIN_OF_EPOCH, PLAIN_OF_RUN, TEMPLATE
from detectors.text.printing import printable
from recover.cli.read_log_reading import KnownIssue, Reading
from recover.policy.settings import Timing
from recover.policy.step_words import HANG_TIMEOUT, STEP_TEMPLATE
from recover.stories.words import counted, duration, some

__all__ = ["told"]

_CHARS_MAX = 120
_NAMES = {
    TEMPLATE: "lines that fit the job's own template",
    PLAIN: "lines such as 'step 12 loss 0.3'",
    BARE: "lines such as 'step 12'",
    PLAIN_OF_RUN: "lines such as 'global step 12'",
    PLAIN_OF_EPOCH: "lines with an epoch and a step",
    LOSS_BAR: "a progress bar that shows a loss",
}
_IMPLIED = {
    Implies.MAYBE_OWN: "a failure of this rank, if the program ended there",
    Implies.PEER_LOST: "a propagated error: another rank ended first",
    Implies.TIMED_OUT: "a propagated error: another rank did not answer in time",
    Implies.TOLD_TO_END: "no failure of this rank: the rank received the order to end",
    Implies.SAID_ELSEWHERE: "an error of a launcher: another line or log has the cause",
}


def told(reading: Reading, *, wide: bool = False) -> list[str]:
    """Returns the lines to print. `wide` adds every line with a step or a checkpoint."""
    parts = [_steps(reading), _saves(reading), _stalls(reading), _errors(reading)]
    if wide:
        parts.append(_every_line(reading))
    return [printable(line) for part in parts for line in part]


def _every_line(reading: Reading) -> Iterator[str]:
    marks = [("step", one) for one in reading.answer.steps]
    marks += [("checkpoint", one) for one in reading.answer.saves]
    for kind, mark in sorted(marks, key=lambda one: one[1].line):
        number = "" if mark.step is None else f" {mark.step}"
        yield f"  line {mark.line}: {kind}{number}"


def _steps(reading: Reading) -> Iterator[str]:
    steps = reading.answer.steps
    if reading.answer.armed_at_line is None or not steps:
        yield from _unread(reading)
        return
    begin, end = steps[0], steps[-1]
    lines = counted(len({one.line for one in steps}), "line")
    pace = f", {duration(reading.answer.median_step_s)} each" if reading.answer.median_step_s else ""
    yield (
        f"Steps: read from {lines} of {reading.answer.lines}, step {begin.step} in line {begin.line} to step "
        f"{end.step} in line {end.line}{pace}."
    )
    yield f"  Rekindle reads the step from {_called(reading.source)}."
    yield f"  From line {reading.answer.armed_at_line} on, Rekindle can notice a hang."
    yield from _without_times(reading)
    if reading.of_epoch:
        yield (
            "  Rekindle takes this number for a count that begins again with each epoch: Rekindle sees that "
            "the job trains, and cannot tell from which step it resumed. If the number counts the steps of "
            f"the whole run, annotate the job with {STEP_TEMPLATE}."
        )
    for rival in reading.rivals if reading.source != TEMPLATE else ():
        yield (
            f"  The number in {_called(rival)} rises as well. If this number is the step, annotate "
            f"the job with {STEP_TEMPLATE}."
        )


def _without_times(reading: Reading) -> Iterator[str]:
    """Yields a line if the log lacks times. Otherwise a reader would take an answer without a stall for a log
    without a stall."""
    if not reading.undated:
        return
    if reading.dated:
        lack = (
            "Not every line has a time of the container runtime: this answer has no pace, and can miss stalls"
        )
    else:
        lack = "No line has a time of the container runtime: this answer shows neither the pace nor stalls"
    yield f"  {lack}. kubectl logs --timestamps prints these times."


def _unread(reading: Reading) -> Iterator[str]:
    if reading.answer.lines == 0:
        yield "Steps: none, because the log is empty."
        return
    blind = (
        "Rekindle cannot notice a hang of this job, and only a newer checkpoint can prove that the job "
        "trains again."
    )
    error = reading.answer.first_error
    if error is None:
        yield f"Steps: none. {blind}"
    else:
        yield f"Steps: none; the log has an error in line {error.line}."
        if not reading.answer.saves:
            yield (
                "  If the program ended before its first step, this log does not show how it prints steps: "
                "read the log of a run that trained."
            )
        yield f"  {blind if reading.answer.saves else f'Otherwise {blind}'}"
    for name in reading.unproven:
        yield (
            f"  Rekindle has found a number in {_called(name)}. Rekindle takes this number for the step when "
            "later lines show higher numbers."
        )
    if reading.unmatched:
        yield f"  No line fits the template {reading.unmatched!r}."
    elif not reading.is_text:
        yield "  The file is not text: expected the log of a training."
    elif reading.losses and not reading.bars and not reading.unproven:
        yield (
            "  The lines with a loss have no step. Let the training print its step, or keep the progress bar "
            "of the Trainer (disable_tqdm=False)."
        )
    elif reading.bars:
        total = max(reading.bars)
        yield (
            f"  A progress bar without a name counts to {total}. If this is the progress bar of the "
            f"training, annotate the job with {STEP_TEMPLATE}: '| {{step}}/{total} ['."
        )
    else:
        yield (
            "  If a line contains the step, annotate the job with the words around the number, "
            f"such as {STEP_TEMPLATE}: 'step {{step}}/', and try the template here with "
            "--step-template."
        )


def _saves(reading: Reading) -> Iterator[str]:
    saves = reading.answer.saves
    if not saves:
        yield (
            "Checkpoints: Rekindle recognises no line about a checkpoint. A line such as 'Saved checkpoint "
            "to /ckpt/step-40 for step 40' shows one."
        )
        return
    numbers = [
        f"step {save.step}" if save.step is not None else f"an unknown step in line {save.line}"
        for save in saves
    ]
    distinct = list(dict.fromkeys(numbers))
    yield f"Checkpoints: {counted(len(saves), 'line')} about checkpoints, for {some(distinct, 4)}."
    last_step = max((step.line for step in reading.answer.steps), default=0)
    if not reading.saved and 0 < last_step < saves[0].line:
        yield "  The log ends before a line shows whether the checkpoint is complete, such as the next step."
    elif not reading.saved:
        yield (
            "  No line shows when a checkpoint is complete. This matters if a GPU of the job is degraded and "
            "still works: Rekindle then cannot wait for the next checkpoint, and waits "
            f"{duration(Timing().checkpoint_grace_s)} (timing.checkpoint_grace_s) before it moves the job. "
            "A line such as 'Saved checkpoint to /ckpt/step-40 for step 40' shows it."
        )


def _stalls(reading: Reading) -> Iterator[str]:
    for stall in reading.answer.stalls:
        yield (
            f"Stall: after line {stall.line} no step came for {duration(stall.after_s)}, and Rekindle would "
            f"have restarted the job. If the pause is healthy, annotate the job with a longer {HANG_TIMEOUT}."
        )


def _errors(reading: Reading) -> Iterator[str]:
    error = reading.answer.first_error
    if error is None:
        yield "First error: none."
    else:
        kind = _IMPLIED.get(_implies(error.code), "a failure of this rank")
        if error.propagated:
            yield "First error: this rank has none. Its log has an error that another rank caused:"
            yield f"  line {error.line}, {error.code} ({kind}): {error.text[:_CHARS_MAX]}"
        else:
            yield f"First error: line {error.line}, {error.code} ({kind}): {error.text[:_CHARS_MAX]}"
    possible = [issue for issue in reading.answer.known_issues if issue.conditions]
    for issue in reading.answer.known_issues:
        if not issue.conditions:
            yield f"Known issue: {issue.recipe} in line {issue.line}: {issue.title}"
            yield f"  To see what to change: rekindle recipes show {issue.recipe}"
    if len(possible) == 1:
        yield from _possible_issue(*possible)
    elif possible:
        yield from _possible_issues(possible)


def _possible_issue(issue: KnownIssue) -> Iterator[str]:
    yield f"Possible known issue: {issue.recipe} in line {issue.line}: {issue.title}"
    yield "  The log alone does not show this issue. All of these must also be true:"
    yield from (f"  - {condition}" for condition in issue.conditions)
    yield (f"  To see what these conditions mean, and what to change: rekindle recipes show {issue.recipe}")


def _possible_issues(issues: list[KnownIssue]) -> Iterator[str]:
    """Yields issues that share their lines. Their conditions together would hide the rest of the answer."""
    yield "Possible known issues: the log alone does not show whether the job has one of these:"
    yield from (f"  - {issue.recipe} in line {issue.line}: {issue.title}" for issue in issues)
    yield "  To see the conditions of an issue, and what to change: rekindle recipes show ISSUE"


def _implies(code: str) -> Implies:
    return next((row.implies for row in packaged_log_errors() if row.code == code), Implies.OWN_FAULT)


def _called(name: str) -> str:
    catalog = packaged_steps()
    rows = {row.name: row.framework for row in catalog.steps}
    rows |= {f"bar {row.name}": row.framework for row in catalog.bars}
    if name in rows:
        return f"lines in the format of {rows[name]}"
    if name.startswith("bar of "):
        return f"the progress bar that counts to {name.removeprefix('bar of ')}"
    if name in _NAMES:
        return _NAMES[name]
    return f"the line {name.removeprefix('wording of ')[:_CHARS_MAX]!r}"
