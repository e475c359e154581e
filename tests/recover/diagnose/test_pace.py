"""Tests that a gang's pauses outlive its restarts, and when silent ranks prove nothing."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.training import PodSettings
from recover.model.actions import Create, Patch
from recover.model.modes import Mode
from recover.triage.nodehealths import upkeep
from tests.acting import only_recovery, recovering
from tests.builders import Worlds, cluster, gang
from tests.facts import names


def changed(world: Worlds, name: str, **changes: object) -> Worlds:
    """Changes what the agent has published about the rank."""
    pod = world.pods["llm-uid"][f"{name}-uid"]
    health = world.health[pod.node]
    told = [msgspec.structs.replace(p, **changes) if p.uid == pod.uid else p for p in health.status.pods]
    status = msgspec.structs.replace(health.status, pods=told)
    world.health[pod.node] = msgspec.structs.replace(health, status=status)
    return world


def hung(*, silent_s: float = 600.0, **changes: object) -> Worlds:
    """Returns a gang of four whose ranks made no step for `silent_s` after step 123."""
    world = cluster(nodes=8, mode=Mode.RECOVER).running(gang("llm", ranks=4)).stall()
    last_at = world.now - timedelta(seconds=silent_s + 5)
    for rank in range(4):
        times = {"first_step_at": last_at - timedelta(hours=2), "last_step_at": last_at}
        changed(world, f"llm-{rank}", last_step=123, **times, **changes)
    return world


def settings_of(world: Worlds) -> list[PodSettings]:
    """Returns the settings that the agents get for the gang's ranks."""
    specs = [a.body["spec"] for a in upkeep(world.world()).actions if isinstance(a, Create | Patch)]
    return [msgspec.convert(pod, PodSettings) for spec in specs for pod in spec.get("pods", [])]


def test_a_hang_and_the_longest_pause_are_recorded_for_the_next_start() -> None:
    world = recovering(changed(hung(), "llm-2", longest_pause_s=450.0))

    pace = only_recovery(world).spec.pace
    assert pace is not None
    assert (pace.longest_pause_s, pace.hung_s, pace.hung_step) == (450.0, 600.0, 123)
    found = settings_of(world)
    assert len(found) == 4
    assert all(one.pace == pace for one in found)


def test_the_step_of_a_hang_is_not_known_if_steps_begin_again_with_each_epoch() -> None:
    pace = only_recovery(recovering(hung(step_of_epoch=True))).spec.pace

    assert pace is not None
    assert (pace.hung_s, pace.hung_step) == (600.0, None)


def test_a_fault_of_a_node_is_no_hang_and_a_gang_without_pauses_needs_no_settings() -> None:
    world = recovering(cluster(nodes=8).running(gang("llm", ranks=4)).finding(on="n1"))

    assert only_recovery(world).spec.pace is None
    assert settings_of(world) == []


@pytest.mark.parametrize("text", ["20 minutes", "1200", "20min", "never"])
def test_a_hang_timeout_that_cannot_be_read_means_no_limit(text: str) -> None:
    world = cluster().running(gang("llm", ranks=4, annotations={"rekindle.dev/hang-timeout": text}))

    assert {one.hang_timeout_s for one in settings_of(world)} == {0.0}


# --- ranks whose logs nobody reads ------------------------------------------------------------------------


def first_steps_only(printed_s: float, steps: int) -> Worlds:
    """Returns a gang whose ranks have printed steps for `printed_s`, and nothing since 30 minutes."""
    world = cluster(nodes=8, mode=Mode.RECOVER).running(gang("llm", ranks=4)).stall()
    last_at = world.now - timedelta(minutes=30)
    for rank in range(4):
        times = {"first_step_at": last_at - timedelta(seconds=printed_s), "last_step_at": last_at}
        changed(world, f"llm-{rank}", last_step=steps, **times)
    return world


@pytest.mark.parametrize(
    ("printed_s", "steps", "is_restarted"), [(60.0, 12, False), (60.0, 60, True), (7200.0, 12, True)]
)
def test_ranks_that_printed_only_their_first_steps_prove_no_hang_while_another_is_not_read(
    printed_s: float, steps: int, *, is_restarted: bool
) -> None:
    """Many trainings print on all ranks at first, and later on rank 0 only."""
    world = first_steps_only(printed_s, steps)
    del world.health["n0"]

    found = world.decide()

    assert found.restarts == (["llm"] if is_restarted else [])
    if not is_restarted:
        told = [incident.status.summary for incident in found.incidents]
        assert any(names(words, "n0", "does not restart the job") for words in told)
