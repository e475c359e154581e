"""Two failed starts condemn no good checkpoint. Only a loader's error does, or so many failed starts that
only the last one is left."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.training import Edge, LogError
from recover.api import Phase
from recover.model import Pod
from recover.recovery import loading
from tests.acting import acts, advanced, end_pods, look, only_recovery, recovering, scanned, start_pods, step
from tests.builders import Worlds
from tests.facts import names
from tests.recover.recovery.phase_cases import choice, excluded_in, faulted


def attempt(world: Worlds, *, error: str = "", late: bool = False) -> Worlds:
    """Starts the gang from step 80. All ranks run, and the first rank fails with this error before any
    step."""
    world.scans.clear()
    advanced(world, Phase.CHOOSING)
    step(world)
    scanned(world, choice(80))
    advanced(world, Phase.VERIFYING)
    if error and not late:
        _told(world, error)
    recovering(world.later(30).crash(rank=0))
    if error and late:
        step(world)
        _told(world, error)
    return world


def first_rank(world: Worlds) -> Pod:
    return next(p for p in world.pods["llm-uid"].values() if p.name == "llm-worker-0")


def _told(world: Worlds, error: str, pod: Pod | None = None) -> None:
    pod = pod or first_rank(world)
    world.progress(pod, Edge.ENDED, at=world.now, first_error=LogError(code=error, at=world.now))
    health = world.health[pod.node]
    pods = [msgspec.structs.replace(p, first_step=None, last_step=None) for p in health.status.pods]
    world.health[pod.node] = msgspec.structs.replace(
        health, status=msgspec.structs.replace(health.status, pods=pods)
    )


def begun(**annotations: str) -> Worlds:
    return faulted(checkpoint="/ckpt", **annotations)


def in_choosing(world: Worlds) -> Worlds:
    world.scans.clear()
    advanced(world, Phase.CHOOSING)
    return world


def test_where_no_log_tells_why_an_older_checkpoint_is_for_the_last_attempt_only() -> None:
    world = begun(attempts_per_cause="5")
    for _ in range(3):
        assert excluded_in(in_choosing(attempt(world))) == []

    in_choosing(attempt(world))

    assert excluded_in(world) == [80]
    step(world)
    scanned(world, choice(60))
    step(world)
    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.RESUMING, 5)
    assert status.checkpoint is not None
    why = loading.passed_over(only_recovery(world), status.checkpoint)
    assert names(why, 80, 4)
    assert why in status.message


def test_by_default_two_attempts_begin_from_the_newest_checkpoint_and_the_last_one_from_an_older() -> None:
    world = attempt(begun())
    assert excluded_in(in_choosing(world)) == []

    attempt(world)

    assert excluded_in(in_choosing(world)) == [80]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", ["log-cuda-oom", "log-no-space", "log-address-in-use"])
def test_an_error_that_names_another_cause_condemns_no_checkpoint(error: str, late: bool) -> None:
    world = attempt(attempt(begun(), error=error), error=error, late=late)

    assert excluded_in(in_choosing(world)) == []


def test_a_loaders_word_condemns_it_at_once_and_the_recovery_says_so() -> None:
    world = in_choosing(attempt(begun(), error="log-checkpoint"))

    assert excluded_in(world) == [80]
    step(world)
    scanned(world, choice(60))
    step(world)
    status = only_recovery(world).status
    assert status.checkpoint is not None
    why = loading.passed_over(only_recovery(world), status.checkpoint)
    assert names(why, 80)
    assert why in status.message


def test_a_loaders_word_that_comes_while_the_scan_runs_is_heeded() -> None:
    world = attempt(begun())
    lost = first_rank(world)
    in_choosing(world)
    step(world)
    _told(world, "log-checkpoint", lost)
    scanned(world, choice(80))

    assert "remove-scan" in step(world)
    assert only_recovery(world).status.phase is Phase.CHOOSING
    step(world)
    scanned(world, choice(60))
    step(world)

    assert only_recovery(world).status.checkpoint.step == 60


def test_a_scan_that_cannot_be_made_again_is_waited_for_until_the_deadline_only() -> None:
    """Anybody who may change the pod can remove the pod's instructions, and keep the pod by a finalizer."""
    world = in_choosing(attempt(begun(), error="log-checkpoint"))
    step(world)
    scanned(world, choice(80))
    ((key, pod),) = world.scans.items()
    world.scans[key] = msgspec.structs.replace(pod, annotations={}, deleting_since=world.now)

    waits = look(world)
    assert (acts(waits), waits.requeue_after_s) == ([], 1.0)

    step(world.later(60))
    status = only_recovery(world).status
    assert status.phase is Phase.RESUMING
    assert (status.checkpoint.verified, status.checkpoint.step, status.checkpoint.excluded) == (
        False,
        None,
        [80],
    )
    assert status.checkpoint.reason == (
        "the scan chose step 80, which does not load, and no other scan could begin within 30 s"
    )


def test_a_scan_that_chooses_what_it_was_told_to_pass_over_is_not_asked_again_and_again() -> None:
    world = in_choosing(attempt(begun(), error="log-checkpoint"))
    step(world)
    scanned(world, choice(80))

    step(world)

    assert only_recovery(world).status.phase is Phase.RESUMING


def test_a_rank_that_fails_before_all_ranks_run_condemns_nothing() -> None:
    world = begun(attempts_per_cause="3")
    for _ in range(2):
        in_choosing(world)
        step(world)
        scanned(world, choice(80))
        while "start-gang" not in step(world):
            assert only_recovery(world).active
        start_pods(world.later(2))
        pods = world.pods["llm-uid"]
        (last,) = [uid for uid, pod in pods.items() if pod.name == "llm-worker-3"]
        del pods[last]
        recovering(world.later(3).crash(rank=0, ago_s=1))
        step(world)
        end_pods(world)

    assert only_recovery(world).status.uncounted == []
    assert excluded_in(in_choosing(world)) == []
