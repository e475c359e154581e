"""Evidence about the culprit arrives when the gang is already stopped, or runs again: tests what the
controller does and reports then."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault, Severity
from recover.api import Blame, Incident, IncidentPhase, Outcome, Phase
from recover.api.reasons import Reason
from recover.model import PodPhase, Template
from recover.stories.incident_words import blame
from recover.stories.job_state import Job
from recover.stories.why_job import why_job
from recover.triage.plan import plan
from tests.acting import (
    acts,
    advanced,
    apply,
    end_pods,
    first_step,
    look,
    only_recovery,
    recovering,
    start_pods,
    step,
)
from tests.builders import Worlds, cluster, gang
from tests.facts import names

HELD = {"rekindle.dev/hold": "true"}
UNDOUBTED = {"code": "xid-74", "fault": Fault.NVLINK, "final": False, "ago_s": 3}
"""An error of n1's own kernel that a later line may still make less severe."""


def crashed(*, blind: bool = True) -> Worlds:
    """Returns a gang that lost its rank on n1. If n1's agent is blind, n1 is a suspect. The true culprit
    is n3."""
    world = cluster(nodes=8).running(gang())
    return recovering((world.blind("n1") if blind else world).crash(rank=1))


def told_late(world: Worlds, late_s: float, **finding: object) -> Worlds:
    """Adds a fault of n3 that appeared a second before the crash and that n3's agent reports only now."""
    age_s = (world.now - next(iter(world.incidents.values())).spec.detected_at).total_seconds()
    return world.later(max(0.0, late_s - age_s)).finding(on="n3", ago_s=max(late_s, age_s) + 1)


def looked(world: Worlds) -> list[str]:
    """Runs triage and the recovery until neither writes anything more. Returns what they wrote, without
    Events."""
    wrote: list[str] = []
    for _ in range(10):
        found = plan(world.world(), world.settings, world.now)
        apply(world, found)
        now = [*acts(found), *step(world)]
        if not now:
            return wrote
        wrote += now
        if "stop-gang" in now:
            end_pods(world)
    raise AssertionError(f"they write on and on: {wrote[-8:]}")


def brought_to(world: Worlds, where: str) -> Worlds:
    """Advances the recovery to this point, without triage in between."""
    if where == "its pods end":
        assert "stop-gang" in step(world)
    elif where == "starting":
        advanced(world, Phase.RESUMING)
    elif where == "pending":
        advanced(world, Phase.RESUMING)
        assert "start-gang" in step(world)
        start_pods(world, running=False)
    else:
        advanced(world, Phase(where))
    return world


def own_incident(world: Worlds) -> Incident:
    (own,) = (i for i in world.incidents.values() if i.spec.gang is not None)
    return own


# --- before the gang starts again -------------------------------------------------------------------------


@pytest.mark.parametrize("late_s", [1, 10, 40])
@pytest.mark.parametrize("where", ["its pods end", "Choosing", "starting"])
@pytest.mark.parametrize("taken_out", [True, False])
def test_a_culprit_that_is_told_of_before_the_start_is_avoided_instead_of_the_suspect_in_one_restart(
    where: str, late_s: float, taken_out: bool
) -> None:
    world = brought_to(crashed(), where)
    if not taken_out:
        world.change_node("n3", annotations=HELD)

    looked(told_late(world, late_s))
    end_pods(world)
    looked(world)

    status, mark = only_recovery(world).status, world.gangs["llm-uid"].mark
    assert (status.attempt, status.avoid_nodes) == (1, ["n3"])
    assert mark is not None
    assert (mark.did, mark.avoided) == ("resumed", () if taken_out else ("n3",))
    assert (world.nodes["n3"].quarantine is not None) is taken_out


def test_what_was_blamed_first_and_what_is_known_by_now_is_said_by_incident_and_recovery() -> None:
    world = brought_to(crashed(blind=False), "Choosing")
    first = own_incident(world).status
    assert (first.blame, first.blamed_node) == (Blame.APPLICATION, "")

    looked(told_late(world, 10))

    own = own_incident(world)
    assert own.status.phase is IncidentPhase.CLOSED
    assert (own.status.blame, own.status.blamed_node) == (Blame.NODE, "n3")
    assert world.incidents[own.status.superseded_by].spec.node == "n3"
    by_now, first_words, _ = own.status.summary.partition(first.summary)
    assert first_words == first.summary
    assert names(by_now, "xid-79", "n3", "GPU-n3", Fault.DEVICE_LOST)
    causes = only_recovery(world).status.causes
    assert [(cause.node, cause.fault) for cause in causes] == [
        ("n3", Fault.DEVICE_LOST),
        ("n3", Fault.DEVICE_LOST),
    ]
    assert causes[0].summary == own.status.summary


