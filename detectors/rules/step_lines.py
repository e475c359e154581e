"""One line of a training's log: which step it may tell of, and whether it tells of a checkpoint. Pure.

First stop of the lines in pods.py; step_track.py decides over several lines which of these candidates is the
step. The facts are rows of catalog/steps.toml; wordings.py reads what no row knows. A job's own template
stands for all of it."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from detectors.catalog.steps import Complete, StepCatalog, packaged_steps
from detectors.rules import bars, wordings

__all__ = [
    "ANONYMOUS",
    "COMMON",
    "PLAIN",
    "TEMPLATE",
    "VAGUE",
    "Candidate",
    "Metrics",
    "Read",
    "Save",
    "Sign",
    "Total",
    "read",
]

TEMPLATE = "template"
ANONYMOUS = "bar of "
"""The name of a bar without a name begins so, and ends with its total."""
PLAIN = "wording"
VAGUE = "wording of "
COMMON = ("step", "iter", "epoch", "train", "batch", "_updates", "loss", "logging_writer", "%")
"""Each trigger of the catalogue holds one of these, and most lines hold none."""
_LINE_CHARS_MAX = 4096
_PLACES_MAX = 8
_BETWEEN_CHARS_MAX = 8
_DIGITS = re.compile(r"\d+")
_SKELETON_CHARS_MAX = 120
_PLAIN_ORDER = 500
_VAGUE_ORDER = 4000
_EPOCH_ORDER = 1000


class Candidate(msgspec.Struct, frozen=True):
    """A number that may be the training's step."""

    name: str
    """Lines of one name count the same thing."""
    step: int
    order: int
    """Of two that disagree, the lower one wins."""
    total: int | None = None
    strong: bool = True
    """One line of this form is known to come from a training loop. Of the others nothing is known until they
    rise."""
    of_epoch: bool = False
    """It begins again with each epoch."""
    is_bar: bool = False
    """Bars are drawn some time apart, however many of them the runtime hands on at once."""


class Total(msgspec.Struct, frozen=True):
    """So many steps the training will make."""

    steps: int


class Metrics(msgspec.Struct, frozen=True):
    """A line that only a training loop prints."""


class Save(msgspec.Struct, frozen=True):
    """A checkpoint is being written, or was written."""

    name: str
    step: int | None = None
    complete: Complete = "unknown"


class Sign(msgspec.Struct, frozen=True):
    """Work that makes no step goes on: another bar moves, or an evaluation prints. The same sign again tells
    nothing."""

    told: str
    evaluates: bool = False
    """As long as it lasts no step is due."""


Read = Candidate | Total | Metrics | Save | Sign


class _Compiled(msgspec.Struct, frozen=True):
    """The rows by their triggers: most lines hold none."""

    by_trigger: tuple[tuple[str, tuple[int, ...]], ...]
    patterns: tuple[re.Pattern[str], ...]
    catalog: StepCatalog
    bars: tuple[re.Pattern[str], ...]


def read(piece: str, template: str = "") -> tuple[Read, ...]:
    """What one piece of a line tells; nothing for most."""
    line = piece[:_LINE_CHARS_MAX]
    if template:
        found = _by_template(line, template)
        return (*((found,) if found is not None else ()), *_saves(line, line.lower()))
    lower = line.lower()
    saves = _saves(line, lower)
    told = _step(line, lower, saves)
    return (*((told,) if told is not None else ()), *saves)


def _step(line: str, lower: str, saves: tuple[Save, ...]) -> Candidate | Total | Metrics | Sign | None:
    if bars.without_rate(line):
        return None
    fits, found = _by_row(line, lower)
    if fits:
        return found
    if "|" in line and "<" in line and (bar := bars.bar_in(line)) is not None:
        return _by_bar(bar, saves)
    compiled = _compiled()
    for row in compiled.catalog.metrics:
        at = line.find(row.literal)
        if at >= 0 and row.ends in line[at:]:
            return Metrics()
    if (evaluates := _evaluation(line, lower)) is not None:
        return evaluates
    if "step" not in lower and "iter" not in lower:
        return None
    wording = wordings.wording_in(line, lower)
    if wording is None:
        return None
    if wording.plain:
        return Candidate(PLAIN, wording.step, _PLAIN_ORDER, wording.total)
    skeleton = _DIGITS.sub("0", lower)[:_SKELETON_CHARS_MAX]
    return Candidate(f"{VAGUE}{skeleton}", wording.step, _VAGUE_ORDER, wording.total, strong=False)


