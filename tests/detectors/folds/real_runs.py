"""Compares what the agent reads in the log of a real run with the trainer's own state at the same time.

A log is read in two ways: piece by piece as the program wrote it, which shows whether the numbers are right
at each checkpoint; and as a container runtime delivers it, which keeps a line back until the line ends, or
has 16 KiB.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from chaos.cluster.crilog import LINE_BYTES_MAX
from chaos.rigs.framework_logs.capture import Chunk
from chaos.rigs.framework_logs.kept import records
from chaos.rigs.framework_logs.runs import Event, Truth
from detectors.folds.pods import PodFold
from detectors.rules.bars import pieces
from detectors.rules.step_lines import Save, read
from detectors.sources.cri import CriLine, Joiner, parse_line
from detectors.text.log_template import without_colours
from tests.detectors.folds.folding import pod

__all__ = ["RULES", "Rule", "Seen", "as_held", "as_written", "complaints"]

_SLOWER = 100
"""Factor by which the quick runs are slowed down, so that their pauses are those of real jobs."""


_PIPE_LAG = timedelta(seconds=0.05)
"""Time after the writing of a line until it is read and dated. The next step comes later than that."""


class Rule(msgspec.Struct, frozen=True):
    """Properties of a framework's log that concern its steps."""

    known_from: int | None = 1
    """First step of a fresh run that the agent knows, or None if nothing in the log shows the step."""
    known_again: int | None = 61
    """The same for the run that continues from step 60."""
    per_epoch: int | None = None
    """Number of steps after which the numbers begin again, or None."""
    tells_saves: bool = True


RULES = {
    # Nothing announces the bar's total: the agent believes it once figures came twice between its counts.
    "hf-trainer": Rule(known_from=41, known_again=None, tells_saves=False),
    "hf-trainer-unbuffered": Rule(known_from=21, known_again=80, tells_saves=False),
    "hf-trainer-info": Rule(),
    "hf-deepspeed": Rule(known_from=41, known_again=None, tells_saves=False),
    "hf-deepspeed-info": Rule(),
    "accelerate": Rule(),
    # Without a terminal rich prints its bar once, when the training has ended.
    "lightning-rich": Rule(known_from=None, known_again=None, tells_saves=False),
    "lightning-tqdm": Rule(per_epoch=30, tells_saves=False),
    "torchtitan": Rule(known_from=10, known_again=70),
    "paddlenlp": Rule(known_from=10, known_again=70),
}


class Seen(msgspec.Struct):
    """The content that was read. Pairs of steps are the agent's and the trainer's."""

    fold: PodFold
    numbers: list[tuple[int, int]] = []
    """Pairs of steps at each change of the agent's step."""
    at_saves: list[tuple[int | None, int]] = []
    saves: list[Save] = []
    stalls: list[datetime] = []


def as_written(chunks: Sequence[Chunk], truth: Truth) -> Seen:
    return _read(_parsed(records(chunks)), truth.events, finishes=True)


def as_held(chunks: Sequence[Chunk], truth: Truth) -> Seen:
    return _read(_held(chunks), truth.events, finishes=False)


def _parsed(lines: Iterator[bytes]) -> Iterator[CriLine]:
    for line in lines:
        parsed = parse_line(line)
        assert parsed is not None, line
        yield parsed


def _held(chunks: Sequence[Chunk]) -> Iterator[CriLine]:
    rest: dict[str, bytes] = {}
    for chunk in chunks:
        *lines, going = (rest.get(chunk.stream, b"") + chunk.data).split(b"\n")
        yield from (CriLine(chunk.at, chunk.stream, False, line.decode()) for line in lines)
        while len(going) > LINE_BYTES_MAX:
            part, going = going[:LINE_BYTES_MAX], going[LINE_BYTES_MAX:]
            yield CriLine(chunk.at, chunk.stream, True, part.decode(errors="replace"))
        rest[chunk.stream] = going
    for stream, going in rest.items():
        if going:
            yield CriLine(chunks[-1].at, stream, False, going.decode())


