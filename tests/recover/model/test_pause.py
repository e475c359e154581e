"""Tests recover/model/pause.py and modes.py: the ConfigMap pauses Rekindle by its existence, whatever its
content."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from recover.model.modes import Mode, Modes, begun, followed_pause, lowest
from recover.model.pause import Pause, read_pause
from tests.builders import NOW
from tests.facts import missing

CREATED = "2026-01-01T10:00:00Z"


def read(data: Any = None) -> Pause:
    metadata = {"name": "rekindle-pause", "uid": "u1", "creationTimestamp": CREATED}
    body = {"metadata": metadata, **({"data": data} if data is not None else {})}
    return read_pause(msgspec.json.encode(body))


def test_the_bare_object_pauses_without_an_end() -> None:
    pause = read()

    assert pause.lasts(datetime.max.replace(tzinfo=UTC))
    assert pause.words() == "Rekindle is paused since 2026-01-01 10:00 UTC"
    assert pause.problems == ()


def test_all_that_people_may_say_of_it_is_read() -> None:
    pause = read({"by": "ann", "reason": "new\nswitches", "until": "2026-01-01T14:00:00+02:00"})

    assert pause.words() == (
        "Rekindle is paused by ann since 2026-01-01 10:00 UTC until 2026-01-01 12:00 UTC: new switches"
    )
    assert pause.lasts(datetime(2026, 1, 1, 11, 59, tzinfo=UTC))
    assert not pause.lasts(datetime(2026, 1, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    "until", ["", "tomorrow", "2026-01-01T12:00:00", "2h", "2026-13-01T00:00:00Z", "9" * 999]
)
def test_an_end_that_cannot_be_read_is_no_end_and_is_named(until: str) -> None:
    pause = read({"until": until})

    assert pause.lasts(datetime.max.replace(tzinfo=UTC))
    (problem,) = pause.problems
    assert not missing(problem, "data.until", repr(until[:40]), "2026-01-31T18:00:00Z", "no end")


def test_a_key_that_is_not_known_is_named_and_changes_nothing() -> None:
    pause = read({"paused": "false"})

    assert pause.lasts(NOW)
    assert not missing(pause.problems[0], "data.paused", "by, reason, since, until")


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"data": 3}', b'{"data": {"until": 3}}', b"\xff", b"[" * 9999])
def test_an_object_that_cannot_be_read_pauses(raw: bytes) -> None:
    assert read_pause(raw).lasts(NOW)
    assert len(read_pause(raw).problems) == 1


def test_a_pause_lowers_the_mode_and_its_end_begins_the_mode_again() -> None:
    running = Modes(begun(Mode.REPAIR, NOW))
    paused = followed_pause(running, Pause(since=NOW, until=NOW + timedelta(hours=2)), NOW)
    still = followed_pause(paused, Pause(since=NOW, reason="longer"), NOW + timedelta(hours=1))
    later = NOW + timedelta(hours=3)
    resumed = followed_pause(still, None, later)

    in_pause = lowest(paused.cluster, (), paused.paused, paused.resumed)
    assert (in_pause.mode, in_pause.paused) == (Mode.OBSERVE, paused.paused)
    assert still.resumed is None
    after = lowest(resumed.cluster, (), resumed.paused, resumed.resumed)
    assert (after.mode, after.acting_since, after.began(Mode.REPAIR)) == (Mode.REPAIR, later, later)
    assert followed_pause(resumed, None, later + timedelta(hours=1)) is resumed


def test_an_end_that_passes_resumes_as_late_as_it_is_seen() -> None:
    pause = Pause(since=NOW, until=NOW + timedelta(hours=2))
    paused = followed_pause(Modes(begun(Mode.RECOVER, NOW)), pause, NOW)
    seen_at = NOW + timedelta(hours=2, minutes=5)

    assert followed_pause(paused, pause, seen_at).resumed == seen_at


def test_the_state_of_a_pause_survives_in_json() -> None:
    modes = Modes(begun(Mode.RECOVER, NOW), paused=Pause(since=NOW, problems=("a",)), resumed=NOW)

    assert msgspec.json.decode(msgspec.json.encode(modes), type=Modes) == modes
