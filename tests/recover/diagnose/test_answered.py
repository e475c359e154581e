"""An answer covers the findings that were known when it was given, counted by the record numbers of the
node's own log. A node's clock that is minutes or hours off hides no dead GPU, and brings back no GPU that
was answered."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, LogPosition, Severity
from recover.api import IncidentPhase
from recover.api.marks import RELEASED, RELEASED_FINDINGS
from recover.diagnose.answered import known_of
from recover.model.decode import node
from tests.acting import recovering
from tests.builders import BOOT, Worlds, cluster

SKEWS_S = [-7200.0, -600.0, -70.0, 0.0, 70.0, 600.0, 7200.0]
"""Seconds by which the clock of n1 is ahead of the controller's clock."""


def change_status(world: Worlds, **changes: object) -> Worlds:
    health = world.health["n1"]
    status = msgspec.structs.replace(health.status, **changes)
    world.health["n1"] = msgspec.structs.replace(health, status=status)
    return world


def goes_on(world: Worlds, skew_s: float) -> Worlds:
    last = world.now + timedelta(seconds=skew_s)
    findings = [
        msgspec.structs.replace(f, count=f.count + 9, last_seen=last)
        for f in world.health["n1"].status.findings
    ]
    return change_status(world, findings=findings)


def uncordoned(world: Worlds) -> Worlds:
    """Lets a person uncordon n1, and removes Rekindle's taint. The Incident of n1 closes."""
    world.change_node("n1", unschedulable=False, taints=())
    recovering(recovering(world))
    assert world.nodes["n1"].quarantine is None
    assert all(i.status.phase is IncidentPhase.CLOSED for i in world.incidents.values())
    return world


def released(skew_s: float) -> Worlds:
    world = cluster(40)
    world.mode_since -= timedelta(days=1)
    return uncordoned(recovering(world.finding(on="n1", ago_s=1 - skew_s)).later(300))


def is_out(world: Worlds) -> bool:
    return recovering(world).nodes["n1"].unschedulable


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_a_dead_gpu_after_a_release_is_news_whatever_its_nodes_clock_says(skew_s: float) -> None:
    world = released(skew_s).later(20)

    assert is_out(world.finding(on="n1", code="xid-48", ago_s=1 - skew_s))
    newest = max(world.incidents.values(), key=lambda i: i.metadata.creation_timestamp or world.now)
    assert re.search(r"\d:\d", newest.status.summary) is None, "one that goes on tells since when"
    assert newest.spec.detected_at <= world.now


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_a_dead_gpu_after_the_close_of_an_incident_is_news_whatever_its_nodes_clock_says(
    skew_s: float,
) -> None:
    world = cluster(40).finding(
        on="n1", fault=Fault.UNKNOWN, severity=Severity.PENDING, ago_s=1 - skew_s, final=False
    )
    recovering(world).later(60)
    (found,) = world.health["n1"].status.findings
    recovering(change_status(world, findings=[msgspec.structs.replace(found, cleared_at=found.last_seen)]))
    assert [i.status.phase for i in world.incidents.values()] == [IncidentPhase.CLOSED]

    assert is_out(world.later(300).finding(on="n1", code="xid-48", ago_s=1 - skew_s))


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_what_a_release_has_answered_stays_answered_when_its_time_comes(skew_s: float) -> None:
    world = released(skew_s)

    for _ in range(5):
        assert not is_out(world.later(1800))


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_what_goes_on_after_a_release_counts_again_whatever_its_nodes_clock_says(skew_s: float) -> None:
    world = released(skew_s)

    assert is_out(goes_on(world.later(1400), skew_s))


@pytest.mark.parametrize("skew_s", [-7200.0, -600.0, 0.0, 600.0, 7200.0])
def test_what_an_agent_has_held_back_of_a_known_fault_is_no_news(skew_s: float) -> None:
    """A clock that is off by only minutes may agree with the agent's last report, and then the controller
    believes it."""
    world = released(skew_s)
    change = goes_on(world, skew_s - 5)

    assert not is_out(change.later(5))
    assert not is_out(world.later(7200))


