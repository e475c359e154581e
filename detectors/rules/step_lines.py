"""Reads one line of a training's log: the step that it may contain, and whether it is about a checkpoint.
Pure.

folds/pods.py passes the pieces of each line to this module; step_track.py decides over several lines which of
these candidates is the step. The facts are rows of catalog/steps.toml; wordings.py reads steps that match no
row. A job's own template replaces all of these for the step.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from detectors.catalog.steps import Complete, StepCatalog, packaged_steps
from detectors.rules import bars, wordings
from detectors.rules.line_words import by_words

__all__ = [
    "ANONYMOUS",
    "BARE",
    "COMMON",
    "LOSS_BAR",
    "PLAIN",
    "PLAIN_OF_EPOCH",
    "PLAIN_OF_RUN",
    "TEMPLATE",
    "VAGUE",
    "Candidate",
    "Metrics",
    "Near",
    "Read",
    "Save",
    "Sign",
    "Total",
    "read",
]

TEMPLATE = "template"
ANONYMOUS = "bar of "
"""Prefix of the name of a bar without a name; the bar's total follows."""
LOSS_BAR = "bar with a loss"
PLAIN = "wording"
BARE = "bare wording"
"""Lines with nothing but the step. They are kept apart from lines that also show a figure: a language model
that is trained may print numbered steps, too."""
PLAIN_OF_EPOCH = "wording with an epoch"
PLAIN_OF_RUN = "global wording"
VAGUE = "wording of "
COMMON = (
    *("step", "iter", "epoch", "train", "batch", "loss", "_updates", "kimg", "up. "),
    *("sav", "checkpoint", "finalized", "[torch]", "val", "test: ", "*****", "g ", "jitter"),
)
"""Parts of triggers. Each trigger of the catalogue contains one of these, and most lines contain none."""
_OF_BARS = ("/ [", "/? [", "<?, ?")
"""Parts of bars. Each bar of tqdm, without its digits, contains one of these: `12/100 [00:10<01:15, ...`."""
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
    """Name of what is counted. Lines with the same name count the same thing."""
    step: int
    order: int
    """Precedence: of two candidates that disagree, the lower order wins."""
    total: int | None = None
    strong: bool = True
    """Whether a single line of this form proves a training loop. Other numbers prove nothing until they
    rise."""
    of_epoch: bool = False
    """Whether the count begins again with each epoch."""
    is_bar: bool = False
    """Whether the number is from a bar. Bars are drawn some time apart, even if the runtime writes many of
    them at once."""
    is_inner: bool = False
    """Whether the bar is drawn below another one."""


class Total(msgspec.Struct, frozen=True):
    """The number of steps that the training will make, as announced."""

    steps: int


class Metrics(msgspec.Struct, frozen=True):
    """A line of figures that only a training loop prints."""

    text: str


class Save(msgspec.Struct, frozen=True):
    """A checkpoint is being written, or was written."""

    name: str
    step: int | None = None
    complete: Complete = "unknown"


class Sign(msgspec.Struct, frozen=True):
    """A sign that work other than steps continues: another bar moves, or an evaluation prints. The same sign
    twice in succession proves nothing."""

    text: str
    evaluates: bool = False
    """Whether an evaluation runs. No step is due as long as it lasts."""


Read = Candidate | Total | Metrics | Save | Sign


class _Compiled(msgspec.Struct, frozen=True):
    steps: tuple[re.Pattern[str], ...]
    """Patterns of the steps, followed by those of the totals."""
    metrics: tuple[re.Pattern[str], ...]
    saves: tuple[re.Pattern[str], ...]
    evaluations: tuple[re.Pattern[str], ...]
    bars: tuple[re.Pattern[str], ...]
    by_common: tuple[tuple[str, tuple[tuple[str, int, int], ...]], ...]
    """For each part of COMMON the triggers that contain it, with the index of the list above and the index in
    that list."""
    catalog: StepCatalog


