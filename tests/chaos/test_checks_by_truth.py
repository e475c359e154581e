"""The checks that compare a run with the truth: each must be able to fail, and must be content with what is
right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from chaos.cluster.containers import Exit
from chaos.cluster.kinds import Object
from chaos.cluster.store import Audit, MemoryCluster
from chaos.simulate import lines
from chaos.simulate.checks.base import Check
from chaos.simulate.checks.facts import Facts
from chaos.simulate.checks.haste import AllRanksRunBeforeProof, GraceInPlace
from chaos.simulate.checks.loops import CrashLoopsEnd
from chaos.simulate.checks.starts import OffSuspects
from chaos.simulate.checks.write import Write
from chaos.simulate.jobs import Gang, Job, Storage
from chaos.simulate.liveness import left_in_service, wrongly_waiting
from chaos.simulate.play import START, play
from chaos.simulate.truth import Life, Truth
from chaos.simulate.world import CONTROLLER, Setup, Simulation
from detectors.kubeapi import Resource
from recover.api import Phase
from recover.modes import Mode
from recover.resources import INCIDENTS, JOBS, NAMESPACES, NODES, PYTORCHJOBS, RECOVERIES
from recover.settings import Budgets, Settings

Misdeed = Callable[[Simulation], Awaitable[Any]]
WIDE = Settings(mode=Mode.RECOVER, budgets=Budgets(quarantined_percent_max=100.0, pool_percent_max=100.0))


def said_of(act: Misdeed, setup: Setup | None = None, job: Job | None = None) -> str:
    """What is said of writes in the name of the controller, which is off, about a job that trains."""
    said: list[str] = []

    async def story(sim: Simulation) -> None:
        await sim.submit(job or Job(ranks=2))
        await sim.passes(65)
        sim.kill_controller()
        await act(sim)
        said.extend(violation.partition(": ")[2] for violation in sim.invariants.violations)
        sim.invariants.violations.clear()

    play(story, setup)
    return "; ".join(said)


def written(resource: Resource, new: Object, *, old: Object | None = None, after_s: float = 0) -> Write:
    """A write of the controller on an object, so many seconds after the start."""
    at = START + timedelta(seconds=after_s)
    audit = Audit(at, CONTROLLER, "patch", resource, "", "any", "", 200, changed=True)
    return Write(audit=audit, old=old, new=new, by_controller=True, of_repair=False)


def found_by(check: Check, write: Write) -> str:
    return "; ".join(check.violations(write))


def facts() -> Facts:
    """Of an empty cluster."""
    return Facts(MemoryCluster(lambda: START), Truth(lambda: START), WIDE)


def start_of(uid: str, **annotations: str) -> Write:
    """The write by which the controller starts that job."""
    meta = {"uid": uid, "name": "llm", "namespace": "ml", "annotations": annotations}
    old, new = ({"metadata": meta, "spec": {"suspend": suspend}} for suspend in (True, False))
    return written(JOBS, new, old=old)


# --- a gang that trains is not stopped --------------------------------------------------------------------


async def stopped(sim: Simulation, *, of_phase: str = "Stopping", start: bool = False, **choice: Any) -> None:
    """As the controller stops or starts a gang, by a Recovery that was written before."""
    job = sim.cluster.store.read(PYTORCHJOBS, "llm", "ml").body
    about = {**{k: job[k] for k in ("apiVersion", "kind")}, "namespace": "ml", "name": "llm"}
    spec = {
        "gang": {**about, "uid": job["metadata"]["uid"]},
        "number": 1,
        "incident": "i",
        "fault": "unknown",
    }
    spec |= {"detectedAt": "2026-11-21T09:00:00Z", "summary": "a test"}
    kind = {"apiVersion": RECOVERIES.api_version, "kind": RECOVERIES.kind}
    api = sim.cluster.client(CONTROLLER)
    if not sim.recoveries():
        await api.create(RECOVERIES, {**kind, "metadata": {"name": "r"}, "spec": spec}, "ml")
    status = {"status": {"phase": of_phase, "attempt": 1, **choice}}
    version = sim.cluster.store.read(RECOVERIES, "r", "ml").body["metadata"]["resourceVersion"]
    seen = {"metadata": {"resourceVersion": version}}
    await api.patch(RECOVERIES, "r", {**seen, **status}, namespace="ml", subresource="status")
    mark = {"recovery": "r", "attempt": 1, "did": "resumed" if start else "stopped"}
    meta = {
        "annotations": {"rekindle.dev/recovery": msgspec.json.encode(mark).decode()},
        "resourceVersion": job["metadata"]["resourceVersion"],
    }
    body = {"metadata": meta, "spec": {"runPolicy": {"suspend": not start}}}
    await api.patch(PYTORCHJOBS, "llm", body, namespace="ml")


SOUND = "llm was training on sound nodes when it was stopped"
EARLY = "llm was stopped for a degraded node, neither at a checkpoint nor after the grace"


def test_the_stop_of_a_gang_that_trains_on_sound_nodes_is_caught() -> None:
    assert said_of(stopped) == SOUND


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (lines.FALLEN_OFF_THE_BUS, ""),
        (lines.CONTAINED, EARLY),
        (lines.RETIRED_CODE, SOUND),
        (lines.MMU_FAULT, SOUND),
    ],
)
def test_only_broken_hardware_under_a_rank_is_a_cause_to_stop_it(line: lines.KernelText, said: str) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", line)
        await sim.passes(25)
        await stopped(sim)

    assert said_of(act) == said


def test_broken_hardware_where_none_of_its_ranks_runs_is_no_cause_to_stop_it() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n3", lines.FALLEN_OFF_THE_BUS)
        await stopped(sim)

    assert said_of(act) == SOUND


def test_a_degraded_node_is_a_cause_after_the_grace() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.CONTAINED)
        await sim.passes(sim.settings.timing.checkpoint_grace_s + 20)
        await stopped(sim)

    assert said_of(act) == ""


def test_what_was_seen_before_the_mode_began_is_no_cause_to_stop_it_or_to_take_its_node_out() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n2", lines.NVLINK_ERROR)
        await sim.passes(1)
        sim.truth.acting_since = sim.clock.now()
        await stopped(sim)

    async def cordon(sim: Simulation) -> None:
        sim.kernel("n2", lines.NVLINK_ERROR)
        await sim.passes(1)
        sim.truth.acting_since = sim.clock.now() + timedelta(seconds=1)
        await taken_out(sim, "n2")

    assert said_of(act) == SOUND
    assert said_of(cordon) == "n2 was taken out for what was seen before the mode began"


def test_a_verdict_that_the_next_line_may_soften_is_waited_for() -> None:
    async def act(
        sim: Simulation, *lines_before: lines.KernelText, line: lines.KernelText, wait_s: float
    ) -> None:
        for before in lines_before:
            sim.kernel("n2", before)
        sim.kernel("n2", line)
        await sim.passes(wait_s)
        await taken_out(sim, "n2", shows=None)

    early = "n2 was taken out before the next lines could soften the verdict"
    assert said_of(partial(act, line=lines.NVLINK_ERROR, wait_s=0.2)) == early
    assert said_of(partial(act, line=lines.NVLINK_ERROR, wait_s=3)) == ""
    assert said_of(partial(act, line=lines.FALLEN_OFF_THE_BUS, wait_s=0.2)) == ""
    worse = partial(act, line=lines.NVLINK_ERROR, wait_s=0.2)
    assert said_of(lambda sim: worse(sim, lines.MMU_FAULT)) == ""


def test_a_node_that_people_hold_and_that_is_taken_out_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        await sim.person.edit_node("n2", {"metadata": {"annotations": {"rekindle.dev/hold": "true"}}})
        await taken_out(sim, "n2")

    assert said_of(act) == "n2 was taken out although people hold it"


def test_a_gang_that_has_lost_a_rank_may_be_stopped() -> None:
    async def act(sim: Simulation) -> None:
        sim.crash_rank(1, Exit(1))
        await stopped(sim)

    assert said_of(act) == ""


def test_a_gang_that_nobody_reads_may_be_stopped_for_a_lost_rank_but_not_again_after_its_start() -> None:
    async def act(sim: Simulation, *, resumed: bool = False) -> None:
        uid = sim.cluster.store.read(PYTORCHJOBS, "llm", "ml").body["metadata"]["uid"]
        await sim.passes(300)
        sim.truth.lives[uid].lost_at = sim.clock.now() - timedelta(seconds=250)
        if resumed:
            sim.truth.resumed_at[uid] = sim.clock.now() - timedelta(seconds=200)
        await stopped(sim)

    unread = Setup(without_agent=tuple(f"n{number}" for number in range(1, 9)))
    assert said_of(act, unread) == ""
    assert said_of(act) == SOUND
    assert said_of(partial(act, resumed=True), unread) == SOUND


# --- no verdict before time has told ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waited_s", "text", "said"),
    [
        (2, "restarted in place", "a rank that restarts in place was called lost after 2 s"),
        (5, "restarted in place", ""),
        (2, "", ""),
    ],
)
def test_a_rank_that_restarts_in_place_has_its_grace(waited_s: int, text: str, said: str) -> None:
    evidence = [{"at": START.isoformat(), "code": "exit-1", "text": text}]
    incident: Object = {"spec": {"gang": {"name": "llm"}}, "status": {"evidence": evidence}}

    assert found_by(GraceInPlace(facts()), written(INCIDENTS, incident, after_s=waited_s)) == said


@pytest.mark.parametrize(
    ("suspected", "cause", "said"),
    [
        ([], {}, "started without a word of n2, which its cause suspects"),
        (["n2"], {}, ""),
        ([], {"node": ""}, ""),
        ([], {"at": (START - timedelta(seconds=61)).isoformat()}, ""),
    ],
)
def test_a_start_leaves_the_node_that_its_cause_suspects(
    suspected: list[str], cause: dict[str, str], said: str
) -> None:
    laid = facts()
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    laid.store.create(NODES, {"metadata": {"name": "n2"}, "status": ready})
    laid.store.create(NAMESPACES, {"metadata": {"name": "ml"}})
    status = {"causes": [{"node": "n2", "at": START.isoformat()} | cause]}
    kind = {"apiVersion": RECOVERIES.api_version, "kind": RECOVERIES.kind}
    laid.store.create(RECOVERIES, {**kind, "metadata": {"name": "r"}, "spec": {}}, "ml")
    laid.store.patch(RECOVERIES, "r", {"status": status}, namespace="ml", subresource="status")
    mark = msgspec.json.encode({"recovery": "r", "suspected": suspected, "avoided": []}).decode()

    assert found_by(OffSuspects(laid), start_of("uid", **{"rekindle.dev/recovery": mark})) == said


def test_a_start_is_good_once_all_ranks_have_run_since() -> None:
    laid = facts()
    life = laid.truth.lives["uid"] = Life(Gang(Job(ranks=2)))
    laid.truth.resumed_at["uid"] = START
    old, new = (
        {"spec": {"gang": {"uid": "uid"}}, "status": {"phase": phase}} for phase in ("Resuming", "Verifying")
    )
    step = written(RECOVERIES, new, old=old)
    life.started = {"old": START - timedelta(seconds=60), "a": START + timedelta(seconds=1)}

    check = AllRanksRunBeforeProof(laid)
    assert found_by(check, step) == "its start was called good after 1 of 2 ranks had run"
    life.started["b"] = START + timedelta(seconds=2)
    assert found_by(check, step) == ""


# --- the chosen checkpoint --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (20, ""),
        (30, "started from step 30, whose checkpoint is not complete"),
        (10, "started from step 10, though that of step 20 is complete and untried"),
    ],
)
def test_a_choice_that_is_incomplete_or_older_than_need_be_is_caught(chosen: int, said: str) -> None:
    async def act(sim: Simulation) -> None:
        await sim.passes(100)
        sim.crash_rank(1, Exit(1))
        sim.gangs["llm"].training.checkpoints.complete = {10: True, 20: True, 30: False}
        await stopped(sim)
        await sim.passes(60)
        choice = {"attempt": 1, "verified": True, "step": chosen, "path": f"/checkpoints/step-{chosen}"}
        await stopped(sim, of_phase="Resuming", start=True, checkpoint=choice)

    assert said_of(act) == said


def test_a_newer_checkpoint_that_loads_is_not_passed_over_after_one_attempt() -> None:
    async def act(sim: Simulation, *, tried: int, damaged: bool = False) -> None:
        await sim.passes(100)
        sim.crash_rank(1, Exit(1))
        checkpoints = sim.gangs["llm"].training.checkpoints
        checkpoints.complete = {10: True, 20: True}
        checkpoints.damaged = {20} if damaged else set()
        await stopped(sim)
        await sim.passes(60)
        checkpoints.tried[20] = tried
        choice = {"attempt": 1, "verified": True, "step": 10, "path": "/checkpoints/step-10"}
        await stopped(sim, of_phase="Resuming", start=True, checkpoint=choice)

    assert said_of(partial(act, tried=2)) == (
        "started from step 10, though that of step 20 loads and was tried only once"
    )
    assert said_of(partial(act, tried=2, damaged=True)) == ""
    assert said_of(partial(act, tried=4)) == ""


# --- a crash loop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "error", "said"),
    [
        (3, "exit-1", "given up after 3 failures of the program, the limit is 3 restarts"),
        (4, "exit-1", ""),
        (3, "deleted", ""),
    ],
)
def test_a_program_is_given_up_only_after_as_many_failures_as_the_limit_allows(
    failures: int, error: str, said: str
) -> None:
    async def act(sim: Simulation) -> None:
        sim.crash_rank(1, Exit(1))
        await stopped(sim)
        for _ in range(failures - 1):
            sim.gangs["llm"].failed()
        name = sim.recovery().metadata.name
        version = sim.cluster.store.read(RECOVERIES, name, "ml").body["metadata"]["resourceVersion"]
        cause = {"incident": "i", "fault": "application", "attempt": 1, "error": error}
        cause |= {"at": "2026-11-21T09:00:00Z"}
        status = {"phase": "Escalated", "reason": "CrashLoop", "message": "a test", "causes": [cause]}
        body = {"metadata": {"resourceVersion": version}, "status": status}
        await sim.cluster.client(CONTROLLER).patch(
            RECOVERIES, name, body, namespace="ml", subresource="status"
        )

    assert said_of(act) == said


def test_a_program_that_cannot_start_is_given_up_and_one_that_made_a_step_has_all_its_restarts_again() -> (
    None
):
    laid, program = facts(), Gang(Job())
    laid.truth.lives["uid"] = Life(program)
    check = CrashLoopsEnd(laid)
    program.crashes_at_start = True

    said = [found_by(check, start_of("uid")) for _ in range(7)]
    program.training.furthest += 1
    again = found_by(check, start_of("uid"))

    assert said[:6] == [""] * 6
    assert said[6] == "started once more, although 6 starts in a row were in vain"
    assert again == ""


# --- limits of every level --------------------------------------------------------------------------------


async def taken_out(
    sim: Simulation,
    node: str,
    effect: str = "NoSchedule",
    incident: str = "",
    shows: lines.KernelText | None = lines.FALLEN_OFF_THE_BUS,
) -> None:
    """As the controller takes a broken node out."""
    if shows is not None:
        sim.kernel(node, shows)
    seen = sim.node(node)
    note = {"incident": incident or f"{node}-nvlink-1", "fault": "nvlink", "at": "2026-11-21T09:00:00Z"}
    note |= {"cordoned": effect == "NoSchedule"}
    taint = {"key": "rekindle.dev/unhealthy", "value": "nvlink", "effect": effect}
    annotations = {"rekindle.dev/quarantined-by": msgspec.json.encode(note).decode()}
    body: Object = {
        "metadata": {"annotations": annotations, "resourceVersion": seen["metadata"]["resourceVersion"]},
        "spec": {"taints": [taint], "unschedulable": True if effect == "NoSchedule" else None},
    }
    await sim.cluster.client(CONTROLLER).patch(NODES, node, body)


@pytest.mark.parametrize(
    ("shape", "budgets", "said"),
    [
        ({}, {}, ""),
        ({}, {"quarantined_percent_max": 20.0}, "2 of 8 nodes are quarantined, the limit is 1"),
        ({}, {"quarantined_nodes_max": 1}, "2 of 8 nodes are quarantined, the limit is 1"),
        ({}, {"quarantines_per_hour_max": 1}, "2 quarantines within an hour"),
        ({"per_rack": 4}, {}, "2 of 4 nodes of domain rack-0 are quarantined, the limit is 1"),
        ({"per_rack": 4}, {"domain_nodes_max": 2}, ""),
        (
            {"per_pool": 4},
            {"pool_percent_max": 25.0},
            "2 of 4 nodes of pool pool-0 are quarantined, the limit is 1",
        ),
        ({"per_pool": 1}, {"pool_percent_max": 25.0}, ""),
    ],
)
def test_a_quarantine_beyond_a_limit_is_caught(
    shape: dict[str, int], budgets: dict[str, Any], said: str
) -> None:
    async def act(sim: Simulation) -> None:
        await taken_out(sim, "n1")
        await taken_out(sim, "n2")

    wide = msgspec.structs.replace(WIDE.budgets, **budgets)
    setup = Setup(nodes=8, settings=msgspec.structs.replace(WIDE, budgets=wide), **shape)
    assert said_of(act, setup) == said


def test_a_node_that_its_incident_takes_out_twice_is_one_of_the_hour() -> None:
    async def act(sim: Simulation) -> None:
        await taken_out(sim, "n1")
        released: Object = {"spec": {"unschedulable": None, "taints": None}}
        await sim.cluster.client("person").patch(NODES, "n1", released)
        await taken_out(sim, "n1")

    one = msgspec.structs.replace(WIDE.budgets, quarantines_per_hour_max=1)
    assert said_of(act, Setup(nodes=8, settings=msgspec.structs.replace(WIDE, budgets=one))) == ""


def test_a_soft_taint_takes_no_place_of_a_broken_node() -> None:
    async def act(sim: Simulation) -> None:
        await taken_out(sim, "n1", "PreferNoSchedule")
        await taken_out(sim, "n2")

    assert said_of(act, Setup(nodes=8, per_rack=4, settings=WIDE)) == ""


def test_the_fifth_node_of_one_class_within_the_window_is_caught_unless_the_brake_stops_it() -> None:
    async def act(sim: Simulation) -> None:
        for number in range(1, 6):
            name, node = f"n{number}-nvlink-1", f"n{number}"
            spec = {"fault": "nvlink", "node": node, "detectedAt": sim.clock.now().isoformat()}
            kind = {"apiVersion": INCIDENTS.api_version, "kind": INCIDENTS.kind}
            incident = {**kind, "metadata": {"name": name}, "spec": spec}
            await sim.cluster.client(CONTROLLER).create(INCIDENTS, incident)
            await taken_out(sim, node, incident=name)

    assert said_of(act, Setup(nodes=8, settings=WIDE)) == (
        "5 of 8 nodes were taken out for nvlink, and no brake stopped it"
    )


# --- at the end nothing healthy waits, and nothing broken serves ------------------------------------------


def at_the_end(act: Misdeed, setup: Setup | None = None, job: Job | None = None) -> tuple[str, list[str]]:
    """Of a run without a controller: what is said of the gang, and of the nodes."""
    found: list[Any] = []

    async def story(sim: Simulation) -> None:
        await sim.submit(job or Job(ranks=2))
        await sim.passes(65)
        sim.kill_controller()
        await act(sim)
        await sim.passes(120)
        found.extend([wrongly_waiting(sim, "llm"), list(left_in_service(sim))])

    play(story, setup)
    return found[0], found[1]


def crash(sim: Simulation) -> None:
    sim.crash_rank(1, Exit(1))


def test_a_dead_gang_beside_free_places_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        crash(sim)

    said, _ = at_the_end(act)

    assert said.startswith("llm stands still beside 6 free places for its 2 ranks")


@pytest.mark.parametrize("how", ["cordoned by a person", "broken", "off", "taken by others"])
def test_a_place_that_is_no_place_does_not_count(how: str) -> None:
    async def act(sim: Simulation) -> None:
        crash(sim)
        for node in ("n2", "n3"):
            if how == "cordoned by a person":
                await sim.person.cordon(node)
            elif how == "broken":
                sim.kernel(node, lines.FALLEN_OFF_THE_BUS)
            elif how == "off":
                await sim.crash_node(node)
        if how == "taken by others":
            await sim.submit(Job(name="other", ranks=1))
            await sim.passes(30)
            await sim.person.cordon("n2")

    said, _ = at_the_end(act, Setup(nodes=3))

    assert said == ""


def test_a_weak_sign_closes_no_place() -> None:
    async def act(sim: Simulation) -> None:
        crash(sim)
        for node in ("n1", "n2"):
            sim.kernel(node, lines.RETIRED_CODE)
            sim.kernel(node, lines.CONTAINED)

    said, _ = at_the_end(act, Setup(nodes=2))

    assert "stands still beside 2 free places" in said


def test_a_pod_that_may_still_write_from_a_dead_node_keeps_its_gang_waiting_until_that_is_proven() -> None:
    async def act(sim: Simulation) -> None:
        await sim.crash_node("n2")

    async def fenced(sim: Simulation) -> None:
        await act(sim)
        await sim.person.out_of_service("n2")

    job = Job(ranks=2, storage=Storage.CLAIM)
    assert at_the_end(act, job=job)[0] == ""
    assert "stands still" in at_the_end(fenced, job=job)[0]


def test_a_program_that_fails_again_and_again_may_be_left_as_it_is_and_one_that_does_not_may_not() -> None:
    said: list[str] = []

    async def act(sim: Simulation) -> None:
        crash(sim)
        await stopped(sim)
        for _ in range(3):  # the other rank may have made a step since the crash
            sim.gangs["llm"].failed()
        name = sim.recovery().metadata.name
        version = sim.cluster.store.read(RECOVERIES, name, "ml").body["metadata"]["resourceVersion"]
        status = {"phase": "Escalated", "reason": "CrashLoop", "message": "again and again"}
        body = {"metadata": {"resourceVersion": version}, "status": status}
        await sim.cluster.client(CONTROLLER).patch(
            RECOVERIES, name, body, namespace="ml", subresource="status"
        )
        said.append(wrongly_waiting(sim, "llm"))
        sim.gangs["llm"].training.furthest += 1
        said.append(wrongly_waiting(sim, "llm"))

    at_the_end(act)
    assert said[0] == ""
    assert "Said: Escalated CrashLoop" in said[1]


def test_a_broken_node_that_takes_pods_is_caught() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n4", lines.FALLEN_OFF_THE_BUS)
        sim.kernel("n5", lines.CONTAINED)

    _, nodes = at_the_end(act)

    assert nodes == [
        "n4 takes new pods, and has had 'NVRM: Xid ({pci}): 79, GPU has fallen of' since 09:01:05"
    ]


def test_a_limit_that_is_reached_is_a_reason_to_leave_a_broken_node_as_it_is() -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n4", lines.FALLEN_OFF_THE_BUS)
        await taken_out(sim, "n5")
        sim.invariants.violations.clear()

    settings = msgspec.structs.replace(WIDE, budgets=Budgets(quarantined_nodes_max=1))
    assert at_the_end(act, Setup(settings=settings))[1] == []


@pytest.mark.parametrize("agents", ["all", "none"])
def test_nobody_is_asked_to_take_out_what_nobody_could_see(agents: str) -> None:
    async def act(sim: Simulation) -> None:
        sim.kernel("n4", lines.FALLEN_OFF_THE_BUS)

    without = () if agents == "all" else ("n4",)
    assert bool(at_the_end(act, Setup(without_agent=without))[1]) is (agents == "all")


def test_a_recovery_runs_the_real_scan_and_begins_from_what_is_complete() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(ranks=2, scanned=True, storage=Storage.CLAIM))
        await sim.passes(190)
        complete = gang.training.checkpoints.newest
        gang.training.checkpoints.complete[complete] = False
        crash(sim)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        choice = sim.recovery().status.checkpoint
        assert choice is not None
        assert (choice.verified, choice.step) == (True, complete - 10)
        assert [rejected.step for rejected in choice.rejected][-1] == complete

    play(story)
