"""Finds out from a container's log which checkpoint is known to be complete. Pure; folds/pods.py keeps one
for each container.

A line shows that a checkpoint is written, and its row of catalog/steps.toml says when the checkpoint is
complete. The controller may request the next one: a checkpoint counts for the request only if the line that
completes it is later than the moment at which the agent heard of the request. Both times are of the node's
own clock, so no other clock is compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from detectors.rules.step_lines import Save
from detectors.rules.step_track import Track
from detectors.wire.fitting import fitted
from detectors.wire.training import LastSave

__all__ = ["Saves", "clock_set", "observe", "read_again", "restored", "take_request", "ticked"]


class _Pending(msgspec.Struct, frozen=True):
    """A save that is complete once the training shows its next step."""

    step: int | None
    """Step of the checkpoint; None if the line does not contain it."""
    after: int | None
    """The step that the log had reached."""


class Saves(msgspec.Struct, frozen=True):
    last: LastSave | None = None
    """The last complete checkpoint, as published."""
    pending: _Pending | None = None
    request: str = ""
    """Id of the controller's request for the next checkpoint; empty if there is none."""
    heard_at: datetime | None = None
    """Time at which the agent heard of the request; None until its next tick."""

    @property
    def served(self) -> str:
        """The last request after which a checkpoint was complete."""
        return self.last.served if self.last is not None else ""


def observe(
    saves: Saves, told: Sequence[Save], before: Track | None, lead: Track | None, at: datetime
) -> Saves:
    """Takes one line: the checkpoints in it, and the leading track before and after it. If one line contains
    both a step and a save, the step is the older of the two."""
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
    """Takes a new step. A step that a buffer held back may be printed after the save, so the step must be
    higher than those of the save and of the line before it. A lower step shows that the training began
    again."""
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


def take_request(saves: Saves, request: str) -> Saves:
    """Takes the controller's request; empty if there is none."""
    if request == saves.request:
        return saves
    return msgspec.structs.replace(saves, request=request, heard_at=None)


def ticked(saves: Saves, now: datetime) -> Saves:
    """Records that the log has been read up to now, so lines that follow are later than a request that was
    heard."""
    if not saves.request or saves.heard_at is not None:
        return saves
    return msgspec.structs.replace(saves, heard_at=now)


def clock_set(saves: Saves, by: timedelta) -> Saves:
    if saves.heard_at is None:
        return saves
    return msgspec.structs.replace(saves, heard_at=saves.heard_at + by)


def read_again(saves: Saves) -> Saves:
    """Forgets all saves, because the log is read again from its start."""
    return msgspec.structs.replace(saves, last=None, pending=None)


def restored(saves: Saves, published: LastSave | None) -> Saves:
    """Continues from what an earlier run of the agent published."""
    return msgspec.structs.replace(saves, last=published)