class Near(msgspec.Struct, frozen=True):
    """Readings that a line with these words may contain: the indices of the rows whose trigger is in it."""

    steps: tuple[int, ...]
    metrics: tuple[int, ...]
    saves: tuple[int, ...]
    evaluations: tuple[int, ...]
    bar: bool
    wording: bool


def read(piece: str, template: str = "", *, is_drawn: bool = False) -> tuple[Read, ...]:
    """Returns what one piece of a line contains; nothing for most. `is_drawn`: other pieces of the line
    overwrite this one, or this one overwrites them."""
    line = piece[:_LINE_CHARS_MAX]
    near = _near(line)
    saves = _saves(line, near) if near.saves else ()
    told = _by_template(line, template) if template else _step(line, near, saves)
    if told is None:
        return saves
    if is_drawn and isinstance(told, Candidate):
        told = msgspec.structs.replace(told, is_bar=True)
    is_anonymous = isinstance(told, Candidate) and told.name.startswith(ANONYMOUS)
    figures = _metrics(line, near) if is_anonymous else None
    return (told, *saves) if figures is None else (told, figures, *saves)


def _step(line: str, near: Near, saves: tuple[Save, ...]) -> Candidate | Total | Metrics | Sign | None:
    if near.bar and bars.without_rate(line):
        return None
    fits, found = _by_row(line, near) if near.steps else (False, None)
    if fits:
        return found
    if near.bar and (bar := bars.bar_in(line)) is not None:
        return _by_bar(bar, saves)
    compiled = _compiled()
    if any(compiled.evaluations[number].search(line) for number in near.evaluations):
        return Sign(line[:_SKELETON_CHARS_MAX], evaluates=True)
    if near.wording:
        lower = line.lower()
        wording = wordings.wording_in(line, lower)
        if wording is not None:
            return _by_wording(wording, lower)
    return _metrics(line, near)


def _metrics(line: str, near: Near) -> Metrics | None:
    """Returns the figures of the training. They may follow a bar in its line."""
    if any(_compiled().metrics[number].search(line) for number in near.metrics):
        return Metrics(line[:_SKELETON_CHARS_MAX])
    return None


@by_words
def _near(words: str) -> Near:
    """Finds the rows whose trigger is in the line. `words` is a line without its digits. No trigger contains
    a digit."""
    lower = words.lower()
    held: tuple[list[int], ...] = ([], [], [], [])
    for part, triggers in _compiled().by_common:
        if part in lower:
            for trigger, of, number in triggers:
                if trigger in lower:
                    held[of].append(number)
    steps, metrics, saves, evaluations = (tuple(sorted(numbers)) if numbers else () for numbers in held)
    wording = "step" in lower or "iter" in lower or ("batch" in lower and "epoch" in lower)
    bar = "<" in words and any(part in words for part in _OF_BARS)
    return Near(steps, metrics, saves, evaluations, bar=bar, wording=wording)


def _by_wording(wording: wordings.Wording, lower: str) -> Candidate:
    step, total, of_epoch = wording.step, wording.total, wording.of_epoch
    order = _EPOCH_ORDER if of_epoch else 0
    if wording.plain and wording.of_run:
        return Candidate(PLAIN_OF_RUN, step, _PLAIN_ORDER - 1, total)
    if wording.plain:
        name = PLAIN_OF_EPOCH if of_epoch else BARE if wording.bare else PLAIN
        return Candidate(name, step, _PLAIN_ORDER + order + wording.bare, total, of_epoch=of_epoch)
    name = f"{VAGUE}{_DIGITS.sub('0', lower)[:_SKELETON_CHARS_MAX]}"
    return Candidate(name, step, _VAGUE_ORDER + order, total, strong=False, of_epoch=of_epoch)


