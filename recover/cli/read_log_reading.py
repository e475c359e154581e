"""Reads a log as the agent does, and keeps steps, checkpoints, stalls and errors with their line numbers.
Pure.

read_log_lines.py yields the lines; read_log_story.py tells the answer in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.log_errors import packaged_log_errors
from detectors.catalog.signature_rows import packaged_signatures
from detectors.folds.pods import PodFold
from detectors.rules import bars, signatures
from detectors.rules.facts import PodRef
from detectors.rules.progress import median_step_s
from detectors.rules.step_lines import TEMPLATE, Candidate, Save, read
from detectors.service.settings import Logs
from detectors.text.answers import Answer, Record
from detectors.wire.training import PodSettings
from recover.cli.read_log_lines import TextLine
from recover.recipes.from_log import left_open
from recover.recipes.load import built_in
from recover.stories.known_issue import condition_of_clause

__all__ = ["FirstError", "KnownIssue", "LogAnswer", "Marked", "Reading", "Stall", "read_log"]

_LOSS = ("{'loss':", '{"loss":')
_STALL_GAP_MIN = timedelta(seconds=5)
"""Least time between two lines that is examined as a stall. The limits of a stall are usually minutes."""


class Marked(Record, frozen=True, kw_only=True):
    """A line that names a step. In a line about a checkpoint the step may be missing."""

    line: int
    step: int | None


class FirstError(Record, frozen=True, kw_only=True):
    line: int
    code: str
    propagated: bool
    """Whether the line reports a failure of another rank."""
    text: str


class KnownIssue(Record, frozen=True, kw_only=True):
    line: int
    recipe: str
    title: str
    conditions: Annotated[
        list[str],
        Meta(description="what must also be true, because the log does not decide it, in words"),
    ]


class Stall(Record, frozen=True, kw_only=True):
    line: int
    """Number of the last line before the stall."""
    after_s: float


class LogAnswer(Answer, frozen=True, kw_only=True, tag="LogReading"):
    """The answer of `rekindle read-log`."""

    lines: Annotated[int, Meta(description="number of lines in the log")]
    steps: list[Marked]
    armed_at_line: Annotated[int | None, Meta(description="line from which on Rekindle would notice a stall")]
    median_step_s: Annotated[
        float | None, Meta(description="null if a line has no time of the container runtime")
    ]
    saves: Annotated[list[Marked], Meta(description="lines about a checkpoint")]
    stalls: Annotated[
        list[Stall],
        Meta(
            description="pauses after which Rekindle would restart the job; only lines with a time of the "
            "container runtime show pauses"
        ),
    ]
    first_error: FirstError | None
    known_issues: list[KnownIssue]

    def names(self) -> tuple[str, ...]:
        """Returns the names of the recipes that match this log, or may match with further facts."""
        return tuple(issue.recipe for issue in self.known_issues)


class Reading(msgspec.Struct, frozen=True):
    """The answer for programs, and what else a person wants to know."""

    answer: LogAnswer
    source: str
    """The row of the catalogue, or the wording, whose number is the step; empty if none is known."""
    of_epoch: bool
    rivals: list[str]
    """Names of other numbers that rise as well."""
    unproven: list[str]
    """Names of numbers that were read and did not rise."""
    bars: list[int]
    """Totals of progress bars without a name that are not known to be the training's progress bar."""
    saved: bool
    """Whether a checkpoint is known to be complete."""
    dated: int
    """Number of lines with a time of the container runtime."""
    undated: int
    """Number of lines without such a time."""
    unmatched: str = ""
    """The step template that the person gave, if no line matches it."""
    is_text: bool = True
    losses: bool = False
    """Whether the log has lines of the Trainer with a loss and without a step."""


class _Named(msgspec.Struct, frozen=True):
    line: int
    step: int
    name: str
    at: datetime
    strong: bool


def read_log(lines: Iterable[TextLine], template: str = "") -> Reading:
    """Reads the log with the agent's own code and its packaged settings."""
    reader = _Reader(template)
    for line in lines:
        reader.line(line)
    return reader.reading()


