"""ConfigMap `rekindle-pause`: people have paused Rekindle. Read here for model/modes.py, and written by
`rekindle pause`. Pure.

The object pauses by being there: `kubectl create configmap rekindle-pause` is enough. What cannot be used in
it is named and changes nothing else, since to do less is the safe mistake: an unreadable end is no end.
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
"""Of its data; each may be missing."""
_WORDS_MAX = 256
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Pause(msgspec.Struct, frozen=True):
    since: datetime
    """When it was written, or what the object's own `since` says: for people alone."""
    until: datetime | None = None
    """None: until somebody resumes."""
    by: str = ""
    reason: str = ""
    problems: tuple[str, ...] = ()
    """What cannot be used in the object, in words."""
    uid: str = ""

    def lasts(self, now: datetime) -> bool:
        return self.until is None or now < self.until

    def words(self) -> str:
        """`Rekindle is paused ...`, without a full stop."""
        by = f" by {self.by}" if self.by else ""
        since = f" since {self.since:%Y-%m-%d %H:%M} UTC" if self.since > _LONG_AGO else ""
        until = f" until {self.until:%Y-%m-%d %H:%M} UTC" if self.until is not None else ""
        return f"Rekindle is paused{by}{since}{until}" + (f": {self.reason}" if self.reason else "")


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


def read_pause(raw: bytes) -> Pause:
    """Never raises: whatever stands in the object, people have paused."""
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
    """Of an object that is there and cannot be read."""
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