def test_a_recovery_that_looks_before_triage_does_not_start_the_gang_on_the_broken_node() -> None:
    world = told_late(brought_to(crashed(), "starting"), 10)
    assert not names(only_recovery(world).status.message, "n3")

    assert step(world) == ["recovery-resuming"]
    assert "n3" in only_recovery(world).status.avoid_nodes
    assert names(only_recovery(world).status.message, "n3")


def test_a_blocked_recovery_that_has_not_started_the_gang_yet_keeps_it_off_as_well() -> None:
    world = brought_to(crashed(), "Choosing")
    recovery = only_recovery(world)
    blocked = msgspec.structs.replace(
        recovery.status, phase=Phase.BLOCKED, reason=Reason.NEEDS_FENCING_PROOF, deadline=None
    )
    world.recoveries[f"ml/{recovery.metadata.name}"] = msgspec.structs.replace(recovery, status=blocked)
    world.change_node("n3", annotations=HELD)

    looked(told_late(world, 40))

    assert only_recovery(world).status.avoid_nodes == ["n3"]


def test_a_brake_does_not_hide_the_culprit_from_a_gang_that_is_being_stopped() -> None:
    world = brought_to(crashed(), "its pods end")
    world.settings = msgspec.structs.replace(
        world.settings,
        budgets=msgspec.structs.replace(world.settings.budgets, brake_nodes_min=1, brake_percent=1.0),
    )

    apply(world, plan(told_late(world, 1).world(), world.settings, world.now))

    (fault,) = (i for i in world.incidents.values() if i.spec.node)
    assert {(a.action, a.outcome) for a in fault.status.actions} == {
        ("quarantine-node", Outcome.REFUSED),
        ("restart-gang", Outcome.DONE),
    }


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_broken_node_that_takes_pods_is_avoided_though_the_gang_never_ran_there(tolerant: bool) -> None:
    """n6 can take pods of the gang, because the gang tolerates every taint, or because a hold keeps n6 in
    service."""
    world = crashed()
    if tolerant:
        world.change_gang(templates={"": Template(tolerations=({"operator": "Exists"},))})
    else:
        world.change_node("n6", annotations=HELD)
    brought_to(world, "starting").finding(on="n6")

    assert "start-gang" in looked(world)

    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    assert (mark.avoided, mark.suspected) == (("n6",), ("n1",))
    assert only_recovery(world).status.avoid_nodes == ["n6"]
    assert only_recovery(world).status.suspects == ["n1"]


# --- after the gang was started ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["pending", "Verifying", "Succeeded"])
def test_a_culprit_that_is_told_of_after_the_start_corrects_the_blame_and_stops_nobody(where: str) -> None:
    """The gang has no rank on n3 any more."""
    if where == "Succeeded":
        world = brought_to(crashed(blind=False), "Verifying")
        first_step(world, 81)
        looked(world)
        assert own_incident(world).status.phase is IncidentPhase.CLOSED
    else:
        world = brought_to(crashed(blind=False), where)

    wrote = looked(told_late(world, 40))

    assert wrote.count("correct-blame") == 1
    own, recovery = own_incident(world), only_recovery(world)
    assert (own.status.blame, own.status.blamed_node) == (Blame.NODE, "n3")
    assert recovery.status.attempt == 1
    assert not {"stop-gang", "open-recovery"} & set(wrote)
    assert world.nodes["n3"].quarantine is not None
    if recovery.active:
        assert [cause.summary for cause in recovery.status.causes] == [own.status.summary]


def test_why_tells_of_a_recovered_job_whom_its_crash_is_blamed_on_by_now() -> None:
    world = brought_to(crashed(blind=False), "Verifying")
    first = own_incident(world)
    first_step(world, 81)
    looked(world)
    looked(told_late(world, 40))

    job = Job(ref=only_recovery(world).spec.gang)
    told = why_job(job, world.recoveries.values(), world.incidents.values(), world.now)

    lines = [line for section in told.sections for line in section.lines]
    (culprit,) = (i for i in world.incidents.values() if i.spec.node == "n3")
    whom = blame([culprit])
    assert names(whom[0].text, "n3", Fault.DEVICE_LOST)
    assert [line for line in lines if line in {*whom, *blame([first])}] == list(whom)
    assert any(first.status.summary in line.text for line in lines)


def test_a_gang_that_came_back_to_the_culprit_is_stopped_once_more_and_kept_off() -> None:
    world = brought_to(crashed(), "starting")
    step(world)
    start_pods(world.later(1), first_node=3)
    assert looked(world) == ["recovery-verifying"]

    looked(told_late(world, 40))

    status = only_recovery(world).status
    assert (status.attempt, status.avoid_nodes) == (2, ["n3"])
    assert "recovery" not in " ".join(acts(look(world)))


