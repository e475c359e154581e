"""Tests a gang whose steps nobody can read: only a newer checkpoint can prove that it trains again."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import Condition, Phase
from recover.api.reasons import Reason
from recover.model import Template
from recover.model.actions import Create
from tests.acting import advanced, look, only_recovery, recovering, scanned, step
from tests.builders import Worlds, cluster, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import CLAIM, choice


def silent(checkpoint: str | None = "/ckpt") -> Worlds:
    """Returns a gang without readable steps that runs again, from step 80 if its checkpoints can be
    scanned."""
    job = gang(
        annotations={"rekindle.dev/checkpoint": checkpoint} if checkpoint else {},
        templates={"Worker": Template(volumes=(CLAIM,))},
    )
    world = recovering(cluster(nodes=8).running(job, stepping=False).finding(on="n1"))
    if checkpoint:
        advanced(world, Phase.CHOOSING)
        step(world)
        scanned(world, choice(80))
    advanced(world, Phase.VERIFYING)
    step(world)
    return world.later(world.settings.timing.verify_deadline_s)


def progress(world: Worlds) -> Condition:
    (found,) = [c for c in only_recovery(world).status.conditions if c.type == "ProgressVerified"]
    return found


def test_a_newer_checkpoint_proves_progress() -> None:
    world = silent()
    assert step(world) == ["create-scan"]
    (made,) = world.scans.values()
    assert not made.gated
    scanned(world, choice(120, "step-120"))

    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, "")
    assert (progress(world).status, progress(world).reason) == ("True", "NewerCheckpoint")
    assert "step 120" in status.message
    assert step(world) == ["remove-scan", "lift-start"]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (choice(80), [80]),
        ("{}", []),
        ('{"error": "permission denied"}', ["permission denied"]),
    ],
)
def test_without_a_newer_checkpoint_the_recovery_says_that_nothing_proves_progress(
    message: str, why: list[object]
) -> None:
    world = silent()
    step(world)
    scanned(world, message)

    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, Reason.SUCCEEDED_UNVERIFIED)
    assert progress(world).status == "False"
    assert names(status.message, *why)


def test_a_scan_that_never_ends_is_not_waited_for() -> None:
    world = silent()
    step(world)

    step(world.later(world.settings.timing.scan_deadline_s))

    assert only_recovery(world).status.reason == Reason.SUCCEEDED_UNVERIFIED


def test_a_job_without_an_annotation_gets_no_scan() -> None:
    world = silent(checkpoint=None)

    assert not any(isinstance(action, Create) for action in look(world).actions)
    step(world)

    status = only_recovery(world).status
    assert status.reason == Reason.SUCCEEDED_UNVERIFIED
    assert "rekindle.dev/checkpoint" in status.message


def test_a_gang_on_nodes_whose_logs_nobody_reads_is_not_stopped_for_want_of_steps() -> None:
    """The agents could read the gang's steps where it ran before. Where it runs now, it may train unseen."""
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.VERIFYING)
    for name in ("n4", "n5", "n6", "n7"):
        del world.health[name]

    wrote = step(world.later(world.settings.timing.verify_deadline_s + 1))

    assert "stop-gang" not in wrote
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, Reason.SUCCEEDED_UNVERIFIED)


def test_a_gang_whose_ranks_an_agent_may_leave_out_is_not_stopped_for_want_of_steps() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.VERIFYING)
    status = msgspec.structs.replace(world.health["n5"].status, pods_left_out=True)
    world.health["n5"] = msgspec.structs.replace(world.health["n5"], status=status)

    wrote = step(world.later(world.settings.timing.verify_deadline_s + 1))

    assert "stop-gang" not in wrote
    assert only_recovery(world).status.reason == Reason.SUCCEEDED_UNVERIFIED


@pytest.mark.parametrize(
    ("limit", "stops_after_s"), [("", 2700), ("3h", 3 * 3600), ("10m", 2700), ("off", None)]
)
def test_a_gang_may_take_for_its_first_step_as_long_as_its_people_say(
    limit: str, stops_after_s: float | None
) -> None:
    """A gang also has this time without a recovery: to load its checkpoint takes no less time after a
    recovery."""
    annotations = {"rekindle.dev/hang-timeout": limit} if limit else {}
    world = recovering(cluster(nodes=8).running(gang(annotations=annotations)).finding(on="n1"))
    advanced(world, Phase.VERIFYING)

    step(world.later((stops_after_s or 2700) - 5))
    assert only_recovery(world).status.phase is Phase.VERIFYING
    step(world.later(10))
    status = only_recovery(world).status
    if stops_after_s is None:
        assert (status.phase, status.reason) == (Phase.SUCCEEDED, Reason.SUCCEEDED_UNVERIFIED)
    else:
        assert (status.phase, status.attempt) == (Phase.STOPPING, 2)
        assert names(status.message, stops_after_s)
