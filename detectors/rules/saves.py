"""Which checkpoint of a container is known to be complete, by its log. Pure; folds/pods.py holds one for each
container.

A line tells that a checkpoint is written, and its row of catalog/steps.toml when all of it is. The controller
may ask for the next one: it counts only if the line that completes it is younger than the moment at which the
agent heard of that. Both times are of the node's own clock, so no other clock is compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from detectors.rules.step_lines import Save
from detectors.rules.step_track import Track
from detectors.wire.fitting import fitted
from detectors.wire.training import LastSave

__all__ = ["Saves", "asked", "clock_set", "observe", "read_again", "restored", "ticked"]


class _Pending(msgspec.Struct, frozen=True):
    """A save after which the training's next step shows that it is over."""

    step: int | None
    """Of the checkpoint; None where the line does not say."""
    after: int | None
    """The step that the log had come to."""


class Saves(msgspec.Struct, frozen=True):
    last: LastSave | None = None
    """As published."""
    pending: _Pending | None = None
    request: str = ""
    """The controller waits for a checkpoint, and calls that wait so."""
    heard_at: datetime | None = None
    """When the agent heard of the request; None until its next tick."""

    @property
    def served(self) -> str:
        """The last request after which a checkpoint was complete."""
        return self.last.served if self.last is not None else ""


def observe(
    saves: Saves, told: Sequence[Save], before: Track | None, lead: Track | None, at: datetime
) -> Saves:
    """With one line: the checkpoints of which it tells, and the leading track of the steps before and after
    it. One line may hold both a step and a save, and the step is the older of them."""
    if lead is not None and (before is None or (before.name, before.last) != (lead.name, lead.last)):
        saves = _stepped(saves, lead, at)
    for save in told:
        saves = _told(saves, save, lead, at)
    return saves


def _told(saves: Saves, save: Save, lead: Track | None, at: datetime) -> Saves:
    match save.complete:
        case "at-once":
            return _completed(saves, save.step, at)
        case "next-step":
            known = saves.pending.step if saves.pending is not None else None
            step = save.step if save.step is not None else known
            pending = _Pending(step, lead.last if lead is not None else None)
            return msgspec.structs.replace(saves, pending=pending)
        case "unknown":
            return saves


def _stepped(saves: Saves, lead: Track, at: datetime) -> Saves:
    """A step that a buffer held back may be printed behind the save. So it must be higher than the steps of
    the save and of the line before it. A lower one shows that the training began again."""
    pending = saves.pending
    if pending is None:
        return saves
    if not lead.of_epoch:
        if pending.after is not None and lead.last < pending.after:
            return msgspec.structs.replace(saves, pending=None)
        if lead.last <= max(pending.step or 0, pending.after or 0):
            return saves
    return _completed(saves, pending.step, at)


def _completed(saves: Saves, step: int | None, at: datetime) -> Saves:
    is_asked = saves.request and saves.heard_at is not None and at > saves.heard_at
    last = fitted(LastSave, at=at, step=step, served=saves.request if is_asked else saves.served)
    return msgspec.structs.replace(saves, last=last, pending=None)


def asked(saves: Saves, request: str) -> Saves:
    """The controller's wish; empty where it has none."""
    if request == saves.request:
        return saves
    return msgspec.structs.replace(saves, request=request, heard_at=None)


def ticked(saves: Saves, now: datetime) -> Saves:
    """The log has been read up to now, so lines that follow are younger than a request that was heard."""
    if not saves.request or saves.heard_at is not None:
        return saves
    return msgspec.structs.replace(saves, heard_at=now)


def clock_set(saves: Saves, by: timedelta) -> Saves:
    if saves.heard_at is None:
        return saves
    return msgspec.structs.replace(saves, heard_at=saves.heard_at + by)


def read_again(saves: Saves) -> Saves:
    """The log is read from its start once more."""
    return msgspec.structs.replace(saves, last=None, pending=None)


def restored(saves: Saves, published: LastSave | None) -> Saves:
    """With what an earlier run of the agent has published."""
    return msgspec.structs.replace(saves, last=published)
