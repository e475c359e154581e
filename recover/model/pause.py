"""Reads the ConfigMap `rekindle-pause`, by which people pause Rekindle, for model/modes.py. `rekindle pause`
writes it. Pure.

The existence of the object pauses Rekindle: `kubectl create configmap rekindle-pause` is enough. A field that
cannot be used is reported and has no other effect, since doing less is the safe mistake: an end that cannot
be read is no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import ObjectMeta

__all__ = ["KEYS", "PAUSE", "Pause", "read_pause", "unread_pause"]

PAUSE = "rekindle-pause"
KEYS = ("by", "reason", "since", "until")
"""Keys of the ConfigMap's data; each may be missing."""
_WORDS_MAX = 256
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Pause(msgspec.Struct, frozen=True):
    since: datetime
    """Time at which the object was created, or the value of its own `since`, for people to read: no action
    depends on this time."""
    until: datetime | None = None
    """End of the pause; None until somebody resumes Rekindle."""
    by: str = ""
    reason: str = ""
    problems: tuple[str, ...] = ()
    """Fields of the object that cannot be used, as sentences."""
    uid: str = ""

    def lasts(self, now: datetime) -> bool:
        return self.until is None or now < self.until

    def words(self) -> str:
        """Returns a sentence that begins with `Rekindle is paused`, without a full stop."""
        by = f" by {self.by}" if self.by else ""
        since = f" since {self.since:%Y-%m-%d %H:%M} UTC" if self.since > _LONG_AGO else ""
        until = f" until {self.until:%Y-%m-%d %H:%M} UTC" if self.until is not None else ""
        return f"Rekindle is paused{by}{since}{until}" + (f": {self.reason}" if self.reason else "")


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


def read_pause(raw: bytes) -> Pause:
    """Reads the object. It never raises: whatever the object contains, people have paused Rekindle."""
    try:
        wire = msgspec.json.decode(raw, type=_ConfigMap)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return unread_pause(str(error))
    data = wire.data or {}
    created = wire.metadata.creation_timestamp or _LONG_AGO
    problems = [
        f"ConfigMap {PAUSE}: data.{one_line(key)[:40]} is not known, expected one of {', '.join(KEYS)}; "
        "Rekindle ignores it"
        for key in sorted(data.keys() - set(KEYS))[:5]
    ]
    until, since = _time(data, "until", "the pause has no end", problems), created
    if "since" in data:
        since = (
            _time(data, "since", "Rekindle uses the time at which the ConfigMap was created", problems)
            or created
        )
    return Pause(
        since=since,
        until=until,
        by=_text(data, "by"),
        reason=_text(data, "reason"),
        problems=tuple(problems),
        uid=wire.metadata.uid,
    )


def unread_pause(why: str) -> Pause:
    """Returns the pause of an object that exists and cannot be read."""
    problem = f"ConfigMap {PAUSE} cannot be read ({one_line(why)[:_WORDS_MAX]}); the pause has no end"
    return Pause(since=_LONG_AGO, problems=(problem,))


def _text(data: Mapping[str, str], key: str) -> str:
    return one_line(data.get(key, "")).strip()[:_WORDS_MAX]


def _time(data: Mapping[str, str], key: str, instead: str, problems: list[str]) -> datetime | None:
    text = data.get(key)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is not None and found.tzinfo is not None:
        return found.astimezone(UTC)
    problems.append(
        f"ConfigMap {PAUSE}: data.{key} is {one_line(text)[:40]!r}, expected a time with a zone as "
        f"2026-01-31T18:00:00Z; {instead}"
    )
    return None
