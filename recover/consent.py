"""May this gang be touched? Pure: labels and annotations of the job and its namespace, the mode, holds.

The job's word beats its namespace's. Where label and annotation of one object disagree, the more careful one
counts. An unknown value counts as `observe`: it was meant to say something.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from detectors.contract import key
from recover.model import Gang, Mode, NamespaceView

__all__ = ["AUTO_RECOVERY", "ON_TERMINAL", "Hold", "OptIn", "held", "may_recreate", "opt_in", "within_mode"]

AUTO_RECOVERY = key("auto-recovery")
ON_TERMINAL = key("on-terminal")
_HOLD, _HOLD_UNTIL, _HOLD_REASON = key("hold"), key("hold-until"), key("hold-reason")


class OptIn(StrEnum):
    ENABLED = "enabled"
    OBSERVE = "observe"
    DISABLED = "disabled"


_CAREFUL_FIRST = (OptIn.DISABLED, OptIn.OBSERVE, OptIn.ENABLED)


def opt_in(gang: Gang, namespace: NamespaceView | None) -> OptIn:
    """What the job's people want. Nothing said anywhere means disabled."""
    own = _word(gang.labels, gang.annotations)
    if own is not None:
        return own
    if namespace is not None:
        return _word(namespace.labels, namespace.annotations) or OptIn.DISABLED
    return OptIn.DISABLED


def _word(labels: Mapping[str, str], annotations: Mapping[str, str]) -> OptIn | None:
    said = {_parse(source[AUTO_RECOVERY]) for source in (labels, annotations) if AUTO_RECOVERY in source}
    return next((word for word in _CAREFUL_FIRST if word in said), None)


def _parse(value: str) -> OptIn:
    try:
        return OptIn(value.strip().lower())
    except ValueError:
        return OptIn.OBSERVE


def may_recreate(annotations: Mapping[str, str]) -> bool:
    """The job may be deleted and made anew where its framework would not start it again. Only by its own
    annotation: a new uid is something that its owners must be ready for."""
    return annotations.get(ON_TERMINAL, "").strip().lower() == "recreate"


def within_mode(mode: Mode, namespace: NamespaceView | None) -> Mode:
    """The namespace may lower the cluster's mode, never raise it."""
    if namespace is not None and namespace.annotations.get(key("mode")) == Mode.OBSERVE:
        return Mode.OBSERVE
    return mode


class Hold(msgspec.Struct, frozen=True):
    """A person has frozen an object."""

    until: datetime | None
    reason: str


def held(annotations: Mapping[str, str], now: datetime) -> Hold | None:
    """The hold in force on an object with these annotations, if any.

    `hold` with any value but `false` holds; `hold-until` (RFC 3339) ends it. An unreadable time, or one
    without a zone, holds on: freezing longer is the safe mistake.
    """
    if annotations.get(_HOLD, "false").strip().lower() == "false" and _HOLD_UNTIL not in annotations:
        return None
    until: datetime | None = None
    if _HOLD_UNTIL in annotations:
        try:
            until = datetime.fromisoformat(annotations[_HOLD_UNTIL])
        except ValueError:
            until = None
        if until is not None and until.tzinfo is None:
            until = None
        if until is not None and until <= now:
            return None
    return Hold(until, annotations.get(_HOLD_REASON, ""))