def _by_row(line: str, lower: str) -> tuple[bool, Candidate | Total | None]:
    """Whether a row fits, and what it reads: a number that is no step is read by nobody else either."""
    for part in COMMON:
        if part in lower:
            break
    else:
        return False, None
    compiled = _compiled()
    rows = compiled.catalog.steps
    for trigger, numbers in compiled.by_trigger:
        if trigger not in lower:
            continue
        for number in numbers:
            found = compiled.patterns[number].search(line)
            if found is None:
                continue
            if number >= len(rows):
                return True, Total(wordings.count_of(found["total"]))
            row, groups = rows[number], found.groupdict()
            step, total = int(groups["step"][:18]), groups.get("total")
            if step < row.begins_at or (row.unfinished and total is not None and step >= int(total)):
                return True, None
            of_epoch = row.scope == "epoch"
            order = 1 + number + (_EPOCH_ORDER if of_epoch else 0)
            of = int(total[:18]) if total is not None else None
            return True, Candidate(row.name, step, order, of, of_epoch=of_epoch)
    return False, None


def _by_bar(bar: bars.Bar, saves: tuple[Save, ...]) -> Candidate | Sign:
    """A bar with another name may be an evaluation or the reading of data."""
    compiled = _compiled()
    if not bar.name:
        if bar.total is None:
            return Sign(f"{bar.count}")
        is_its = any(save.step == bar.count for save in saves)
        return Candidate(f"{ANONYMOUS}{bar.total}", bar.count, 100, bar.total, strong=is_its, is_bar=True)
    for number, row in enumerate(compiled.catalog.bars):
        if compiled.bars[number].fullmatch(bar.name):
            of_epoch = row.scope == "epoch"
            order = 110 + number + (_EPOCH_ORDER if of_epoch else 0)
            name = f"bar {row.name}"
            return Candidate(name, bar.count, order, bar.total, of_epoch=of_epoch, is_bar=True)
    return Sign(f"{bar.name} {bar.count}/{bar.total}")


def _evaluation(line: str, lower: str) -> Sign | None:
    for row in packaged_steps().evaluations:
        if row.trigger in lower and re.search(row.pattern, line) is not None:
            return Sign(line[:_SKELETON_CHARS_MAX], evaluates=True)
    return None


def _saves(line: str, lower: str) -> tuple[Save, ...]:
    if "sav" not in lower and "checkpoint" not in lower and "global_step_" not in lower:
        return ()
    for row in packaged_steps().saves:
        if row.trigger in lower and (found := re.search(row.pattern, line)) is not None:
            step = found.groupdict().get("step")
            return (Save(row.name, int(step[:18]) if step is not None else None, row.complete),)
    return ()


@lru_cache(maxsize=1)
def _compiled() -> _Compiled:
    catalog = packaged_steps()
    by_trigger: dict[str, list[int]] = {}
    for number, row in enumerate((*catalog.steps, *catalog.totals)):
        by_trigger.setdefault(row.trigger, []).append(number)
    return _Compiled(
        by_trigger=tuple((trigger, tuple(numbers)) for trigger, numbers in by_trigger.items()),
        patterns=tuple(re.compile(row.pattern) for row in (*catalog.steps, *catalog.totals)),
        catalog=catalog,
        bars=tuple(re.compile(row.called) for row in catalog.bars),
    )


def _by_template(line: str, template: str) -> Candidate | None:
    """A literal with the number in its place, padded with spaces or grouped as `1,234`. No regular
    expression."""
    if bars.without_rate(line):
        return None
    head, _, tail = template.partition("{step}")
    at = 0
    for _ in range(_PLACES_MAX):
        at = line.find(head, at)
        if at < 0:
            return None
        start = at + len(head)
        while line.startswith(" ", start) and start < at + len(head) + _BETWEEN_CHARS_MAX:
            start += 1
        for digits in (wordings.grouped_at(line, start), wordings.digits_at(line, start)):
            if digits and line.startswith(tail, start + len(digits)):
                return Candidate(TEMPLATE, wordings.count_of(digits), 0)
        at += 1
    return None
