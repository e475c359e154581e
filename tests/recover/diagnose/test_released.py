"""A person who ends a quarantine while no controller runs has answered what an Incident showed by then."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Finding, Origin
from recover.api.marks import UNHEALTHY
from recover.diagnose.released import answer_of_person
from recover.model.actions import Plan
from tests.acting import acts, apply, recovering
from tests.builders import Worlds, cluster, gang


def uncordoned_unseen() -> Worlds:
    """Returns a world in which a person has uncordoned n1, and no controller has seen it yet."""
    world = cluster(40)
    world.mode_since -= timedelta(days=1)
    recovering(world.finding(on="n1"))
    assert [taint.key for taint in world.nodes["n1"].taints] == [UNHEALTHY]
    world.later(300).change_node("n1", unschedulable=False)
    return world


def newest(world: Worlds, on: str = "n1", **changes: object) -> Finding:
    """Changes the newest finding of a node."""
    health = world.health[on]
    *others, last = health.status.findings
    last = msgspec.structs.replace(last, **changes)
    status = msgspec.structs.replace(health.status, findings=[*others, last])
    world.health[on] = msgspec.structs.replace(health, status=status)
    return last


@pytest.mark.parametrize("lead_s", [-7200, -70, 0, 70, 7200])
def test_a_later_record_is_new_whatever_the_clock_of_the_node_says(lead_s: float) -> None:
    world = uncordoned_unseen().later(300).finding(on="n1", code="xid-48", ago_s=60 - lead_s).later(600)
    (first, later) = world.health["n1"].status.findings

    found = answer_of_person(world.world(), world.nodes["n1"], world.now)

    assert found.news == (later,)
    assert found.answer.covers(first, world.now)
    assert not found.answer.covers(later, world.now)


@pytest.mark.parametrize("ago_s", [1, 300, 590])
def test_a_later_finding_without_a_number_is_new(ago_s: float) -> None:
    world = uncordoned_unseen().later(300).finding(on="n1", code="port-dead", ago_s=0)
    at = world.later(600).now - timedelta(seconds=ago_s)
    later = newest(world, sequence=0, origin=Origin.DRIVER, first_seen=at, last_seen=at)

    found = answer_of_person(world.world(), world.nodes["n1"], world.now)

    assert found.news == (later,)
    assert not found.answer.covers(later, world.now)
    assert found.answer.covers(world.health["n1"].status.findings[0], world.now)


def test_a_fault_of_a_later_boot_is_new() -> None:
    world = uncordoned_unseen()
    world.change_node("n1", boot_id="later")
    status = msgspec.structs.replace(world.health["n1"].status, boot_id="later", findings=[])
    world.health["n1"] = msgspec.structs.replace(world.health["n1"], status=status)
    world.finding(on="n1", boot_id="later").later(600)

    found = answer_of_person(world.world(), world.nodes["n1"], world.now)

    (later,) = world.health["n1"].status.findings
    assert found.news == (later,)
    assert not found.answer.covers(later, world.now)


def test_incidents_of_an_earlier_version_do_not_say_what_they_showed_and_all_is_answered() -> None:
    world = uncordoned_unseen()
    for name, incident in world.incidents.items():
        status = msgspec.structs.replace(incident.status, known=None)
        world.incidents[name] = msgspec.structs.replace(incident, status=status)
    world.finding(on="n1", code="xid-48").later(600)

    found = answer_of_person(world.world(), world.nodes["n1"], world.now)

    assert found.news == ()
    assert all(found.answer.covers(finding, world.now) for finding in world.health["n1"].status.findings)


def test_no_further_finding_leaves_nothing_open_and_the_incident_closes() -> None:
    world = recovering(recovering(uncordoned_unseen()))

    assert world.nodes["n1"].quarantine is None
    assert not world.nodes["n1"].unschedulable
    assert [incident.status.answered is not None for incident in world.incidents.values()] == [True]


def test_while_no_agent_reports_from_the_present_boot_a_fault_of_that_boot_is_not_answered() -> None:
    world = uncordoned_unseen()
    world.change_node("n1", boot_id="later")

    answer = answer_of_person(world.world(), world.nodes["n1"], world.now).answer

    world.later(60).finding(on="n1", boot_id="later", ago_s=600)
    *_, later = world.health["n1"].status.findings
    assert later.first_seen < answer.at
    assert not answer.covers(later, world.now)


def refused_release(plan: Plan) -> Plan:
    """Returns the plan without the end of the quarantine, which the API server refuses."""
    left = (c for c in plan.chains if not any(getattr(act, "what", "") == "release-node" for act in c))
    return msgspec.structs.replace(plan, chains=tuple(left))


def test_while_the_end_of_a_quarantine_is_refused_new_evidence_does_not_grow_younger() -> None:
    world = cluster(40)
    world.mode_since -= timedelta(days=1)
    apply(world, world.finding(on="n9").decide().plan)
    world.later(300).change_node("n9", unschedulable=False, taints=())
    world.running(gang(), first_node=9)
    apply(world, refused_release(world.later(5).decide().plan))
    world.later(30).finding(on="n9", code="xid-48", ago_s=0)
    newest(world, on="n9", final=False)

    restarts, writes = [], []
    for _ in range(20):
        decided = world.later(0.5).decide()
        restarts += decided.restarts
        writes.append("explain-incident" in acts(decided.plan))
        apply(world, refused_release(decided.plan))

    assert restarts[:1] == ["llm"], "its node has broken again"
    assert writes[-5:] == [False] * 5


def test_an_older_definition_that_drops_what_was_known_leads_to_no_further_writes() -> None:
    world = cluster(40)
    world.mode_since -= timedelta(days=1)
    recovering(world.finding(on="n1"))
    for name, one in world.incidents.items():
        status = msgspec.structs.replace(one.status, known=None)
        world.incidents[name] = msgspec.structs.replace(one, status=status)

    assert "explain-incident" not in acts(world.later(1).decide().plan)
