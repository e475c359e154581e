"""Tests which findings count, and for which purpose: triage, placement, spares and repair use one
predicate."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, Origin, Remedy, Severity
from detectors.wire.training import Edge
from recover.diagnose.what_counts import proven, suspected
from recover.model.modes import Mode
from tests.builders import NOW, Worlds, cluster, gang

WINDOW_S = 3600.0


def proofs(world: Worlds) -> list[str]:
    return sorted(proven(world.world(), world.now))


def suspects(world: Worlds) -> list[str]:
    return sorted(suspected(world.world(), world.now, WINDOW_S))


def test_a_dead_gpu_is_a_proof_whatever_the_age_of_the_mode() -> None:
    world = cluster(mode=Mode.RECOVER).finding(on="n1", ago_s=7 * 86_400)

    assert (proofs(world), suspects(world)) == (["n1"], [])


@pytest.mark.parametrize(
    ("fault", "severity"),
    [
        (Fault.UNKNOWN, Severity.FATAL),
        (Fault.UNKNOWN, Severity.PENDING),
        (Fault.MEMORY_DEGRADED, Severity.PENDING),
        (Fault.THERMAL, Severity.FATAL),
    ],
)
def test_whatever_takes_no_node_out_is_a_suspicion_and_ends_with_time(
    fault: Fault, severity: Severity
) -> None:
    world = cluster().finding(on="n1", fault=fault, severity=severity)

    assert (proofs(world), suspects(world)) == ([], ["n1"])
    assert suspects(world.later(WINDOW_S)) == []


def test_a_device_that_its_vendor_wants_drained_takes_no_new_work() -> None:
    world = cluster().finding(on="n1", severity=Severity.PENDING, remedy=Remedy.DRAIN_AND_RESET)

    assert proofs(world) == ["n1"]


def test_a_suspicion_ends_with_the_steps_that_training_makes_over_it() -> None:
    world = cluster().running(gang()).finding(on="n1", fault=Fault.UNKNOWN, severity=Severity.PENDING)
    pod = world.pods["llm-uid"]["llm-1-uid"]

    world.later(30).progress(pod, Edge.STEPPING, at=world.now)
    assert suspects(world) == ["n1"], "what the fault does may show yet"

    world.later(60).progress(pod, Edge.STEPPING, at=world.now)
    assert suspects(world) == []


@pytest.mark.parametrize(
    "change",
    [
        {"severity": Severity.INFO},
        {"origin": Origin.TENANT},
        {"fault": Fault.APPLICATION},
        {"cleared_at": NOW},
        {"boot_id": "another"},
    ],
)
def test_what_is_not_open_counts_for_nothing(change: dict[str, object]) -> None:
    world = cluster().finding(on="n1")
    health = world.health["n1"]
    (found,) = health.status.findings
    changed = msgspec.structs.replace(health.status, findings=[msgspec.structs.replace(found, **change)])
    world.health["n1"] = msgspec.structs.replace(health, status=changed)

    assert (proofs(world), suspects(world)) == ([], [])


def test_a_release_answers_what_was_shown_before_it() -> None:
    world = cluster().finding(on="n1", ago_s=60).change_node("n1", released_at=NOW - timedelta(seconds=5))

    assert proofs(world) == []