def _read(lines: Iterator[CriLine], events: list[Event], *, finishes: bool) -> Seen:
    """Plays the log. With `finishes` the last drawn piece counts at a checkpoint, although no piece has come
    since."""
    seen, joiner, coming = Seen(pod()), Joiner(LINE_BYTES_MAX), list(events)
    begin, trained = coming[0].at, coming[0].step

    def slower(at: datetime) -> datetime:
        return begin + (at - begin) * _SLOWER

    for line in lines:
        while coming and coming[0].at + (_PIPE_LAG if coming[0].what == "saved" else timedelta()) <= line.at:
            event = coming.pop(0)
            trained = event.step if event.what == "step" else trained
            if event.what == "saved":
                fold = _finished(seen.fold, joiner, slower(event.at)) if finishes else seen.fold
                seen.at_saves.append((fold.progress.last_step, event.step))
        if seen.fold.tick(slower(line.at) - timedelta(seconds=0.01)):
            seen.stalls.append(line.at)
        text = joiner.add(line)
        if text is None:
            continue
        before = seen.fold.progress.last_step
        seen.fold.line(text, slower(line.at))
        if (now := seen.fold.progress.last_step) is not None and now != before:
            seen.numbers.append((now, trained))
        told = (one for piece in pieces(without_colours(text)) for one in read(piece))
        seen.saves += [one for one in told if isinstance(one, Save)]
    return seen


def _finished(fold: PodFold, joiner: Joiner, at: datetime) -> PodFold:
    fold, joiner = copy.deepcopy(fold), copy.deepcopy(joiner)
    for stream in ("stdout", "stderr"):
        text = joiner.add(CriLine(at, stream, True, "\r"))
        fold.line(text or "", at)
    return fold


def complaints(rule: Rule, written: Seen, held: Seen, events: list[Event]) -> list[str]:
    """Returns what the agent has read incorrectly, an empty list if all is correct."""
    begun, known = (events[0].step, rule.known_from if events[0].step == 0 else rule.known_again)
    wrong = []
    for seen in (written, held):
        way = "written" if seen is written else "held"
        wrong += [f"{way}: a stall at {at}" for at in seen.stalls]
        for number, trained in seen.numbers:
            if not _is_a_step(rule, number, begun, trained):
                wrong.append(f"{way}: step {number}, the trainer is at {trained}")
        if known is None and seen.numbers:
            wrong.append(f"{way}: {seen.numbers[0][0]} is read where nothing tells of a step")
        wrong += [f"{way}: a checkpoint of {save.step}" for save in seen.saves if not _is_true(save, events)]
    for number, trained in written.at_saves:
        due = None if known is None or trained < known else _shown(rule, trained)
        if number != due:
            wrong.append(f"written: {number} at the checkpoint of {trained}, not {due}")
    saved = {event.step for event in events if event.what == "saved"}
    first = written.fold.progress.first_step
    if first is not None and rule.per_epoch is None and first <= begun:
        wrong.append(f"the first step is {first}, and the run began behind {begun}")
    if not saved:
        wrong.append("no checkpoint was written")
    if rule.tells_saves and len(written.saves) < len(saved):
        wrong.append(f"{len(written.saves)} checkpoints are read, and {len(saved)} were written")
    if not rule.tells_saves and written.saves:
        wrong.append(f"{written.saves[0]} is read, and nothing tells of checkpoints")
    return wrong


def _shown(rule: Rule, step: int) -> int:
    return step if rule.per_epoch is None else (step - 1) % rule.per_epoch + 1


def _is_a_step(rule: Rule, number: int, begun: int, trained: int) -> bool:
    return number in {_shown(rule, step) for step in range(begun + 1, trained + 1)}


def _is_true(save: Save, events: list[Event]) -> bool:
    return save.step is None or save.step in {event.step for event in events if event.what == "saved"}