def test_a_correction_is_no_cause_so_that_the_same_fault_can_still_stop_the_gang() -> None:
    """The ranks were waiting for a place when n3's fault became known, and the scheduler still placed them
    on n3."""
    world = brought_to(crashed(), "pending").change_node("n3", annotations=HELD)
    looked(told_late(world, 40))
    assert only_recovery(world).status.attempt == 1

    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, node="n3", phase=PodPhase.RUNNING)
    looked(world)

    status = only_recovery(world).status
    assert (status.attempt, "n3" in status.avoid_nodes) == (2, True)


# --- faults that do not explain the crash -----------------------------------------------------------------


def test_a_fault_minutes_after_the_crash_is_not_called_its_cause() -> None:
    world = brought_to(crashed(blind=False), "Choosing")

    looked(world.later(170).finding(on="n3"))

    assert own_incident(world).status.superseded_by == ""
    assert only_recovery(world).status.avoid_nodes == ["n3"]


def test_a_fault_that_shows_when_the_ranks_run_again_is_not_called_the_cause_of_the_crash_before() -> None:
    world = brought_to(crashed(blind=False), "Verifying")

    looked(world.later(30).finding(on="n3"))

    assert own_incident(world).status.superseded_by == ""


def test_a_fault_of_a_node_where_the_gang_did_not_run_is_not_called_its_cause() -> None:
    world = brought_to(crashed(blind=False), "Choosing")

    looked(world.finding(on="n6", ago_s=2))

    assert own_incident(world).status.superseded_by == ""


def test_a_stopped_gang_is_no_victim_of_a_node_where_it_never_ran() -> None:
    world = brought_to(crashed(blind=False), "Choosing")

    looked(world.finding(on="n6"))

    (fault,) = (i for i in world.incidents.values() if i.spec.node == "n6")
    assert fault.status.victims == []
    assert [a.action for a in fault.status.actions] == ["quarantine-node"]
    assert {cause.node for cause in only_recovery(world).status.causes} == {""}


def test_an_old_and_slight_fault_that_becomes_fatal_at_the_crash_explains_it() -> None:
    world = cluster(nodes=8).running(gang())
    world.finding(on="n3", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    recovering(world)

    recovering(world.later(1200).finding(on="n3", code="xid-48", fault=Fault.MEMORY_DEGRADED).crash(rank=1))

    assert [i.spec.node for i in world.incidents.values()] == ["n3"]
    assert only_recovery(world).spec.avoid_node == "n3"


# --- a node that was quarantined on the weaker evidence ---------------------------------------------------


@pytest.mark.parametrize("where", ["Choosing", "Verifying"])
def test_a_node_taken_out_on_evidence_that_is_not_final_says_who_may_be_the_cause_and_why_it_stays_out(
    where: str,
) -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1", **UNDOUBTED))  # type: ignore[arg-type]
    assert world.nodes["n1"].quarantine is not None
    brought_to(world, where)

    looked(told_late(world, 10))

    (weak,) = (i.status for i in world.incidents.values() if i.spec.node == "n1")
    for facts in (("xid-74", "n1", "GPU-n1", Fault.NVLINK), ("xid-79", "n3", "GPU-n3", Fault.DEVICE_LOST)):
        assert names(weak.summary, *facts)
    assert [(suspect.node, suspect.score) for suspect in weak.suspects] == [("n3", 1.0), ("n1", 0.5)]
    assert weak.blamed_node == "n1"
    assert world.nodes["n1"].quarantine is not None
    (strong,) = (i.status for i in world.incidents.values() if i.spec.node == "n3")
    assert Reason.BUDGET_EXHAUSTED in {action.reason for action in strong.actions}
    if where == "Choosing":
        assert only_recovery(world).status.avoid_nodes == ["n1", "n3"]


def test_of_several_nodes_that_may_be_the_cause_the_same_one_is_named_in_whatever_order_they_come() -> None:
    """An agent's refresh moves its NodeHealth to the end of the cache, and each reconcile pass used to
    write the Incident again."""
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1", **UNDOUBTED))  # type: ignore[arg-type]
    brought_to(world, "Choosing")
    looked(told_late(told_late(world, 10), 10).finding(on="n2", ago_s=11))

    for name in ("n3", "n2", "n1"):
        world.health[name] = world.health.pop(name)
        assert looked(world) == []


def test_two_final_verdicts_do_not_doubt_each_other() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))

    looked(told_late(world, 10))

    suspects = {i.spec.node: [(s.node, s.score) for s in i.status.suspects] for i in world.incidents.values()}
    assert suspects == {"n1": [("n1", 1.0)], "n3": [("n3", 1.0)]}
    assert not any(names(i.status.summary, "n1", "n3") for i in world.incidents.values())
