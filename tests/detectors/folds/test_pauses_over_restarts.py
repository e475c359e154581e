"""Tests that the pauses of a training are known after a restart of the agent, and of the job."""

from __future__ import annotations

from datetime import timedelta

from detectors.folds.pods import PodFold
from detectors.rules.signatures import Signatures
from detectors.wire.training import Pace, PodSettings
from tests.detectors.folds.folding import START, at, pod

PAUSE_S = 900
AFTER_THE_PAUSE_S = 60 + PAUSE_S


def print_steps(fold: PodFold, *, first: int, last: int, from_s: float) -> list[bool]:
    """Prints a step every second. Returns which lines were edges."""
    return [fold.line(f"step {first + n} loss 2.3", at(from_s + n)) for n in range(last - first + 1)]


def paused() -> PodFold:
    """Returns a training that has paused for 15 minutes after step 61, and trains again."""
    fold = pod()
    fold.line("begin", START)
    print_steps(fold, first=1, last=61, from_s=0)
    print_steps(fold, first=62, last=71, from_s=AFTER_THE_PAUSE_S)
    assert fold.tells_pause()
    return fold


def test_a_long_pause_is_published_once() -> None:
    fold = pod()
    print_steps(fold, first=1, last=61, from_s=0)
    before = fold.published()
    assert before is not None
    assert before.longest_pause_s is None

    assert not any(print_steps(fold, first=62, last=71, from_s=AFTER_THE_PAUSE_S))
    assert [fold.tells_pause(), fold.tells_pause()] == [True, False]
    told = fold.published()
    assert told is not None
    assert told.longest_pause_s == PAUSE_S


def restarted(fold: PodFold) -> PodFold:
    published = fold.published()
    assert published is not None
    again = pod()
    again.restore(published, Signatures(()))
    return again


def test_a_restarted_agent_knows_the_pause_though_the_log_was_rotated() -> None:
    again = restarted(paused())
    now_s = AFTER_THE_PAUSE_S + 10
    print_steps(again, first=72, last=97, from_s=now_s)

    assert not again.tick(at(now_s + 25 + 1.4 * PAUSE_S))
    assert again.tick(at(now_s + 25 + 1.6 * PAUSE_S))


def test_a_restarted_agent_learns_the_pauses_again_from_the_log() -> None:
    """An older agent has not published the pause."""
    again = pod()
    fold = paused()
    fold._told_pause_s = None
    published = fold.published()
    assert published is not None
    again.restore(published, Signatures(()))
    print_steps(again, first=1, last=61, from_s=0)
    print_steps(again, first=62, last=97, from_s=AFTER_THE_PAUSE_S)

    last_s = AFTER_THE_PAUSE_S + 35
    assert not again.tick(at(last_s + 1.4 * PAUSE_S))
    assert again.tick(at(last_s + 1.6 * PAUSE_S))


def test_a_new_start_of_the_job_knows_the_pause_of_the_start_before() -> None:
    fold = pod()
    fold.job_settings(PodSettings(uid="uid-0", pace=Pace(longest_pause_s=PAUSE_S)))
    print_steps(fold, first=1, last=13, from_s=0)

    assert not fold.tick(at(12 + 1.4 * PAUSE_S))
    assert fold.tick(at(12 + 1.6 * PAUSE_S))


def test_where_the_job_was_stopped_as_hung_it_gets_twice_the_time_and_later_no_more() -> None:
    for last, limit_s in ((13, 1200), (14, 1200), (17, 600)):
        fold = pod()
        fold.job_settings(PodSettings(uid="uid-0", pace=Pace(hung_s=600, hung_step=13)))
        print_steps(fold, first=3, last=last, from_s=0)

        assert not fold.tick(at(last - 3 + limit_s - 1)), last
        assert fold.tick(at(last - 3 + limit_s)), last


def test_the_owners_own_limit_stays_as_it_is() -> None:
    fold = pod()
    fold.job_settings(
        PodSettings(uid="uid-0", hang_timeout_s=300, pace=Pace(longest_pause_s=PAUSE_S, hung_s=600))
    )
    print_steps(fold, first=3, last=13, from_s=0)

    assert fold.tick(at(10 + 300))


def test_a_clock_that_is_set_makes_no_pause() -> None:
    fold = pod()
    print_steps(fold, first=1, last=61, from_s=0)
    fold.tick(at(61))
    print_steps(fold, first=62, last=63, from_s=3061)
    fold.clock_set(timedelta(seconds=3000), at(3062))

    assert not fold.tells_pause()
    told = fold.published()
    assert told is not None
    assert told.longest_pause_s is None


def test_the_limit_where_a_job_hung_stays_below_an_hour() -> None:
    fold = pod()
    fold.job_settings(PodSettings(uid="uid-0", pace=Pace(hung_s=20_000, hung_step=13)))
    print_steps(fold, first=3, last=13, from_s=0)

    assert not fold.tick(at(10 + 3599))
    assert fold.tick(at(10 + 3600))


def test_steps_of_an_epoch_are_where_the_job_hung_only_for_a_while_after_its_start() -> None:
    limits = []
    for steps in (11, 3700):
        fold = pod()
        fold.job_settings(PodSettings(uid="uid-0", pace=Pace(hung_s=900)))
        print_steps(fold, first=3, last=2 + steps, from_s=0)
        limits.append(next(s for s in (600, 1800) if fold.tick(at(steps - 1 + s))))

    assert limits == [1800, 600]


def test_a_stall_tells_the_silence_that_the_agent_has_measured() -> None:
    again = restarted(paused())
    away_s = AFTER_THE_PAUSE_S + 5 * 3600
    again.tick(at(away_s))
    assert again.tick(at(away_s + 1.6 * PAUSE_S))

    told = again.published()
    assert told is not None
    assert told.silent_s == 1.6 * PAUSE_S