class _Reader:
    def __init__(self, template: str) -> None:
        self._template = template
        self._fold = PodFold(PodRef("", "", "log", ""), Logs(), packaged_log_errors())
        self._fold.job_settings(PodSettings(uid="log", step_template=template))
        self._sought = signatures.signatures_of(packaged_signatures())
        self._named: list[_Named] = []
        self._saves: list[Marked] = []
        self._issues: dict[str, int] = {}
        self._shown: dict[str, set[str]] = {}
        self._stalls: list[Stall] = []
        self._armed_at: int | None = None
        self._error_line = 0
        self._last: TextLine | None = None
        self._dated = 0
        self._dated_since: datetime | None = None
        """Time of the first line with a time. Lines before it have invented times, which show no stall."""
        self._undated = 0
        self._fits = False
        self._is_text = True
        self._losses = False

    def line(self, line: TextLine) -> None:
        if line.is_dated and self._dated_since is None:
            self._dated_since = line.at
        self._dated += line.is_dated
        self._undated += not line.is_dated
        self._silence(line)
        for hit in signatures.read(self._sought, line.text):
            for name in hit.issues:
                self._issues.setdefault(name, line.number)
                self._shown.setdefault(name, set()).add(hit.written)
        error = self._fold.errors.error
        self._fold.line(line.text, line.at)
        if self._fold.errors.error is not error:
            self._error_line = line.number
        if self._armed_at is None and self._fold.progress.first_step is not None:
            self._armed_at = line.number
        self._note(line)
        self._is_text = self._is_text and "\0" not in line.text
        self._losses = self._losses or line.text.startswith(_LOSS)
        self._last = line

    def _silence(self, line: TextLine) -> None:
        """Records a stall between the last line and this line. The agent checks the clock every second while
        nothing is printed; this method makes one such check, at the time of this line."""
        last, since = self._last, self._dated_since
        if last is None or since is None or not line.is_dated or line.at - last.at < _STALL_GAP_MIN:
            return
        alive_at = self._fold.progress.alive_at or last.at
        if alive_at >= since and self._fold.tick(line.at):
            self._stalls.append(Stall(line=last.number, after_s=(line.at - alive_at).total_seconds()))

    def _note(self, line: TextLine) -> None:
        """Records the numbers that the line names. If a line overwrites itself on a terminal, its last piece
        counts."""
        named: _Named | None = None
        save: Marked | None = None
        for piece in bars.pieces(line.text):
            for one in read(piece, self._template):
                if isinstance(one, Candidate):
                    self._fits = self._fits or one.name == TEMPLATE
                    named = _Named(line.number, one.step, one.name, line.at, one.strong)
                elif isinstance(one, Save):
                    save = Marked(line=line.number, step=one.step)
        if named is not None:
            self._named.append(named)
        if save is not None:
            self._saves.append(save)

    def _known_issues(self) -> Iterator[KnownIssue]:
        """Yields the recipes that may match, in the order of the first line of each."""
        recipes = built_in()
        for name, line in sorted(self._issues.items(), key=lambda issue: (issue[1], issue[0])):
            clauses = left_open(recipes[name], self._shown[name])
            if clauses is not None:
                conditions = [condition_of_clause(clause) for clause in clauses]
                yield KnownIssue(line=line, recipe=name, title=recipes[name].title, conditions=conditions)

    def reading(self) -> Reading:
        steps, progress = self._fold.steps, self._fold.progress
        lead, errors = steps.lead, self._fold.errors
        believed = {track.name for track in steps.tracks if track.believed}
        strong = {track.name for track in steps.tracks if track.strong}
        rivals = [track.name for track in steps.rivals]
        error = errors.error
        answer = LogAnswer(
            lines=self._last.number if self._last is not None else 0,
            steps=[
                Marked(line=one.line, step=one.step)
                for one in self._named
                if (one.strong or one.name in strong | believed)
                and one.name not in rivals
                and not (lead is not None and one.name == lead.name and one.at < lead.first_at)
            ],
            armed_at_line=self._armed_at,
            median_step_s=median_step_s(progress) if not self._undated else None,
            saves=self._saves,
            stalls=self._stalls,
            first_error=None
            if error is None
            else FirstError(
                line=self._error_line, code=error.code, propagated=errors.propagated, text=error.text
            ),
            known_issues=[*self._known_issues()],
        )
        weak_bars = [t for t in steps.tracks if t.name.startswith("bar of ") and not t.strong]
        return Reading(
            answer=answer,
            source=lead.name if lead is not None else "",
            of_epoch=lead.of_epoch if lead is not None else False,
            rivals=rivals,
            unproven=[t.name for t in steps.tracks if not t.believed and t not in weak_bars],
            bars=[int(track.name.removeprefix("bar of ")) for track in weak_bars],
            saved=self._fold.saves.last is not None,
            dated=self._dated,
            undated=self._undated,
            unmatched=self._template if self._template and not self._fits else "",
            is_text=self._is_text,
            losses=self._losses,
        )
