"""Later attempts pass over a checkpoint that a rank could not load."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.training import Edge, LogError, PodProgress
from recover.api import Phase
from recover.model.actions import Create
from recover.recovery.loading import unloadable
from tests.acting import advanced, look, only_recovery, recovering, scanned, step
from tests.builders import Worlds
from tests.recover.recovery.phase_cases import choice, excluded_in, faulted


def crashed_again(*, error: str = "", first_step: int | None = None) -> Worlds:
    """Returns a recovery whose second attempt is in Choosing. One of the ranks that began from step 80
    ended with this error."""
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.CHOOSING)
    step(world)
    scanned(world, choice(80))
    advanced(world, Phase.VERIFYING)
    told(world, error, first_step)
    world.scans.clear()
    recovering(world.later(30).crash(rank=0))
    assert step(world) == ["recovery-stopping"]
    advanced(world, Phase.CHOOSING)
    return world


def told(world: Worlds, error: str, first_step: int | None) -> None:
    """Lets the agent of the first rank's node report the end of this rank."""
    pod = next(p for p in world.pods["llm-uid"].values() if p.name == "llm-worker-0")
    health = world.health[pod.node]
    said = PodProgress(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        edge=Edge.ENDED,
        at=world.now,
        first_step=first_step,
        first_error=LogError(code=error, at=world.now) if error else None,
    )
    world.health[pod.node] = msgspec.structs.replace(
        health, status=msgspec.structs.replace(health.status, pods=[said])
    )


@pytest.mark.parametrize(
    ("error", "first_step", "excluded"),
    [("log-checkpoint", None, [80]), ("log-cuda-oom", None, []), ("log-checkpoint", 81, []), ("", None, [])],
)
def test_a_checkpoint_that_a_rank_could_not_read_is_not_tried_again_and_any_other_once_more(
    error: str, first_step: int | None, excluded: list[int]
) -> None:
    world = crashed_again(error=error, first_step=first_step)

    assert excluded_in(world) == excluded


def test_a_line_that_is_told_after_the_scan_was_made_still_counts() -> None:
    """An agent may report the end after the controller has written the stop and created the scan pod."""
    world = crashed_again()
    (late,) = (w for w in only_recovery(world).witnesses if w.pod == "llm-worker-0")
    health = world.health[late.node]
    said = PodProgress(
        uid=late.uid, namespace="ml", name=late.pod, edge=Edge.ENDED, at=world.now,
        first_error=LogError(code="log-checkpoint", at=world.now),
    )  # fmt: skip
    world.health[late.node] = msgspec.structs.replace(
        health, status=msgspec.structs.replace(health.status, pods=[said])
    )

    assert step(world) == ["remove-scan"]
    (made_anew,) = [act for act in look(world).actions if isinstance(act, Create)]
    command = made_anew.body["spec"]["containers"][0]["command"]
    assert command[command.index("--exclude") + 1] == "80"


def test_what_was_passed_over_once_is_passed_over_in_every_later_attempt() -> None:
    world = crashed_again(error="log-checkpoint")
    step(world)
    scanned(world, choice(60))
    step(world)
    found = only_recovery(world)
    assert found.status.checkpoint is not None
    assert found.status.checkpoint.excluded == [80]

    later = msgspec.structs.replace(found.status, attempt=3, witnesses=[])
    assert unloadable(
        msgspec.structs.replace(found, status=later), world.gangs["llm-uid"], world.world(), world.settings
    ) == [80]