@pytest.mark.parametrize("skew_s", [-600.0, 0.0, 600.0])
def test_a_fault_of_the_next_boot_is_news(skew_s: float) -> None:
    world = released(skew_s).later(5)
    boot_id = "22222222-2222-3333-4444-555555555555"
    change_status(world.change_node("n1", boot_id=boot_id), boot_id=boot_id, findings=[])

    assert is_out(world.finding(on="n1", boot_id=boot_id, ago_s=1 - skew_s))


def test_records_that_the_agent_has_read_and_that_showed_nothing_new_are_known() -> None:
    """The agent may publish one finding for several records, and after it has read the ring buffer again,
    report a second finding for the same records."""
    world = change_status(cluster(), kmsg=LogPosition(boot_id=BOOT, sequence=70))
    known = known_of(world.nodes["n1"], world.health["n1"])

    assert known is not None
    assert known.sequence == 70
    assert known_of(msgspec.structs.replace(world.nodes["n1"], boot_id="another"), world.health["n1"]) is None
    assert known_of(world.nodes["n1"], None) is None


def test_an_answer_of_an_earlier_version_is_read_by_its_time() -> None:
    world = released(0.0)
    world.change_node("n1", answered=None)
    world.incidents = {
        name: msgspec.structs.replace(i, status=msgspec.structs.replace(i.status, answered=None))
        for name, i in world.incidents.items()
    }

    assert not is_out(world)
    assert is_out(world.later(20).finding(on="n1", code="xid-48"))


def test_findings_that_an_older_release_has_answered_say_nothing_of_a_newer_one() -> None:
    """An earlier version of the controller, after a rollback, writes only the time."""

    def answered(released_at: str) -> bool:
        findings = '{"bootId":"b","sequence":5}'
        annotations = {
            RELEASED: released_at,
            RELEASED_FINDINGS: f'{{"at":"2026-11-21T12:00:00Z","findings":{findings}}}',
        }
        raw = msgspec.json.encode({"metadata": {"name": "n1", "annotations": annotations}})
        return node(raw, ()).answered is not None

    assert answered("2026-11-21T12:00:00+00:00")
    assert not answered("2026-11-21T13:00:00+00:00")


def test_a_garbled_annotation_is_as_none() -> None:
    raw = msgspec.json.encode({"metadata": {"name": "n1", "annotations": {RELEASED_FINDINGS: "[" * 9000}}})

    assert node(raw, ()).answered is None


def test_an_incident_that_closes_before_its_node_has_told_of_the_next_boot_answers_nothing() -> None:
    world = recovering(
        cluster(40).finding(on="n1", fault=Fault.UNKNOWN, severity=Severity.PENDING, final=False)
    ).later(60)
    boot_id = "22222222-2222-3333-4444-555555555555"
    recovering(world.change_node("n1", boot_id=boot_id))
    assert [i.status.unanswered for i in world.incidents.values()] == [True]
    change_status(world, boot_id=boot_id, findings=[])

    assert is_out(world.finding(on="n1", boot_id=boot_id, ago_s=600))


def test_numbers_and_times_that_somebody_forged_before_a_release_hide_a_dead_gpu_for_a_day_at_most() -> None:
    """Somebody with the agent's token forges them for the same boot: the log never reaches the forged
    number."""
    world = cluster(40)
    world.mode_since -= timedelta(days=1)
    world = recovering(world.finding(on="n1", ago_s=1)).later(300)
    forged = LogPosition(boot_id=BOOT, sequence=2**62)
    late = world.now + timedelta(days=365)
    world = uncordoned(change_status(world, kmsg=forged, observed_at=late)).later(86400)

    assert is_out(world.later(600).finding(on="n1", ago_s=1))