def _by_row(line: str, near: Near) -> tuple[bool, Candidate | Total | None]:
    """Returns whether a row fits, and what the row reads. If a row fits and reads no step, no other reader
    may take the number for one."""
    compiled = _compiled()
    rows = compiled.catalog.steps
    for number in near.steps:
        found = compiled.steps[number].search(line)
        if found is None:
            continue
        if number >= len(rows):
            return True, Total(wordings.count_of(found["total"]))
        row, groups = rows[number], found.groupdict()
        step, total = wordings.count_of(groups["step"][:18]), groups.get("total")
        if step < row.begins_at or (row.unfinished and total is not None and step >= int(total)):
            return True, None
        if row.of_scripts and wordings.is_other_work(line[: found.start()].lower()):
            return True, None
        of_epoch = row.scope == "epoch"
        order = 1 + number + (_EPOCH_ORDER if of_epoch else 0)
        of = int(total[:18]) if total is not None else None
        return True, Candidate(row.name, step, order, of, of_epoch=of_epoch)
    return False, None


def _by_bar(bar: bars.Bar, saves: tuple[Save, ...]) -> Candidate | Sign:
    """Reads a bar. A named bar that fits no row and shows no loss is only a sign of work: it may be an
    evaluation or the reading of data."""
    compiled = _compiled()
    if not bar.name:
        if bar.total is None:
            return Sign(f"{bar.count}")
        is_its = bool(saves) and any(save.step == bar.count for save in saves)
        trains = not is_its and bars.gives_loss(bar)
        return Candidate(
            f"{ANONYMOUS}{bar.total}",
            bar.count,
            100 + (_EPOCH_ORDER if trains else 0),
            bar.total,
            strong=is_its or trains,
            of_epoch=trains,
            is_bar=True,
            is_inner=bar.is_inner,
        )
    for number, row in enumerate(compiled.catalog.bars):
        if compiled.bars[number].fullmatch(bar.name) and not (row.endless and bar.total is not None):
            of_epoch = row.scope == "epoch"
            order = 110 + number + (_EPOCH_ORDER if of_epoch else 0)
            name = f"bar {row.name}"
            return Candidate(name, bar.count, order, bar.total, of_epoch=of_epoch, is_bar=True)
    if bars.gives_loss(bar) and wordings.is_of_training(bar.name.lower()):
        return Candidate(LOSS_BAR, bar.count, 190 + _EPOCH_ORDER, bar.total, of_epoch=True, is_bar=True)
    return Sign(f"{bar.name} {bar.count}/{bar.total}")


def _saves(line: str, near: Near) -> tuple[Save, ...]:
    compiled = _compiled()
    for number in near.saves:
        found = compiled.saves[number].search(line)
        if found is not None:
            row, step = compiled.catalog.saves[number], found.groupdict().get("step")
            return (Save(row.name, int(step[:18]) if step is not None else None, row.complete),)
    return ()


@lru_cache(maxsize=1)
def _compiled() -> _Compiled:
    catalog = packaged_steps()
    lists = ((*catalog.steps, *catalog.totals), catalog.metrics, catalog.saves, catalog.evaluations)
    by_common: dict[str, list[tuple[str, int, int]]] = {part: [] for part in COMMON}
    for of, rows in enumerate(lists):
        for number, row in enumerate(rows):
            part = next(part for part in COMMON if part in row.trigger)
            by_common[part].append((row.trigger, of, number))
    steps, metrics, saves, evaluations = (tuple(re.compile(row.pattern) for row in rows) for rows in lists)
    return _Compiled(
        steps=steps,
        metrics=metrics,
        saves=saves,
        evaluations=evaluations,
        bars=tuple(re.compile(row.called) for row in catalog.bars),
        by_common=tuple((part, tuple(triggers)) for part, triggers in by_common.items()),
        catalog=catalog,
    )


def _by_template(line: str, template: str) -> Candidate | None:
    """Reads a literal with the number in its place, padded with spaces or grouped as `1,234`. No regular
    expression is used."""
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
