"""Finds out which of the numbers in a container's log is the training's step. Pure; folds/pods.py keeps one
for each container.

step_lines.py names candidates. Lines with one name are a track, and a track is believed once it has risen
from one line to another. A line that is printed once, such as `step=0` when a framework is initialised, is
never believed. Several tracks may rise together; one of them leads.

    candidate -> track, unproven -> risen over two lines -> believed -> leads, or counts beside the lead

- Lower numbers that rise again take the track back: a restart in place, or an epoch that begins again. A
  single lower number does not: the ranks of a container print in any order.
- A bar without a name is the training's if the log shows its total, or a checkpoint has its count, or the bar
  shows a loss, or the training's own figures come between its counts. Evaluations and the reading of data
  draw such bars, too. The figures may come late, since a program holds its standard output back, and a
  runtime holds back a line that does not end: they count only for a bar that is no inner one, and that rises
  after them.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from detectors.rules.step_lines import ANONYMOUS, BARE, VAGUE, Candidate, Metrics, Read, Total

__all__ = ["Steps", "Track", "observe", "shows_life"]

TOGETHER_S = 0.005
"""Time in seconds: lines that are closer together came out of one buffer."""
_TRACKS_MAX = 12
_PACE_PER_S_MAX = 100_000.0
_VAGUE_RISES = 3
"""Number of rises by the same amount that prove a vague track: a rate or a duration rises now and then,
too."""
_VAGUE_TOTAL_MIN = 64
"""Least total of a vague track that is believed: `step 3/20` of some set-up, download or sampling rises as
well."""
_FIGURES_MIN = 2
_SILENT_RISES = 4


class Track(msgspec.Struct, frozen=True):
    """The numbers that were read under one name. `at` is the time of the line that rose last, `heard_at` that
    of the last line."""

    name: str
    order: int
    strong: bool
    of_epoch: bool
    first: int
    first_at: datetime
    last: int
    at: datetime
    heard_at: datetime
    rises: int = 0
    stride: int = 0
    """Amount by which it rose last."""
    total: int | None = None
    """The total in the last line."""
    lowered: int | None = None
    """A number below the last one, which may begin another run."""
    believed: bool = False


class Steps(msgspec.Struct, frozen=True):
    """All tracks of one container instance. `known` is the last step that an earlier run of the agent has
    published: a higher step continues from it."""

    tracks: tuple[Track, ...] = ()
    leading: str = ""
    total: int | None = None
    """Number of steps that the training announced."""
    bar: str = ""
    """The bar without a name that was drawn last, and is no inner one."""
    waiting: str = ""
    """Name of the bar after whose last count figures of the training came; empty if none came, or once the
    count of that bar has changed."""
    figures: tuple[tuple[str, int], ...] = ()
    """Number of times that the training's figures came between two rising counts of each bar without a
    name."""
    silent_rises: int = 0
    """Number of rises of other tracks since the leading one rose."""
    known: int | None = None

    @property
    def lead(self) -> Track | None:
        """The track of the training; None before a track is believed."""
        return _named(self, self.leading) if self.leading else None

    @property
    def rivals(self) -> tuple[Track, ...]:
        """Other tracks that rise, too."""
        return tuple(track for track in self.tracks if track.believed and track.name != self.leading)


def observe(steps: Steps, read: Read, at: datetime) -> Steps:
    """Returns the state with one more reading of a line."""
    match read:
        case Candidate():
            return _numbered(steps, read, at)
        case Metrics():
            return steps if steps.waiting == steps.bar else msgspec.structs.replace(steps, waiting=steps.bar)
        case Total():
            return msgspec.structs.replace(steps, total=read.steps)
    return steps


def shows_life(before: Steps, after: Steps, candidate: Candidate) -> bool:
    """Whether a line of a believed track contained another number than the line before."""
    now = _named(after, candidate.name)
    if now is None or not now.believed:
        return False
    was = _named(before, candidate.name)
    return was is None or was.last != now.last or was.lowered != now.lowered


def _named(steps: Steps, name: str) -> Track | None:
    for track in steps.tracks:
        if track.name == name:
            return track
    return None


def _drawn(steps: Steps, bar: Candidate, before: Track | None) -> Steps:
    """Records whether the training's figures came between two counts of this bar. A bar that begins again
    loses its figures."""
    if steps.bar != bar.name:
        steps = msgspec.structs.replace(steps, bar=bar.name)
    waiting = steps.waiting
    if before is None or bar.step == before.last or (bar.step > before.last and waiting != bar.name):
        return steps
    figures = dict(steps.figures)
    if bar.step < before.last:
        figures.pop(bar.name, None)
    else:
        figures[bar.name] = figures.get(bar.name, 0) + 1
    return msgspec.structs.replace(
        steps,
        waiting="" if waiting == bar.name else waiting,
        figures=tuple(figures.items())[-_TRACKS_MAX:],
    )


def _numbered(steps: Steps, candidate: Candidate, at: datetime) -> Steps:
    if candidate.name == BARE and steps.leading.startswith(VAGUE):
        lead = steps.lead
        if lead is not None and candidate.step > lead.last:
            candidate = msgspec.structs.replace(candidate, name=lead.name)  # the same count in fewer words
    before = _named(steps, candidate.name)
    is_anonymous = candidate.name.startswith(ANONYMOUS)
    if is_anonymous:
        if not _may_be_the_training(steps, candidate):
            return steps
        steps = _drawn(steps, candidate, before)
    track = _begun(candidate, at) if before is None else _moved(before, candidate, at)
    if is_anonymous and (_is_announced(steps, candidate) or candidate.strong):
        of_epoch = candidate.of_epoch and candidate.total != steps.total
        track = msgspec.structs.replace(track, strong=True, of_epoch=of_epoch)
    if not track.believed and _is_believable(steps, track, candidate, at):
        track = msgspec.structs.replace(track, believed=True)
    others = [one for one in steps.tracks if one is not before]
    if len(others) >= _TRACKS_MAX:
        others = _without_oldest(others)
    return _led(msgspec.structs.replace(steps, tracks=(*others, track)), before, track)


def _may_be_the_training(steps: Steps, bar: Candidate) -> bool:
    """Whether a bar without a name may count the training's steps: if the log has announced their number, the
    bar has this total; otherwise the bar is not drawn below another bar, or it shows a loss, or a checkpoint
    has its count."""
    if steps.total is not None:
        return bar.total == steps.total
    return bar.strong or not bar.is_inner


def _is_announced(steps: Steps, candidate: Candidate) -> bool:
    if steps.total is not None and candidate.total == steps.total:
        return True
    return any(name == candidate.name and times >= _FIGURES_MIN for name, times in steps.figures)


def _begun(candidate: Candidate, at: datetime) -> Track:
    return Track(
        name=candidate.name,
        order=candidate.order,
        strong=candidate.strong,
        of_epoch=candidate.of_epoch,
        first=candidate.step,
        first_at=at,
        last=candidate.step,
        at=at,
        heard_at=at,
        total=candidate.total,
    )


def _moved(track: Track, candidate: Candidate, at: datetime) -> Track:
    step = candidate.step
    if step > track.last:
        return _risen(track, candidate, at)
    if step == track.last:
        return msgspec.structs.replace(track, heard_at=at, lowered=None)
    if not track.believed:
        return msgspec.structs.replace(_begun(candidate, at), strong=track.strong)
    if track.lowered is None or step <= track.lowered:
        return msgspec.structs.replace(track, heard_at=at, lowered=step)
    return msgspec.structs.replace(track, last=step, at=at, heard_at=at, rises=track.rises + 1, lowered=None)


def _risen(track: Track, candidate: Candidate, at: datetime) -> Track:
    step, since_s = candidate.step, (at - track.heard_at).total_seconds()
    is_together = 0 <= since_s < TOGETHER_S and not candidate.is_bar
    if not (is_together or candidate.is_bar) and (step - track.last) > _PACE_PER_S_MAX * max(
        since_s, TOGETHER_S
    ):
        return msgspec.structs.replace(track, heard_at=at) if track.believed else _begun(candidate, at)
    first, first_at = track.first, track.first_at
    if track.rises == 1 and first == 0 and not track.believed and step - track.last != track.last:
        first, first_at = track.last, track.at  # the 0 was printed before the checkpoint was loaded
    stride = step - track.last
    is_uneven = not track.strong and track.rises > 0 and stride != track.stride
    return msgspec.structs.replace(
        track,
        first=first,
        first_at=first_at,
        last=step,
        at=at,
        heard_at=at,
        rises=1 if is_uneven and _is_vague(track) else track.rises + (not is_together),
        stride=stride,
        total=candidate.total,
        lowered=None,
    )


def _is_believable(steps: Steps, track: Track, candidate: Candidate, at: datetime) -> bool:
    if not track.strong:
        is_long = candidate.total is None or candidate.total >= _VAGUE_TOTAL_MIN
        return _is_vague(track) and is_long and track.rises >= _VAGUE_RISES
    if steps.known is not None and track.last > steps.known:
        return True
    # A program may print 0 when it starts, and then the step after that of its checkpoint.
    return track.rises >= (2 if track.first == 0 and track.last > 1 else 1)


def _is_vague(track: Track) -> bool:
    return track.name.startswith(VAGUE)


def _led(steps: Steps, before: Track | None, track: Track) -> Steps:
    """Decides which track leads now. The leading track gives way to a track that says more (`order`), or to a
    track that rises while the leading one does not. The latter must say more than a number: a language model
    prints numbered steps, too."""
    if not track.believed:
        return steps
    if track.name == steps.leading and not steps.silent_rises:
        return steps
    lead = steps.lead
    if lead is None:
        return msgspec.structs.replace(steps, leading=track.name, silent_rises=0)
    rose = before is None or before.at != track.at or before.last != track.last
    if track.name == lead.name:
        return msgspec.structs.replace(steps, silent_rises=0) if rose else steps
    silent = steps.silent_rises + (rose and track.name != BARE)
    if track.order < lead.order or silent >= _SILENT_RISES:
        return msgspec.structs.replace(steps, leading=track.name, silent_rises=0)
    return msgspec.structs.replace(steps, silent_rises=silent)


def _without_oldest(tracks: list[Track]) -> list[Track]:
    """Makes room for another track. A believed track is kept longest."""
    oldest = min(tracks, key=lambda track: (track.believed, track.heard_at))
    return [track for track in tracks if track is not oldest]
