"""Folds the log lines of one container into the edges of its progress. Pure; pod_folds.py keeps one fold for
each container."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from detectors.catalog.log_errors import Implies, LogErrorRow
from detectors.folds.tail import Tail
from detectors.rules import bars, first_error, held_back, progress, saves, signatures, step_lines, step_track
from detectors.rules.facts import PodRef
from detectors.rules.signatures import Hit, Known, Signatures
from detectors.rules.step_track import Track
from detectors.service.settings import Logs
from detectors.text.log_template import without_colours
from detectors.wire.fitting import fitted
from detectors.wire.training import Edge, PodProgress, PodSettings

__all__ = ["PodFold"]

_PAUSE_GROWTH = 1.1
"""Least factor by which the longest pause grows between two writes about it."""
_HEARD_ALONE_S = 60.0
"""Time in seconds after which a step that only one line has named is published. The job prints its steps so
seldom that the second line may come much later."""


class _Line(msgspec.Struct):
    """The readings of all pieces of one line together."""

    saves: list[step_lines.Save] = []
    evaluates: bool = False
    signs: int = 0
    """Number of readings that show progress of a believed count of steps."""
    alive: bool = False
    """Whether the line shows that the training works, even if it contains no new step."""


class PodFold:
    """Keeps the progress of one container instance, and its last edge.

    A container is published once it has printed a step, a complete checkpoint, or a line that a recipe
    searches for. It is also published if it failed by itself, and its pod was given devices or the controller
    has named the pod. A container that has ended is also published if it printed an error, and in any case if
    its pod has devices or was named: a rank may end without a line that any rule knows, and then only its
    last lines say why. All other containers of the node are not published.
    """

    def __init__(self, ref: PodRef, settings: Logs, rows: tuple[LogErrorRow, ...]) -> None:
        self.ref = ref
        self._settings = settings
        self._rows = first_error.compiled(rows)
        self._job = fitted(PodSettings, uid=ref.uid)
        self._named = False
        self._holds_devices = False
        self._steps = step_track.Steps()
        self._progress = progress.Progress()
        self._heard: tuple[int, datetime] | None = None
        """The last number that may be a step, until a step is proven, and the time of the first line with
        this number."""
        self._told_heard = False
        self._saves = saves.Saves()
        self._told_save = False
        """Whether it was reported that the log of this container shows complete checkpoints."""
        self._sign: step_lines.Sign | step_lines.Metrics | step_lines.Candidate | None = None
        """The last sign of work that is not itself a step."""
        self._errors = first_error.Errors()
        self._told_faults: set[str] = set()
        """Codes of this container's own faults that were published before its end."""
        self._known = Known()
        self._free_device_bytes: int | None = None
        self._tail = Tail()
        self._edge: Edge | None = None
        self._edge_at: datetime | None = None
        self._known_until: datetime | None = None
        """Time of the last change that an earlier run of the agent has published: lines up to this time make
        no edge again."""
        self._goes_on = False
        """Whether the last step was in a line that has not ended."""
        self._held = held_back.HeldBack()
        self._not_silence = timedelta(0)
        """Time since the last sign of progress that was no silence: the amount by which the clock was set,
        and the time in which the agent did not read."""
        self._is_fresh = False
        """Whether the last step or sign of work has come since the last tick."""
        self._was_away = False
        """Whether the agent has started again and has read no step since."""
        self._told_pause_s: float | None = None
        """The longest pause that is published."""
        self._silent_s: float | None = None
        """The silence for which the container has stalled."""

    @property
    def ended_at(self) -> datetime | None:
        return self._edge_at if self._edge is Edge.ENDED else None

    @property
    def steps(self) -> step_track.Steps:
        """All that was read as a step so far, whether proven or not."""
        return self._steps

    @property
    def progress(self) -> progress.Progress:
        return self._progress

    @property
    def saves(self) -> saves.Saves:
        return self._saves

    @property
    def errors(self) -> first_error.Errors:
        return self._errors

    @property
    def tells(self) -> bool:
        """Whether the log alone is a reason to publish the container, even if its pod has no devices and the
        controller has not named the pod."""
        steps = self._progress.first_step is not None or self._heard is not None
        lines = self._saves.last is not None or bool(self._known.lines)
        return steps or lines or self._errors.error is not None

    @property
    def named(self) -> bool:
        """Whether the controller has named the pod."""
        return self._named

    @property
    def stalled(self) -> bool:
        return self._edge is Edge.STALLED

    def restore(self, published: PodProgress, sought: Signatures) -> None:
        """Continues from what an earlier run of the agent published."""
        self._edge, self._edge_at = published.edge, published.at
        is_stepping = published.first_step is not None
        self._steps = step_track.Steps(known=published.last_step if is_stepping else None)
        self._progress = progress.Progress(
            first_step=published.first_step,
            first_step_at=published.first_step_at,
            last_step=published.last_step if is_stepping else None,
            last_step_at=published.last_step_at if is_stepping else None,
            of_epoch=published.step_of_epoch,
            alive_at=published.last_step_at if is_stepping else None,
            durations_s=(published.median_step_s,) if published.median_step_s is not None else (),
            longest_s=progress.bounded_s(published.longest_pause_s),
        )
        self._told_pause_s, self._silent_s = published.longest_pause_s, published.silent_s
        if not is_stepping and published.last_step is not None and published.last_step_at is not None:
            self._heard, self._told_heard = (published.last_step, published.last_step_at), True
        self._saves = saves.restored(self._saves, published.last_save)
        self._told_save = published.last_save is not None
        self._was_away = True
        self._errors = first_error.restored(published.first_error, self._rows)
        if published.first_error is not None:
            self._told_faults.add(published.first_error.code)
        self._known = signatures.known_again(sought, published.known_lines)
        self._free_device_bytes = published.free_device_bytes
        if published.edge is not Edge.STARTED:
            self._known_until = max(published.last_step_at or published.at, published.at)
        self._tail.keep(published.tail)

    def job_settings(self, job: PodSettings) -> bool:
        """Takes the settings of the job. Returns True if the step template changed: the log must then be read
        again from its start. The log of a container that has ended is closed, so its template no longer
        changes anything."""
        changed = job.step_template != self._job.step_template and self._edge is not Edge.ENDED
        self._job, self._named = job, True
        self.awaits_save(job.awaits_save)
        if changed:
            self._saves = saves.read_again(self._saves)
            self._steps, self._heard = step_track.Steps(), None
            self._progress, self._errors, self._known_until = progress.Progress(), first_error.Errors(), None
            self._told_pause_s = None
            self._tail.drop()
            self._edge = self._edge_at = None
            self._started()
        return changed

    def awaits_save(self, request: str) -> None:
        """Takes the request of the controller, which waits for the next complete checkpoint; empty if it does
        not wait."""
        self._saves = saves.take_request(self._saves, request)

    def line(self, text: str, at: datetime, hits: Sequence[Hit] = ()) -> bool:
        """Takes one line. Returns True if the line was an edge. `hits` are what the recipes find in the line.

        A line that ends with a carriage return is not complete: the runtime writes long lines in large parts.
        """
        knew, saved = self._known.lines, self._saves
        if hits:
            self._known = signatures.observe(self._known, hits, at)
            if self._edge is None:
                self._started()
        is_edge = self._step(text, at)
        is_edge = self._fails(at) or is_edge
        if self._saves is not saved and self._saves.served != saved.served:
            return True
        return is_edge or self._known.lines != knew

    def _step(self, text: str, at: datetime) -> bool:
        pieces = bars.pieces(text)
        is_old = self._known_until is not None and at <= self._known_until
        before, line = self._steps.lead, _Line()
        for piece in pieces:
            self._errors = first_error.observe(self._errors, piece, at, self._rows)
            for read in step_lines.read(piece, self._job.step_template, is_drawn=len(pieces) > 1):
                self._take(read, line, at)
        if line.signs:
            self._goes_on = text.endswith("\r")
            is_part = self._goes_on or line.signs > 1
            self._held = held_back.part(self._held) if is_part else held_back.whole(self._held)
        self._tail.keep(without_colours(pieces[-1]) if pieces else "")
        self._progress = progress.began(self._progress, at)
        if line.saves or self._saves.pending is not None:
            self._saved(line.saves, before, at)
        if is_old:
            self._progress = progress.read_again(self._progress, self._steps.lead, at)
            return False
        return self._moved(before, at, alive=line.alive, pauses=bool(line.saves) or line.evaluates)

    def _take(self, read: step_lines.Read, line: _Line, at: datetime) -> None:
        """Takes one thing that the line says, and adds it to what the whole line has said so far."""
        was = self._steps
        self._steps = step_track.observe(was, read, at)
        match read:
            case step_lines.Save():
                line.saves.append(read)
            case step_lines.Sign():
                line.evaluates = line.evaluates or read.evaluates
                line.alive = self._is_new(read) or line.alive
            case step_lines.Metrics():
                line.alive = self._is_new(read) or line.alive
                self._held = held_back.figures(self._held, at)
            case step_lines.Candidate():
                shows_life = step_track.shows_life(was, self._steps, read)
                line.signs += shows_life
                line.alive = line.alive or shows_life or (_is_bar_without_name(read) and self._is_new(read))
                self._take_candidate(read, at)

    def _fails(self, at: datetime) -> bool:
        """Returns True once for each kind of fault of the container's own. Such an error is published at
        once: the API may show the pod's end before the agent sees it, and the controller then decides."""
        error = self._errors.error
        if error is None or self._errors.implies is not Implies.OWN_FAULT or error.code in self._told_faults:
            return False
        if self._edge is None and (self._named or self._holds_devices):
            self._turn(Edge.STARTED, at)
        if self.published() is None:
            return False
        self._told_faults.add(error.code)
        return True

    def _saved(self, told: Sequence[step_lines.Save], before: Track | None, at: datetime) -> None:
        """Takes what the line says about checkpoints. A rank may print checkpoints and no steps, because
        another rank prints the steps."""
        self._saves = saves.observe(self._saves, told, before, self._steps.lead, at)
        if self._edge is None and self._saves.last is not None:
            self._turn(Edge.STARTED, at)

    def _is_new(self, sign: step_lines.Sign | step_lines.Metrics | step_lines.Candidate) -> bool:
        """Whether the sign differs from the last one. A bar or a number that is printed again without a
        change shows no progress."""
        told, self._sign = self._sign, sign
        return told != sign

    def _take_candidate(self, read: step_lines.Candidate, at: datetime) -> None:
        """Takes a number that may be a step, as long as no step is proven."""
        if read.strong and self._progress.first_step is None:
            if self._heard is None or self._heard[0] != read.step:
                self._heard = read.step, at
            if self._edge is None:
                self._turn(Edge.STARTED, at)

    def _moved(self, before: Track | None, at: datetime, *, alive: bool, pauses: bool) -> bool:
        """Takes what the line has changed: the step, or only a sign that the training continues. Returns True
        if the change was an edge."""
        lead, was = self._steps.lead, self._progress
        if lead is not None:
            self._progress = progress.observe(
                was, lead, at, is_new=before is not None and before.name != lead.name
            )
        if self._progress is was:
            if was.first_step is None or not (alive or pauses):
                return False
            self._progress = progress.pausing(was, at, self._settings.pause_s) if pauses else was
            self._progress = progress.alive(self._progress, at) if alive else self._progress
            if self._progress is was:
                return False
        self._not_silence, self._is_fresh, self._was_away = timedelta(0), True, False
        if self._progress.last_step_at == was.last_step_at or self._edge is Edge.ENDED:
            return False
        self._errors = first_error.survived(self._errors, at)
        if self._edge in (None, Edge.STARTED):
            return self._turn(Edge.STEPPING, at)
        return self._turn(Edge.RESUMED, at) if self._edge is Edge.STALLED else False

    def tells_pause(self) -> bool:
        """Returns True if the longest pause is longer than the published one, and long enough to make the
        limit longer: the next start of the job, or of the agent, needs to know the pause. The pause is
        published at a tick, because a clock that was set may have made it."""
        longest_s, told_s = self._progress.longest_s, self._told_pause_s or 0.0
        if not progress.makes_limit_longer(longest_s, self._settings.stall_min_s):
            return False
        if longest_s <= _PAUSE_GROWTH * told_s:
            return False
        self._told_pause_s = longest_s
        return True

    def tick(self, now: datetime) -> bool:
        """Returns True if the container has stalled just now."""
        self._is_fresh = False
        self._saves = saves.ticked(self._saves, now)
        last_at = self._progress.alive_at
        if last_at is None or self._edge not in (Edge.STEPPING, Edge.RESUMED):
            return False
        if self._was_away:
            # The time in which the agent did not read was no silence.
            self._not_silence, self._was_away = now - last_at, False
        limit_s = progress.stall_limit_s(
            self._progress,
            stall_min_s=self._settings.stall_min_s,
            stall_factor=self._settings.stall_factor,
            announced_s=self._settings.pause_s,
            job=self._job,
            goes_on=self._goes_on,
            in_parts=self._held.in_parts,
        )
        silent_s = (now - last_at - self._not_silence).total_seconds()
        if limit_s is None or silent_s < limit_s:
            return False
        self._silent_s = silent_s
        return self._turn(Edge.STALLED, now)

    def waits_for_second(self, now: datetime) -> bool:
        """Returns True once, if one line named a step a while ago and no other has come since."""
        if self._heard is None or self._edge is not Edge.STARTED or self._told_heard:
            return False
        self._told_heard = (now - self._heard[1]).total_seconds() >= _HEARD_ALONE_S
        return self._told_heard

    def begins_to_save(self) -> bool:
        """Returns True once, if the log has shown a complete checkpoint: the controller may wait for the next
        one."""
        if self._told_save or self._saves.last is None:
            return False
        self._told_save = True
        return True

    def clock_set(self, by: timedelta, now: datetime) -> None:
        """Adjusts to a jump of the node's clock: the time since the last training step stays the same. For a
        training step since the last tick nobody knows whether the old or the new time dates it, so no time
        counts as passed since then."""
        last_at = self._progress.alive_at
        self._not_silence = now - last_at if self._is_fresh and last_at else self._not_silence + by
        self._progress = progress.clock_set(self._progress, by, is_fresh=self._is_fresh)
        self._saves = saves.clock_set(self._saves, by)

    def end(self, at: datetime, free_device_bytes: int | None = None) -> bool:
        """Records the end. Returns True if the end is new and is published. `free_device_bytes` is the value
        last read before now."""
        if self._edge is Edge.ENDED:
            return False
        self._free_device_bytes = free_device_bytes
        self._turn(Edge.ENDED, at)
        return self.published() is not None

    def holds_devices(self) -> bool:
        """Records that the kubelet lists devices for the pod, perhaps only after the end. Returns True if the
        container is published for that reason."""
        if self._holds_devices:
            return False
        was = self.published()
        self._holds_devices = True
        return was is None and self.published() is not None

    def drop_tail(self) -> bool:
        """Returns True if there was a tail. Dropping it makes room for containers that ended later."""
        return self._tail.drop()

    def published(self) -> PodProgress | None:
        if self._edge is None or self._edge_at is None:
            return None
        ended = self._edge is Edge.ENDED
        steps, heard = self._progress, self._heard if self._progress.first_step is None else None
        if not (self.tells or self._named or self._holds_devices):
            return None
        return fitted(
            PodProgress,
            uid=self.ref.uid,
            namespace=self.ref.namespace,
            name=self.ref.name,
            container=self.ref.container,
            instance=self.ref.instance,
            edge=self._edge,
            at=self._edge_at,
            first_step=steps.first_step,
            first_step_at=steps.first_step_at,
            last_step=steps.last_step if heard is None else heard[0],
            last_step_at=steps.last_step_at if heard is None else heard[1],
            step_of_epoch=steps.of_epoch,
            median_step_s=progress.median_step_s(self._progress),
            longest_pause_s=self._told_pause_s,
            silent_s=self._silent_s if self._edge is Edge.STALLED else None,
            last_save=self._saves.last,
            first_error=self._errors.error,
            known_lines=list(self._known.lines),
            free_device_bytes=self._free_device_bytes if ended else None,
            tail=self._tail.text if ended else "",
        )

    def _started(self) -> None:
        if self._known.lines:
            self._turn(Edge.STARTED, self._known.lines[0].at)

    def _turn(self, edge: Edge, at: datetime) -> bool:
        self._edge, self._edge_at = edge, at
        return True


def _is_bar_without_name(read: step_lines.Candidate) -> bool:
    return read.name.startswith(step_lines.ANONYMOUS)
