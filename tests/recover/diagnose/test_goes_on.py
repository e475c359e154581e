"""A fault that continues without a pause is one finding to its agent. A person's uncordon answers what was
known at that time, and the beginning of a mode answers what was seen before it. Evidence after that time
counts again."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault, Remedy, Severity
from recover.api import Incident, IncidentPhase, Outcome
from recover.api.reasons import EventReason, Reason
from recover.api.repair_state import RepairPhase
from recover.model.actions import Emit
from recover.model.modes import Mode
from recover.triage.plan import plan
from tests.acting import recovering
from tests.builders import Worlds, cluster, gang
from tests.facts import names
from tests.recover.repair.scene import broken


def goes_on(world: Worlds, *, ago_s: float = 0.0) -> Worlds:
    """Adds nine repeats to the findings of n1, the last one so many seconds ago; the agent reports them
    only now, with its refresh."""
    health = world.health["n1"]
    last = world.now - timedelta(seconds=ago_s)
    told = [msgspec.structs.replace(f, count=f.count + 9, last_seen=last) for f in health.status.findings]
    status = msgspec.structs.replace(health.status, findings=told)
    world.health["n1"] = msgspec.structs.replace(health, status=status)
    return world


def uncordoned(world: Worlds) -> Worlds:
    """Lets a person uncordon n1, and removes Rekindle's taint. The Incident of n1 closes."""
    world.change_node("n1", unschedulable=False, taints=())
    recovering(recovering(world))
    assert world.nodes["n1"].quarantine is None
    assert all(i.status.phase is IncidentPhase.CLOSED for i in world.incidents.values())
    return world


def out(**finding: object) -> Worlds:
    world = recovering(cluster(40).finding(on="n1", **finding))  # type: ignore[arg-type]
    assert world.nodes["n1"].quarantine is not None
    return world


def newest(world: Worlds) -> Incident:
    return max(world.incidents.values(), key=lambda i: i.spec.detected_at)


def test_after_a_persons_uncordon_what_goes_on_takes_the_node_out_again_for_an_incident_of_its_own() -> None:
    world = uncordoned(out().later(300))
    released_at = world.nodes["n1"].released_at
    assert released_at is not None
    goes_on(world.later(400))

    found = plan(world.world(), world.settings, world.now)
    recovering(world)

    note = world.nodes["n1"].quarantine
    assert note is not None
    assert len(world.incidents) == 2
    incident = newest(world)
    assert note.incident == incident.metadata.name
    assert incident.status.phase is IncidentPhase.OPEN
    assert released_at < incident.spec.detected_at <= world.now
    assert names(incident.status.summary, f"{released_at:%H:%M:%S}")
    assert [e.at for e in incident.status.evidence] == [incident.spec.detected_at]
    told = [e for e in found.actions if isinstance(e, Emit) and e.reason == EventReason.NODE_QUARANTINED]
    assert names(told[0].message, f"{released_at:%H:%M:%S}")
    goes_on(world.later(600))
    recovering(world)
    assert newest(world).spec.detected_at == incident.spec.detected_at
    assert len(world.incidents) == 2


@pytest.mark.parametrize("last_s", [-200, -1, 0, 1, 59, 60])
def test_what_was_known_at_the_uncordon_and_its_last_words_do_not_act(last_s: float) -> None:
    world = uncordoned(out().later(300))
    world.later(400)
    goes_on(world, ago_s=400 - last_s)

    recovering(world)

    assert world.nodes["n1"].quarantine is None


def test_a_clock_that_runs_ahead_does_not_make_a_repetition_of_what_was_known() -> None:
    world = uncordoned(out().later(300))
    goes_on(world.later(10), ago_s=-120)

    assert recovering(world).nodes["n1"].quarantine is None


def test_a_second_uncordon_is_respected_as_the_first_was() -> None:
    world = uncordoned(out().later(300))
    uncordoned(recovering(goes_on(world.later(400))))

    assert recovering(world.later(30)).nodes["n1"].quarantine is None
    recovering(goes_on(world.later(400)))

    assert len(world.incidents) == 3
    assert world.nodes["n1"].quarantine is not None


def test_budgets_hold_for_what_goes_on_as_for_any_fault() -> None:
    world = uncordoned(out().later(300))
    budgets = msgspec.structs.replace(world.settings.budgets, quarantines_per_hour_max=1)
    world.settings = msgspec.structs.replace(world.settings, budgets=budgets)
    recovering(goes_on(world.later(400)))

    assert world.nodes["n1"].quarantine is None
    (record,) = [r for r in newest(world).status.actions if r.action == "quarantine-node"]
    assert (record.outcome, record.reason) == (Outcome.REFUSED, Reason.BUDGET_EXHAUSTED)


def test_a_gang_has_its_grace_anew_when_a_contained_fault_goes_on() -> None:
    world = uncordoned(out(fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING).later(3600))
    world.running(gang())
    recovering(goes_on(world.later(400)))

    assert world.nodes["n1"].quarantine is not None
    assert not world.recoveries
    recovering(goes_on(world.later(1800)))
    assert len(world.recoveries) == 1


def test_what_goes_on_after_a_mode_was_raised_acts_and_what_was_seen_before_does_not() -> None:
    world = recovering(cluster(40, mode=Mode.OBSERVE).finding(on="n1")).later(300)
    world.mode, world.mode_since = Mode.RECOVER, world.now
    recovering(world.later(300))
    assert world.nodes["n1"].quarantine is None

    recovering(goes_on(world))

    assert world.nodes["n1"].quarantine is not None
    (incident,) = world.incidents.values()
    assert incident.status.phase is IncidentPhase.OPEN


def test_what_goes_on_after_repair_mode_began_is_repaired() -> None:
    scene = broken(remedy=Remedy.REBOOT_NODE).later(10)
    scene.world.mode_since = scene.world.now
    scene.later(300).triage()
    scene.settle()
    assert scene.incident.status.repair is None

    goes_on(scene.world)
    scene.triage()
    scene.settle()

    assert scene.repair.phase is RepairPhase.REBOOTING
